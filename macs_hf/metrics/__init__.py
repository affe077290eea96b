"""Calibration and robustness metrics: plain functions, per-sample rows, and `evaluate` modules.

```python
>>> from macs_hf import metrics
>>> metrics.expected_calibration_error([[2.0, 0.0], [0.0, 2.0]], [0, 1]) < 0.12
True

```

`evaluate.load(metrics.path("ece"))` loads the module of the same name; nothing here imports `evaluate`.
"""

from pathlib import Path

from .brier.brier_functions import brier_score
from .corruption_accuracy.corruption_accuracy_functions import corruption_scores
from .ece.bootstrap import CalibrationEstimate, estimate_calibration_error, estimate_from_confidences
from .ece.ece_functions import ReliabilityBins, calibration_error, expected_calibration_error, reliability_bins
from .ece.smooth import smooth_calibration_error
from .nll.nll_functions import negative_log_likelihood
from .rows import SampleRows, has_rows_before, sample_rows
from .stream import CalibrationStream
from .verdict import Comparison, compare, measure


NAMES = ("brier", "corruption_accuracy", "ece", "nll")

__all__ = [
    "NAMES",
    "CalibrationEstimate",
    "CalibrationStream",
    "Comparison",
    "ReliabilityBins",
    "SampleRows",
    "brier_score",
    "calibration_error",
    "compare",
    "corruption_scores",
    "estimate_calibration_error",
    "estimate_from_confidences",
    "expected_calibration_error",
    "has_rows_before",
    "measure",
    "negative_log_likelihood",
    "path",
    "reliability_bins",
    "sample_rows",
    "smooth_calibration_error",
]


def path(name: str) -> str:
    """The folder of the `evaluate` module `name`, for `evaluate.load` or to be pushed to the Hub as a Space."""
    if name not in NAMES:
        raise ValueError(f"no metric {name!r}; there are {', '.join(NAMES)}")
    return str(Path(__file__).parent / name)
