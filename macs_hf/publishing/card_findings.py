"""What the model card says beyond the means: worst classes and groups, images of no class, copies between splits."""

from typing import Any

import numpy as np

from ..data.leakage import leakage_line
from ..report.evaluation import EvaluationReport
from ..report.groups import ConfusionMatrix, GroupTable
from ..report.interval import Interval, interval_text
from ..report.unknowns import SCORE_NAMES
from .markdown import text


WORST, MISTAKES = 5, 3


def findings(report: EvaluationReport) -> dict[str, Any]:
    """The variables of `templates/findings.md`."""
    return {
        "classes": _table(report.classes),
        "mistakes": _mistakes(report.confusion),
        "groups": _table(report.groups),
        "group_column": None if report.groups is None else report.groups.column,
        "leakage": None if report.leakage is None else leakage_line(report.leakage),
        "unknowns": report.unknowns,
        "detections": _detections(report),
    }


def _table(table: GroupTable | None) -> dict[str, Any] | None:
    if table is None or len(table.groups) < 2 or all(group.accuracy.value == 1 for group in table.groups):
        return None  # nowhere is it less accurate
    worst = table.groups[:WORST]
    rows = []
    for group in worst:
        cells = [text(group.name), f"{group.n:,}", _cell(group.accuracy, mark=group.significant)]
        cells.append(_cell(group.gap, sign="+"))
        if table.promised_coverage is not None:
            cells.append(_cell(group.coverage, mark=group.coverage_significant))
        rows.append(cells)
    marked = any(group.significant or group.coverage_significant for group in worst)
    promised = None if table.promised_coverage is None else f"{100 * table.promised_coverage:g} %"
    return {"rows": rows, "number": len(table.groups), "marked": marked, "promised": promised}


def _mistakes(matrix: ConfusionMatrix | None) -> list[str]:
    """The most frequent confusions, in words."""
    if matrix is None:
        return []
    names, totals = matrix.class_names, np.bincount(matrix.label, weights=matrix.count)
    return [
        f"{text(names[label])} taken for {text(names[other])} ({count:,} of {totals[label]:,.0f})"
        for count, label, other in matrix.mistakes()[:MISTAKES]
    ]


def _detections(report: EvaluationReport) -> list[tuple[str, list[str]]]:
    """For each score, the cells of the table: AUROC and FPR, before and after the temperature."""
    if report.unknowns is None:
        return []
    found = report.unknowns
    parts = [found.before] if found.after is None or not report.has_temperature else [found.before, found.after]
    return [
        (SCORE_NAMES[scores[0].score], [_cell(part) for score in scores for part in (score.auroc, score.fpr95)])
        for scores in zip(*parts, strict=True)
    ]


def _cell(interval: Interval, sign: str = "", mark: bool = False) -> str:
    return interval_text(interval, 100, " %", 1, sign) + (" \\*" if mark else "")
