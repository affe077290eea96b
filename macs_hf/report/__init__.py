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
from .text import report_in_notebook, summary


# How it is printed and what notebooks show is made from it: it does not know that.
EvaluationReport.__str__ = summary
EvaluationReport._repr_html_ = report_in_notebook

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
