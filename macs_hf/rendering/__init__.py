"""Reports as pages, as Markdown and as pictures."""

from .pictures import (
    plot_confusion,
    plot_corruption_heat_map,
    plot_gallery,
    plot_groups,
    plot_measurements,
    plot_reliability,
    plot_risk_coverage,
    plot_severity_curves,
    plot_under_corruption,
    report_pictures,
)


__all__ = [
    "plot_confusion",
    "plot_corruption_heat_map",
    "plot_gallery",
    "plot_groups",
    "plot_measurements",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_severity_curves",
    "plot_under_corruption",
    "report_pictures",
]
