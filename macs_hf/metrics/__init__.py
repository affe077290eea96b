"""Calibration and robustness metrics: plain functions, per-sample rows, and `evaluate` modules.

```python
>>> from macs_hf import metrics
>>> metrics.expected_calibration_error([[2.0, 0.0], [0.0, 2.0]], [0, 1]) < 0.12
True

```

`evaluate.load(metrics.path("ece"))` loads the module of the same name; nothing here imports `evaluate`.
"""

from pathlib import Path

from ..report.rows import SampleRows, sample_rows
from .comparison import Comparison, ComparisonTable, compare, difference_of_runs, paired_difference
from .corruption_accuracy import corruption_scores
from .ece import (
    ReliabilityBins,
    calibration_error,
    expected_calibration_error,
    reliability_bins,
    smooth_calibration_error,
)
from .group_scores import confusion_matrix, group_measures
from .intervals import CalibrationEstimate, estimate_calibration_error, measure, summarize, wilson
from .ood_scores import detection
from .scores import brier_score, negative_log_likelihood
from .selective import risk_coverage


NAMES = ("brier", "corruption_accuracy", "ece", "nll")

__all__ = [
    "NAMES",
    "CalibrationEstimate",
    "Comparison",
    "ComparisonTable",
    "ReliabilityBins",
    "SampleRows",
    "brier_score",
    "calibration_error",
    "compare",
    "confusion_matrix",
    "corruption_scores",
    "detection",
    "difference_of_runs",
    "estimate_calibration_error",
    "expected_calibration_error",
    "group_measures",
    "measure",
    "negative_log_likelihood",
    "paired_difference",
    "path",
    "reliability_bins",
    "risk_coverage",
    "sample_rows",
    "smooth_calibration_error",
    "summarize",
    "wilson",
]


def path(name: str) -> str:
    """The folder of the `evaluate` module `name`, for `evaluate.load` or to be pushed to the Hub as a Space."""
    if name not in NAMES:
        raise ValueError(f"no metric {name!r}; there are {', '.join(NAMES)}")
    return str(Path(__file__).parent / "modules" / name)
