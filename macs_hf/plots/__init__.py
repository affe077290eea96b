"""Figures made from reports; Matplotlib's `Figure` alone, so no display and no global state."""

from .alt_texts import alt_texts
from .corruptions import plot_corruption_heat_map, plot_severity_curves
from .gallery import plot_gallery
from .groups import plot_confusion, plot_groups
from .pictures import report_pictures
from .reliability import plot_measurements, plot_reliability
from .risk_coverage import plot_risk_coverage


__all__ = [
    "alt_texts",
    "plot_confusion",
    "plot_corruption_heat_map",
    "plot_gallery",
    "plot_groups",
    "plot_measurements",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_severity_curves",
    "report_pictures",
]
