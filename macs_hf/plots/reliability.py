"""Reliability diagram with a histogram of confidences, before and after temperature scaling, from a report."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ..metrics.measurement import wilson
from ..report.evaluation import EvaluationReport, Measurement
from ..report.short_names import short_name
from .style import (
    ACCURACY,
    CONFIDENCE,
    DASHES,
    INK,
    OVERCONFIDENT,
    PALE,
    SMALL,
    TITLE,
    UNDERCONFIDENT,
    Picture,
    picture,
    tidy,
)


def plot_reliability(report: EvaluationReport) -> Picture:
    """Accuracy against confidence, one column per measurement of the report (before, and after if there is one)."""
    after = scaled(report)
    measurements = {"As evaluated" if after is None else "Before temperature scaling": report.before}
    if after is not None:
        measurements[f"After (T = {report.temperature.value:.3g})"] = after
    return plot_measurements(measurements, heading(report))


def plot_measurements(measurements: Mapping[str, Measurement], title: str = "") -> Picture:
    """
    A reliability diagram for each measurement, side by side.

    Points are the accuracy of each bin with its 95 % (Wilson) interval, the light part of a bar is the gap to the
    mean confidence, and the histogram below shows where the samples are.

    Args:
        measurements (`Mapping[str, Measurement]`): What to call each, and its numbers.
        title (`str`, *optional*): Above all.
    """
    figure = picture(4.2 * len(measurements) + 0.6, 6.1, title)
    figure.get_layout_engine().set(wspace=0.06, hspace=0.02)
    grid = figure.subplots(
        2, len(measurements), sharex=True, sharey="row", squeeze=False, gridspec_kw={"height_ratios": [3.4, 1]}
    )
    for column, (name, measurement) in enumerate(measurements.items()):
        points = _diagram(grid[0, column], measurement, name)
        _histogram(grid[1, column], measurement)
    grid[0, 0].set_ylabel("Accuracy")
    grid[1, 0].set_ylabel("Images")
    largest = max(max(part.bins.count) / sum(part.bins.count) for part in measurements.values())
    grid[1, 0].set_ylim(0, min(1.0, 1.12 * largest))
    grid[1, 0].yaxis.set_major_locator(MaxNLocator(3))
    points.set_label("Accuracy of a bin, with its 95 % interval")
    handles = [
        points,
        Line2D([], [], color=INK, linewidth=1, linestyle=DASHES, label="Accuracy equals confidence"),
        Patch(facecolor=OVERCONFIDENT, hatch="////", edgecolor="white", label="Overconfident by"),
        Patch(facecolor=UNDERCONFIDENT, label="Underconfident by"),
    ]
    columns = 4 if len(measurements) > 1 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)
    return figure


def scaled(report: EvaluationReport) -> Measurement | None:
    """What a temperature made of it; `None` if none was fitted, which would only repeat the other column."""
    return report.after if report.has_temperature else None


def heading(report: EvaluationReport) -> str:
    """Model, with the method that trained it, and dataset on two lines, without folders of the machine."""
    method = report.training_arguments.get("method")
    model = short_name(report.model) + (f", {short_name(str(method))}" if method else "")
    return f"{model}\n{short_name(report.dataset)}, {report.split} (n = {report.n:,})"


def _diagram(axes: Axes, measurement: Measurement, title: str) -> ErrorbarContainer:
    bins = measurement.bins
    lower, upper, count = (np.asarray(column) for column in (bins.lower, bins.upper, bins.count))
    confidence, accuracy = np.asarray(bins.confidence), np.asarray(bins.accuracy)
    filled = count > 0
    left, width = lower[filled], (upper - lower)[filled]
    count, confidence, accuracy = count[filled], confidence[filled], accuracy[filled]
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=DASHES, zorder=3)
    style = {"align": "edge", "edgecolor": "white", "linewidth": 0.8, "zorder": 2}
    axes.bar(left, np.minimum(accuracy, confidence), width, color=ACCURACY, **style)
    over = confidence > accuracy
    colours = np.where(over, OVERCONFIDENT, UNDERCONFIDENT)
    gap = np.abs(accuracy - confidence)
    hatches = ["////" if part else "" for part in over]
    axes.bar(left, gap, width, np.minimum(accuracy, confidence), color=colours, hatch=hatches, **style)
    right = np.rint(accuracy * count).astype(int)
    low, high = np.transpose([wilson(int(k), int(n)) for k, n in zip(right, count, strict=True)])
    lengths = np.maximum(0, [accuracy - low, high - accuracy])
    points = axes.errorbar(
        left + width / 2, accuracy, lengths, fmt="o", color=INK, markersize=3.2, elinewidth=1, zorder=4, clip_on=False
    )
    ece = measurement.metrics["ece"]
    interval = f"{100 * ece.low:.2f} to {100 * ece.high:.2f}"
    axes.set_title(
        f"{title}\nECE {100 * ece.value:.2f} % ({interval}), noise floor {100 * measurement.noise_floor:.2f} %",
        fontsize=TITLE, color=INK, linespacing=1.5, parse_math=False,
    )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1))
    tidy(axes)
    return points


def _histogram(axes: Axes, measurement: Measurement) -> None:
    bins = measurement.bins
    lower, upper, count = (np.asarray(column, dtype=np.float64) for column in (bins.lower, bins.upper, bins.count))
    share = count / count.sum()
    axes.bar(lower, share, upper - lower, align="edge", color=PALE, edgecolor="white", linewidth=0.8, zorder=2)
    mean_confidence = float(share @ np.asarray(bins.confidence))
    accuracy = measurement.metrics["accuracy"].value
    axes.axvline(accuracy, color=ACCURACY, linewidth=1.8, zorder=3)
    axes.axvline(mean_confidence, color=CONFIDENCE, linewidth=1.8, linestyle=(0, (3, 2)), zorder=3)
    # Above the histogram, where no line can cross them.
    style = {"transform": axes.transAxes, "va": "bottom", "fontsize": SMALL}
    axes.text(0, 1.04, f"accuracy {100 * accuracy:.1f} % (line)", ha="left", color=ACCURACY, **style)
    said = f"mean confidence {100 * mean_confidence:.1f} % (dashed)"
    axes.text(1, 1.04, said, ha="right", color=CONFIDENCE, **style)
    axes.set_xlabel("Confidence")
    tidy(axes)
