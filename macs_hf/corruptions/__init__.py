"""The 19 common corruptions at 5 severities (CIFAR-C, ImageNet-C) as batched, deterministic tensor functions."""

from ..report.rows import CORRUPTIONS, FAMILIES, SEVERITIES, STANDARD_15
from .corrupt import PARAMETER_SETS, STOCHASTIC, corrupt
from .weather import frost_source


__all__ = [
    "CORRUPTIONS",
    "FAMILIES",
    "PARAMETER_SETS",
    "SEVERITIES",
    "STANDARD_15",
    "STOCHASTIC",
    "corrupt",
    "frost_source",
]
