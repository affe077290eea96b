"""`MaCSTrainer` and its arguments, exact resuming, stopping on signals, and the log of the loss's parts."""

from .arguments import MaCSTrainingArguments
from .checkpoints import checkpoint_to_continue
from .preemption import TrainingStopped
from .trainer import MaCSTrainer


__all__ = [
    "MaCSTrainer",
    "MaCSTrainingArguments",
    "TrainingStopped",
    "checkpoint_to_continue",
]
