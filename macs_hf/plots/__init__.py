"""Figures made from reports; Matplotlib's `Figure` alone, so no display and no global state."""

from .corruptions import plot_corruption_heat_map, plot_severity_curves
from .gallery import plot_gallery
from .groups import plot_confusion, plot_groups
from .reliability import plot_reliability, save_reliability
from .risk_coverage import plot_risk_coverage, save_risk_coverage


__all__ = [
    "plot_confusion",
    "plot_corruption_heat_map",
    "plot_gallery",
    "plot_groups",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_severity_curves",
    "save_reliability",
    "save_risk_coverage",
]
