"""Margin and Consistency Supervision for Hugging Face image classifiers."""

from .calibration import fit_temperature
from .losses import MaCSLoss, consistency_loss, focal_loss, jensen_shannon, logit_margin, macs_loss, margin_loss
from .objective import METHODS, Objective, objective_of
from .perturbations import PixelStats, perturb
from .supervision import supervise
from .trainer import MaCSTrainer
from .training_args import MaCSTrainingArguments


__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "MaCSLoss",
    "MaCSTrainer",
    "MaCSTrainingArguments",
    "Objective",
    "PixelStats",
    "consistency_loss",
    "fit_temperature",
    "focal_loss",
    "jensen_shannon",
    "logit_margin",
    "macs_loss",
    "margin_loss",
    "objective_of",
    "perturb",
    "supervise",
]
