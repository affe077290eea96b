"""Figures made from reports; Matplotlib's `Figure` alone, so no display and no global state."""

from .reliability import plot_reliability, save_reliability


__all__ = ["plot_reliability", "save_reliability"]
