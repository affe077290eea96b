"""What a report says beyond its means, for a terminal: worst classes and groups, unknown images, copies."""

from ..data.leakage import leakage_line
from ..report.evaluation import EvaluationReport
from ..report.groups import GroupTable
from ..report.interval import Interval, interval_text
from ..report.unknowns import SCORE_NAMES, Unknowns


SHOWN = 3


def findings(report: EvaluationReport) -> list[str]:
    """The lines, of those parts that were measured."""
    lines = []
    for table, kind in ((report.classes, "class"), (report.groups, "group")):
        if table is not None and len(table.groups) > 1:
            lines.append(_worst(table, kind if kind == "class" else table.column))
    if report.leakage is not None:
        lines.append(leakage_line(report.leakage))
    return lines + ([] if report.unknowns is None else ["", *_unknowns(report.unknowns)])


def _worst(table: GroupTable, kind: str) -> str:
    worst = table.groups[:SHOWN]
    shown = [f"{group.name!r} {_percent(group.accuracy)}{'*' if group.significant else ''}" for group in worst]
    line = f"lowest accuracy by {kind}: {', '.join(shown)}"
    if any(group.significant for group in worst):
        return f"{line} (*: differs from the other images beyond chance, corrected for {len(table.groups)})"
    return f"{line} (none of these differs from the other images beyond chance, corrected for {len(table.groups)})"


def _unknowns(unknowns: Unknowns) -> list[str]:
    lines = [
        f"{unknowns.n:,} images of none of its classes ({unknowns.dataset}, {unknowns.split}): mean confidence "
        f"{100 * unknowns.confidence:.1f}%, on test images {100 * unknowns.known_confidence:.1f}%"
    ]
    for found in unknowns.published:
        auroc, fpr = _percent(found.auroc), _percent(found.fpr95)
        lines.append(f"  {SCORE_NAMES[found.score]:<20} AUROC {auroc}, accepted when 95% of test images are: {fpr}")
    for found in unknowns.answered:
        lines.append(
            f"  answers {100 * found.accuracy:g}% right, where confidence >= {found.threshold:.6g}: "
            f"{_percent(found.unknown)} of them are answered, and {100 * found.known.value:.1f}% of test images"
        )
    return lines


def _percent(interval: Interval) -> str:
    return interval_text(interval, 100, "%", 1)
