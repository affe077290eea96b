"""The values that cross boundaries: the evaluation report, the corruption table, per-sample rows; to and from disk."""

from .report import (
    Cell,
    CorruptionTable,
    EvaluationReport,
    Interval,
    MarginAnalysis,
    Measurement,
    ReliabilityTable,
    Run,
    Temperature,
    load_run,
    save_run,
)
from .rows import CORRUPTIONS, FAMILIES, SEVERITIES, STANDARD_15, SampleRows


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
