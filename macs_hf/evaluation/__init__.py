"""From a model and held-out data to an `EvaluationReport`; comparisons of runs."""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_getattr


# Loaded when used: finished runs are compared without torch.
_MODULES = {
    "ByteImages": ".byte_images",
    "CorruptionBenchmark": ".corruption_design",
    "compare_corruptions": ".corruption_comparison",
    "compare_runs": ".comparison",
    "default_design": ".corruption_design",
    "evaluate_checkpoint": ".checkpoint",
    "evaluate_corruptions": ".corruption_benchmark",
    "forward_of": ".corruption_benchmark",
    "write_gallery": ".gallery",
    "write_report": ".checkpoint",
}

if TYPE_CHECKING:
    from .byte_images import ByteImages
    from .checkpoint import evaluate_checkpoint, write_report
    from .comparison import compare_runs
    from .corruption_benchmark import evaluate_corruptions, forward_of
    from .corruption_comparison import compare_corruptions
    from .corruption_design import CorruptionBenchmark, default_design
    from .gallery import write_gallery

__all__ = [
    "ByteImages",
    "CorruptionBenchmark",
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
