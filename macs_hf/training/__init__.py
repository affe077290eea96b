"""`MaCSTrainer` and its arguments, exact resuming, stopping on signals, and what a terminal shows."""

from .arguments import MaCSTrainingArguments
from .calibration_callback import CalibrationCallback
from .checkpoints import checkpoint_to_continue
from .preemption import TrainingStopped
from .terminal import TerminalCallback
from .trainer import MaCSTrainer


__all__ = [
    "CalibrationCallback",
    "MaCSTrainer",
    "MaCSTrainingArguments",
    "TerminalCallback",
    "TrainingStopped",
    "checkpoint_to_continue",
]
