"""Margin and Consistency Supervision for Hugging Face image classifiers."""

from typing import TYPE_CHECKING

from .lazy_imports import lazy_getattr


__version__ = "0.2.0.dev0"

# Where each public name lives. They load when used: `macs_loss` costs torch and little more, `MaCSTrainer` costs
# transformers, `--help` costs neither.
_HOMES = {
    "calibration": ("fit_temperature", "fold_temperature"),
    "corruptions": ("corrupt",),
    "evaluation": ("evaluate_checkpoint", "evaluate_corruptions"),
    "objective": (
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
    ),
    "pixels": ("PixelStats",),
    "report": ("EvaluationReport", "SampleRows", "load_run"),
    "training": ("CalibrationCallback", "MaCSTrainer", "MaCSTrainingArguments"),
}

if TYPE_CHECKING:
    from .calibration import fit_temperature, fold_temperature
    from .corruptions import corrupt
    from .evaluation import evaluate_checkpoint, evaluate_corruptions
    from .objective import (
        METHODS,
        MaCSLoss,
        Objective,
        consistency_loss,
        focal_loss,
        jensen_shannon,
        logit_margin,
        macs_loss,
        margin_loss,
        objective_of,
        perturb,
        supervise,
    )
    from .pixels import PixelStats
    from .report import EvaluationReport, SampleRows, load_run
    from .training import CalibrationCallback, MaCSTrainer, MaCSTrainingArguments

__all__ = [
    "METHODS",
    "CalibrationCallback",
    "EvaluationReport",
    "MaCSLoss",
    "MaCSTrainer",
    "MaCSTrainingArguments",
    "Objective",
    "PixelStats",
    "SampleRows",
    "consistency_loss",
    "corrupt",
    "evaluate_checkpoint",
    "evaluate_corruptions",
    "fit_temperature",
    "focal_loss",
    "fold_temperature",
    "jensen_shannon",
    "load_run",
    "logit_margin",
    "macs_loss",
    "margin_loss",
    "objective_of",
    "perturb",
    "supervise",
]


__getattr__ = lazy_getattr(__name__, {name: f".{room}" for room, names in _HOMES.items() for name in names})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
