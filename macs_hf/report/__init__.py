"""The values that cross boundaries: the evaluation report, the corruption table, per-sample rows; to and from disk."""

from .report import (
    Cell,
    CorruptionTable,
    EvaluationReport,
    GroupTable,
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
from .text import corruptions_in_notebook, groups_in_notebook, report_in_notebook, rows_in_notebook, summary


# How they are printed and what notebooks show is made from them: they do not know it.
EvaluationReport.__str__ = summary
EvaluationReport._repr_html_ = report_in_notebook
CorruptionTable._repr_html_ = corruptions_in_notebook
GroupTable._repr_html_ = groups_in_notebook
SampleRows._repr_html_ = rows_in_notebook

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
