"""From a model and held-out data to an `EvaluationReport`; comparisons of runs."""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_getattr


# Loaded when used: finished runs are compared without torch. What writes a report is part of `rendering`.
_MODULES = {
    "ByteImages": ".corruption_benchmark",
    "compare_corruptions": ".run_comparison",
    "compare_runs": ".run_comparison",
    "default_design": ".corruption_benchmark",
    "MeasuredModel": ".evaluate",
    "evaluate_checkpoint": ".evaluate",
    "evaluate_corruptions": ".corruption_benchmark",
    "forward_of": ".corruption_benchmark",
    "write_gallery": "..rendering.pictures",
    "write_report": "..rendering.html",
}

if TYPE_CHECKING:
    from ..rendering.html import write_report
    from ..rendering.pictures import write_gallery
    from .corruption_benchmark import ByteImages, default_design, evaluate_corruptions, forward_of
    from .evaluate import MeasuredModel, evaluate_checkpoint
    from .run_comparison import compare_corruptions, compare_runs

__all__ = [
    "ByteImages",
    "MeasuredModel",
    "compare_corruptions",
    "compare_runs",
    "default_design",
    "evaluate_checkpoint",
    "evaluate_corruptions",
    "forward_of",
    "write_gallery",
    "write_report",
]

__getattr__ = lazy_getattr(__name__, _MODULES)
