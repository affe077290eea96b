"""Risk against coverage: the share of wrong answers if only the surest images are answered, from a report."""

from __future__ import annotations

from os import PathLike

import numpy as np
from matplotlib.figure import Figure

from ..report.evaluation import EvaluationReport
from .reliability import ACCURACY, CONFIDENCE, INK, heading, tidy


def plot_risk_coverage(report: EvaluationReport) -> Figure:
    """
    The curve of the model as published, the best that its accuracy allows (every error last), and the largest
    coverages at 1, 5 and 10 % risk with their 95 % intervals.
    """
    found = report.risk_coverage
    if found is None:
        raise ValueError("the report has no risk_coverage: measure the model again.")
    error = 1 - report.published.metrics["accuracy"].value
    coverage = np.asarray(found.coverage)
    figure = Figure(figsize=(4.8, 4.2), dpi=160, layout="constrained", facecolor="white")
    axes = figure.subplots()
    ideal = np.linspace(0, 1, 201)[1:]
    axes.plot(coverage, found.risk, color=ACCURACY, linewidth=1.8, zorder=3, label="As published")
    best_risk, dashes = np.maximum(0, 1 - (1 - error) / ideal), (0, (4, 3))
    axes.plot(ideal, best_risk, color=INK, linewidth=1, linestyle=dashes, label="Every error last")
    for name, share in found.coverage_at_risk.items():
        if share.value > 0:
            risk = float(name.removesuffix("%")) / 100
            axes.hlines(risk, share.low, share.high, color=CONFIDENCE, linewidth=1.2, zorder=4)
            axes.plot(share.value, risk, "o", color=CONFIDENCE, markersize=3.5, zorder=5)
    aurc, best = found.aurc, found.aurc.value - found.excess_aurc.value
    figure.suptitle(heading(report), fontsize=11, color=INK)
    axes.set_title(
        f"AURC {aurc.value:.4f} ({aurc.low:.4f} to {aurc.high:.4f}), best ordering {best:.4f}",
        fontsize=9.5,
        color=INK,
    )
    axes.set(xlim=(0, 1), xlabel="Coverage: images answered, surest first", ylabel="Risk: wrong answers")
    axes.set_ylim(0, max(0.12, 1.1 * max(found.risk)))
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    tidy(axes)
    return figure


def save_risk_coverage(report: EvaluationReport, path: str | PathLike[str]) -> None:
    """Writes the picture as PNG, 768 pixels wide."""
    plot_risk_coverage(report).savefig(path, format="png")
