"""All pictures of a report, under the names that their files have."""

from collections.abc import Iterator

from ..report.evaluation import EvaluationReport
from .corruptions import plot_corruption_heat_map, plot_severity_curves
from .groups import plot_confusion, plot_groups
from .reliability import heading, plot_reliability
from .risk_coverage import plot_risk_coverage
from .style import Picture


def report_pictures(report: EvaluationReport) -> Iterator[tuple[str, Picture]]:
    """One after the other, so that only one is in memory; what the report lacks is left out."""
    title = heading(report)
    yield "reliability.png", plot_reliability(report)
    if report.risk_coverage is not None:
        yield "risk_coverage.png", plot_risk_coverage(report)
    if report.corruptions is not None:
        yield "corruptions.png", plot_corruption_heat_map(report.corruptions, title=title)
        yield "severity.png", plot_severity_curves(report.corruptions, title=title)
    if report.classes is not None:
        yield "classes.png", plot_groups(report.classes, title)
    if report.confusion is not None:
        yield "confusion.png", plot_confusion(report.confusion, title)
    if report.groups is not None:
        yield "groups.png", plot_groups(report.groups, title)
