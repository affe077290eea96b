"""The 19 common corruptions at 5 severities (CIFAR-C, ImageNet-C) as batched, deterministic tensor functions."""

from .comparison import compare_corruptions
from .corrupt import (
    CORRUPTIONS,
    FAMILIES,
    PARAMETER_SETS,
    SEVERITIES,
    STANDARD_15,
    STOCHASTIC,
    corrupt,
)
from .evaluation import evaluate_corruptions, forward_of, subset
from .frost import frost_source
from .published import evaluate_published
from .table import Cell, CorruptionTable


__all__ = [
    "CORRUPTIONS",
    "FAMILIES",
    "PARAMETER_SETS",
    "SEVERITIES",
    "STANDARD_15",
    "STOCHASTIC",
    "Cell",
    "CorruptionTable",
    "compare_corruptions",
    "corrupt",
    "evaluate_corruptions",
    "evaluate_published",
    "forward_of",
    "frost_source",
    "subset",
]
