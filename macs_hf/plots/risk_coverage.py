"""Risk against coverage: the share of wrong answers if only the surest images are answered, from a report."""

import numpy as np

from ..report.evaluation import EvaluationReport
from .reliability import heading
from .style import ACCURACY, CONFIDENCE, DASHES, INK, SMALL, TITLE, Picture, picture, tidy


def plot_risk_coverage(report: EvaluationReport) -> Picture:
    """
    The curve of the model as published, the best that its accuracy allows (every error last), and the largest
    coverages at 1, 5 and 10 % risk with their 95 % intervals.
    """
    found = report.risk_coverage
    if found is None:
        raise ValueError("the report has no risk_coverage: measure the model again.")
    error = 1 - report.published.metrics["accuracy"].value
    coverage = np.asarray(found.coverage)
    figure = picture(4.8, 4.7, heading(report))
    axes = figure.subplots()
    ideal = np.linspace(0, 1, 201)[1:]
    axes.plot(coverage, found.risk, color=ACCURACY, linewidth=1.8, zorder=3, label="As published")
    best_risk = np.maximum(0, 1 - (1 - error) / ideal)
    axes.plot(ideal, best_risk, color=INK, linewidth=1, linestyle=DASHES, zorder=2, label="If every error came last")
    # A risk above that of answering everything is no point of the curve.
    shown = {name: share for name, share in found.coverage_at_risk.items() if 0 < share.value < 1}
    risks = ", ".join(shown).replace("%", " %")
    for number, (name, share) in enumerate(shown.items()):
        below, above = max(0, share.value - share.low), max(0, share.high - share.value)
        axes.errorbar(
            share.value, _share(name), xerr=[[below], [above]], fmt="o",
            color=CONFIDENCE, markersize=4, elinewidth=1.3, zorder=4, clip_on=False,
            label="_" if number else f"Answered at a risk of {risks}, with 95 % interval",
        )  # fmt: skip
    aurc, best = found.aurc, found.aurc.value - found.excess_aurc.value
    said = f"AURC {aurc.value:.4f} ({aurc.low:.4f} to {aurc.high:.4f}), best ordering {best:.4f}"
    axes.set_title(said if found.risk[-1] else f"None of {report.n:,} answers was wrong", fontsize=TITLE, color=INK)
    axes.set(xlim=(0, 1), xlabel="Coverage: images answered, surest first", ylabel="Risk: wrong answers")
    axes.set_ylim(0, max(0.02, 1.15 * max(found.risk), *(1.15 * _share(name) for name in shown)))
    figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize=SMALL)
    tidy(axes)
    return figure


def _share(percent: str) -> float:
    return float(percent.removesuffix("%")) / 100
