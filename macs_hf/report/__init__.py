"""The values that cross boundaries: the evaluation report, the corruption table, per-sample rows; to and from disk."""

from .corruption_table import CORRUPTIONS, FAMILIES, SEVERITIES, STANDARD_15, Cell, CorruptionTable
from .evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from .rows import SampleRows


__all__ = [
    "CORRUPTIONS",
    "FAMILIES",
    "SEVERITIES",
    "STANDARD_15",
    "Cell",
    "CorruptionTable",
    "EvaluationReport",
    "Interval",
    "Measurement",
    "ReliabilityTable",
    "SampleRows",
    "Temperature",
]
