"""The training objective: weights as data, methods, losses, perturbations, and `supervise`, which joins them."""

from .losses import MaCSLoss, consistency_loss, focal_loss, jensen_shannon, logit_margin, macs_loss, margin_loss
from .objective import METHODS, Objective, objective_of
from .perturbations import perturb
from .supervision import supervise


__all__ = [
    "METHODS",
    "MaCSLoss",
    "Objective",
    "consistency_loss",
    "focal_loss",
    "jensen_shannon",
    "logit_margin",
    "macs_loss",
    "margin_loss",
    "objective_of",
    "perturb",
    "supervise",
]
