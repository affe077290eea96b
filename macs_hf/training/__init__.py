"""`MaCSTrainer` and its arguments, exact resuming, and the log of the loss's parts."""

from .arguments import MaCSTrainingArguments
from .trainer import MaCSTrainer


__all__ = [
    "MaCSTrainer",
    "MaCSTrainingArguments",
]
