"""The values that cross boundaries: the evaluation report, the corruption table, per-sample rows; to and from disk."""

from .corruption_table import CORRUPTIONS, FAMILIES, SEVERITIES, STANDARD_15, Cell, CorruptionTable
from .evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from .margins import MarginAnalysis
from .rows import SampleRows
from .run import Run, load_run, save_run


__all__ = [
    "CORRUPTIONS",
    "FAMILIES",
    "SEVERITIES",
    "STANDARD_15",
    "Cell",
    "CorruptionTable",
    "EvaluationReport",
    "Interval",
    "MarginAnalysis",
    "Measurement",
    "ReliabilityTable",
    "Run",
    "SampleRows",
    "Temperature",
    "load_run",
    "save_run",
]
