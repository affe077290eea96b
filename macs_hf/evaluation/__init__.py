"""From a model and held-out data to an `EvaluationReport`; comparisons of runs."""

from .byte_images import ByteImages
from .checkpoint import evaluate_checkpoint, write_report
from .corruption_benchmark import evaluate_corruptions, forward_of
from .corruption_comparison import compare_corruptions
from .design import CorruptionBenchmark, default_design
from .published import evaluate_published


__all__ = [
    "ByteImages",
    "CorruptionBenchmark",
    "compare_corruptions",
    "default_design",
    "evaluate_checkpoint",
    "evaluate_corruptions",
    "evaluate_published",
    "forward_of",
    "write_report",
]
