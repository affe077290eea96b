"""`MaCSTrainer` and its arguments, exact resuming, stopping on signals, and what a terminal shows."""

from .arguments import MaCSTrainingArguments
from .callbacks import CalibrationCallback, TerminalCallback
from .checkpoints import checkpoint_to_continue
from .signals import TrainingStopped
from .trainer import MaCSTrainer


__all__ = [
    "CalibrationCallback",
    "MaCSTrainer",
    "MaCSTrainingArguments",
    "TerminalCallback",
    "TrainingStopped",
    "checkpoint_to_continue",
]
