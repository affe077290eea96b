"""The training objective: weights as data, methods, losses, perturbations, and `supervise`, which joins them."""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_getattr
from .objective import METHODS, Objective, objective_of


if TYPE_CHECKING:
    from .losses import MaCSLoss, consistency_loss, focal_loss, jensen_shannon, logit_margin, macs_loss, margin_loss
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


# What needs torch loads when it is used: methods and their settings are read by `--help` too.
__getattr__ = lazy_getattr(
    __name__,
    dict.fromkeys(("MaCSLoss", "consistency_loss", "focal_loss", "jensen_shannon", "logit_margin"), ".losses")
    | {"macs_loss": ".losses", "margin_loss": ".losses", "perturb": ".perturbations", "supervise": ".supervision"},
)
