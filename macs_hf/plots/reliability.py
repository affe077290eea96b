"""Reliability diagram with a histogram of confidences, before and after temperature scaling, from a report."""

from __future__ import annotations

from os import PathLike

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from ..metrics.measurement import wilson
from ..report.evaluation import EvaluationReport, Measurement
from ..report.names import short_name


ACCURACY, CONFIDENCE, INK = "#4477aa", "#cc3344", "#222222"
OVERCONFIDENT, UNDERCONFIDENT = "#f2a0a8", "#ddcc77"  # distinct with any colour vision


def plot_reliability(report: EvaluationReport) -> Figure:
    """
    Accuracy against confidence, one column per measurement of the report (before, and after if there is one).

    Points are the accuracy of each bin with its 95 % (Wilson) interval, the light part of a bar is the gap to the
    mean confidence, and the histogram below shows where the samples are.
    """
    measurements = {"Before temperature scaling" if report.after else "As evaluated": report.before}
    if report.after is not None:
        value = f" (T = {report.temperature.value:.3g})" if report.temperature else ""
        measurements[f"After{value}"] = report.after
    figure = Figure(figsize=(4.2 * len(measurements) + 0.6, 5.9), dpi=160, layout="constrained", facecolor="white")
    grid = figure.subplots(
        2, len(measurements), sharex=True, sharey="row", squeeze=False, gridspec_kw={"height_ratios": [3.2, 1]}
    )
    for column, (title, measurement) in enumerate(measurements.items()):
        _diagram(grid[0, column], measurement, title)
        _histogram(grid[1, column], measurement)
    grid[0, 0].set_ylabel("Accuracy")
    grid[1, 0].set_ylabel("Samples")
    figure.suptitle(heading(report), fontsize=11, color=INK)
    handles = [
        Line2D([], [], color=INK, marker="o", markersize=3, linewidth=0.9, label="Accuracy"),
        Patch(color=OVERCONFIDENT, label="Overconfident"),
        Patch(color=UNDERCONFIDENT, label="Underconfident"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def save_reliability(report: EvaluationReport, path: str | PathLike[str]) -> None:
    """Writes the diagram as PNG, about 1,450 pixels wide."""
    plot_reliability(report).savefig(path, format="png")


def heading(report: EvaluationReport) -> str:
    """Model and dataset on two lines, without folders of the machine."""
    return f"{short_name(report.model)}\n{short_name(report.dataset)}, {report.split} (n = {report.n:,})"


def _diagram(axes: Axes, measurement: Measurement, title: str) -> None:
    bins = measurement.bins
    lower, upper, count = (np.asarray(column) for column in (bins.lower, bins.upper, bins.count))
    confidence, accuracy = np.asarray(bins.confidence), np.asarray(bins.accuracy)
    filled = count > 0
    left, width = lower[filled], (upper - lower)[filled]
    count, confidence, accuracy = count[filled], confidence[filled], accuracy[filled]
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=3)
    style = {"align": "edge", "edgecolor": "white", "linewidth": 0.8, "zorder": 2}
    axes.bar(left, np.minimum(accuracy, confidence), width, color=ACCURACY, **style)
    colours = np.where(confidence > accuracy, OVERCONFIDENT, UNDERCONFIDENT)
    axes.bar(left, np.abs(accuracy - confidence), width, np.minimum(accuracy, confidence), color=colours, **style)
    right = np.rint(accuracy * count).astype(int)
    low, high = zip(*(wilson(int(k), int(n)) for k, n in zip(right, count, strict=True)), strict=True)
    middle = left + width / 2
    axes.vlines(middle, low, high, color=INK, linewidth=0.9, zorder=4)
    axes.plot(middle, accuracy, "o", color=INK, markersize=3, zorder=4)
    ece = measurement.metrics["ece"]
    interval = f"{100 * ece.low:.2f} to {100 * ece.high:.2f}"
    axes.set_title(
        f"{title}\nECE {100 * ece.value:.2f} % ({interval}), noise floor {100 * measurement.noise_floor:.2f} %",
        fontsize=9.5, color=INK, linespacing=1.5,
    )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1))
    tidy(axes)


def _histogram(axes: Axes, measurement: Measurement) -> None:
    bins = measurement.bins
    lower, upper, count = (np.asarray(column, dtype=np.float64) for column in (bins.lower, bins.upper, bins.count))
    share = count / count.sum()
    axes.bar(lower, share, upper - lower, align="edge", color="#bbbbbb", edgecolor="white", linewidth=0.8, zorder=2)
    mean_confidence = float(share @ np.asarray(bins.confidence))
    accuracy = measurement.metrics["accuracy"].value
    axes.axvline(accuracy, color=ACCURACY, linewidth=1.6, zorder=3)
    axes.axvline(mean_confidence, color=CONFIDENCE, linewidth=1.6, linestyle=(0, (3, 2)), zorder=3)
    for height, value, name, colour in (
        (0.86, accuracy, "accuracy", ACCURACY),
        (0.62, mean_confidence, "mean confidence", CONFIDENCE),
    ):
        axes.text(
            0.04,
            height,
            f"{name} {100 * value:.1f} %",
            transform=axes.transAxes,
            va="center",
            fontsize=8.5,
            color=colour,
        )
    axes.set_xlabel("Confidence")
    axes.set(ylim=(0, 1), yticks=(0, 0.5, 1))
    tidy(axes)


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors="#444444", labelsize=8.5, length=3)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
