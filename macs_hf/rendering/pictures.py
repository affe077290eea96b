"""The pictures of a report. Matplotlib's `Figure` alone, so no display and no global state."""

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from ..data.images import ImageDataset
from ..metrics.intervals import wilson
from ..report.report import (
    ConfusionMatrix,
    CorruptionTable,
    EvaluationReport,
    GroupTable,
    Measurement,
)
from ..report.rows import FAMILIES, SEVERITIES, STANDARD_15, SampleRows
from ..report.run_folder import GALLERY
from ..report.sections import short_name


# ---- Style ----
# The colours were checked for three kinds of colour blindness, and nothing is shown by colour alone.


INK, AXIS, TICK, RULE, PALE = "#222222", "#888888", "#444444", "#e5e5e5", "#bbbbbb"
# What a line or a point is about: accuracy, or confidence.
ACCURACY, CONFIDENCE = "#0072b2", "#d55e00"
# The gap between the two, as an area and as a line.
OVERCONFIDENT, UNDERCONFIDENT = "#d9692f", "#f2d16b"
OVERCONFIDENT_LINE, UNDERCONFIDENT_LINE = "#c44e00", "#d9a400"
# Several models in one picture.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES, DOTS = (0, (4, 3)), (0, (1, 1.5))

HEADING, TITLE, LABEL, SMALL, SMALLEST = 10.5, 9.5, 9, 8.5, 7
DPI = 160
CHARACTERS_PER_INCH = 11  # of a heading
PERCENT = "\u202f%"  # a narrow space that does not break, and the sign


class Picture(Figure):
    """A figure of Matplotlib that a notebook shows without `%matplotlib inline`."""

    def _repr_png_(self) -> bytes:
        return png(self)


def picture(width: float, height: float, heading: str = "") -> Picture:
    """An empty picture, in inches, with lines of text above it."""
    figure = Picture(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    longest = int(CHARACTERS_PER_INCH * width)
    whole = (" ".join(short(word, longest) for word in line.split()) for line in heading.split("\n"))
    if lines := [part for line in whole for part in textwrap.wrap(line, longest)]:
        figure.suptitle("\n".join(lines), fontsize=HEADING, color=INK, parse_math=False)  # names may have dollar signs
    return figure


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """The file of a picture, with 256 colours, which makes it a third as large."""
    drawn, content = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    with Image.open(drawn) as image:
        reduced = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    reduced.save(content, "PNG", optimize=True)
    return content.getvalue()


def tidy(axes: Axes, title: str = "", *, grid: str = "y", percent: str = "xy") -> None:
    """Thin axes at the left and below, a faint grid, and shares as percentages on the axes named in `percent`."""
    axes.set_title(title, fontsize=TITLE, color=INK, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(AXIS)
    axes.grid(axis=grid, color=RULE, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(colors=TICK, labelsize=SMALL, length=3)
    in_percent = FuncFormatter(lambda share, _: f"{round(100 * share, 6):g}{PERCENT}")  # 2.5 % and 5 %, not 5.0 %
    for name in percent:
        {"x": axes.xaxis, "y": axes.yaxis}[name].set_major_formatter(in_percent)
    for part in (axes.xaxis.label, axes.yaxis.label):
        part.set(fontsize=LABEL, color=INK)


def _legend(figure: Figure, columns: int, **options: Any) -> None:
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, **{"fontsize": SMALL} | options)


def _grid_of_numbers(
    axes: Axes, values: np.ndarray, rows: Sequence[str], columns: Sequence[str], size: float, **colours: Any
) -> AxesImage:
    """A picture of a table: a colour for each number, and the names of rows and columns."""
    image = axes.imshow(values, **colours)
    upright = all(len(name) <= 3 for name in columns)
    axes.set_xticks(range(len(columns)), columns, rotation=0 if upright else 90, fontsize=size, parse_math=False)
    axes.set_yticks(range(len(rows)), rows, fontsize=size, parse_math=False)
    axes.tick_params(length=0)
    for part in (axes.xaxis.label, axes.yaxis.label):
        part.set(fontsize=LABEL, color=INK)
    return image


def short(name: str, longest: int) -> str:
    """A name with its middle left out if it is long: names often differ at the end."""
    if len(name) <= longest:
        return name
    start = (longest - 1) // 2
    return f"{name[:start].rstrip()}…{name[start + 1 - longest :].lstrip()}"


# ---- Reliability ----


def plot_reliability(report: EvaluationReport) -> Picture:
    """Accuracy against confidence, without and with the temperature if there is one."""
    measurements = {"As evaluated": report.before}
    if report.has_temperature and report.after is not None:
        after = f"After (T = {report.temperature.value:.3g})"
        measurements = {"Before temperature scaling": report.before, after: report.after}
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
    _legend(figure, 4 if len(measurements) > 1 else 2, handles=handles)
    return figure


def heading(report: EvaluationReport) -> str:
    """Model, with the method that trained it, and dataset on two lines, without folders of the machine."""
    method = report.training_arguments.get("method")
    model = short_name(report.model) + (f", {short_name(str(method))}" if method else "")
    return f"{model}\n{short_name(report.dataset)}, {report.split} (n = {report.n:,})"


def _diagram(axes: Axes, measurement: Measurement, title: str) -> ErrorbarContainer:
    columns = (measurement.bins.lower, measurement.bins.upper, measurement.bins.count)
    columns = np.array([*columns, measurement.bins.confidence, measurement.bins.accuracy])
    left, upper, count, confidence, accuracy = columns[:, columns[2] > 0]
    width, lower = upper - left, np.minimum(accuracy, confidence)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=DASHES, zorder=3)
    style = {"align": "edge", "edgecolor": "white", "linewidth": 0.8, "zorder": 2}
    axes.bar(left, lower, width, color=ACCURACY, **style)
    over = confidence > accuracy
    colours, hatches = np.where(over, OVERCONFIDENT, UNDERCONFIDENT), np.where(over, "////", "").tolist()
    axes.bar(left, np.abs(accuracy - confidence), width, lower, color=colours, hatch=hatches, **style)
    right = np.rint(accuracy * count)
    low, high = np.transpose([wilson(int(k), int(n)) for k, n in zip(right, count, strict=True)])
    lengths = np.maximum(0, [accuracy - low, high - accuracy])
    points = axes.errorbar(
        left + width / 2, accuracy, lengths, fmt="o", color=INK, markersize=3.2, elinewidth=1, zorder=4, clip_on=False
    )
    ece, chance = measurement.metrics["ece"], f"by chance {100 * measurement.noise_floor:.2f} %"
    axes.set(xlim=(0, 1), ylim=(0, 1))
    tidy(axes, f"{title}\nECE {100 * ece.value:.2f} % ({100 * ece.low:.2f} to {100 * ece.high:.2f}), {chance}")
    axes.title.set_linespacing(1.5)
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


# ---- Risk and coverage ----


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
    risks = [float(name.removesuffix("%")) / 100 for name in shown]
    value, low, high = np.array([(share.value, share.low, share.high) for share in shown.values()]).reshape(-1, 3).T
    label = f"Answered at a risk of {', '.join(shown).replace('%', ' %')}, with 95 % interval"
    style = {"fmt": "o", "color": CONFIDENCE, "markersize": 4, "elinewidth": 1.3, "zorder": 4, "clip_on": False}
    if shown:
        axes.errorbar(value, risks, xerr=np.maximum(0, [value - low, high - value]), label=label, **style)
    aurc, best = found.aurc, found.aurc.value - found.excess_aurc.value
    said = f"AURC {aurc.value:.4f} ({aurc.low:.4f} to {aurc.high:.4f}), best ordering {best:.4f}"
    axes.set(xlim=(0, 1), xlabel="Coverage: images answered, surest first", ylabel="Risk: wrong answers")
    axes.set_ylim(0, max(0.02, 1.15 * max(found.risk), *(1.15 * risk for risk in risks)))
    _legend(figure, 1)
    tidy(axes, said if found.risk[-1] else f"None of {report.n:,} answers was wrong")
    return figure


# ---- Corruptions ----


def plot_corruption_heat_map(table: CorruptionTable, *, title: str = "") -> Picture:
    """
    Accuracy (%) by corruption and severity.

    In the spread design each corruption has images of its own, and its row says how many.

    Args:
        table (`CorruptionTable`): The model's scores.
        title (`str`, *optional*): Above the picture.
    """
    rows = list(table.cells)
    values = np.array([[100 * cell.accuracy for cell in row.values()] for row in table.cells.values()])
    figure = picture(4.8, 1.3 + 0.25 * len(rows), f"{title}\n{_caption(table)}")
    axes = figure.subplots()
    labels, severities = [_row_label(table, row) for row in rows], [str(s) for s in table.cells[rows[0]]]
    _grid_of_numbers(axes, values, labels, severities, SMALL, aspect="auto", cmap="viridis", vmin=0, vmax=100)
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value < 55 else INK
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=SMALL, color=colour)
    axes.set_title("Accuracy, %", fontsize=TITLE, color=INK)
    axes.set_xlabel("Severity")
    axes.tick_params(colors=TICK)
    family = {name: family for family, names in FAMILIES.items() for name in names}
    for place in range(1, len(rows)):
        if family[rows[place]] != family[rows[place - 1]]:
            axes.axhline(place - 0.5, color="white", linewidth=2.5)
    axes.spines[:].set_visible(False)
    return figure


def plot_severity_curves(table: CorruptionTable, *, title: str = "") -> Picture:
    """
    Accuracy and ECE against severity; severity 0 is the clean images.

    A point is the mean over the standard 15 corruptions, or over all there are if some of them are missing. Dashed,
    the ECE with the table's temperature, unless that is 1 and changes nothing. Dotted, the noise floor of the ECE (of
    the dashed one, if there is one): what a calibrated model with the same confidences would score on so few images,
    the mean over the same cells.

    Args:
        table (`CorruptionTable`): The model's scores.
        title (`str`, *optional*): Above the picture.
    """
    names = STANDARD_15 if set(STANDARD_15) <= set(table.cells) else tuple(table.cells)
    figure = picture(7.6, 4.08, f"{title}\n{_caption(table)}")
    left, right = figure.subplots(1, 2)
    style = {"color": ACCURACY, "marker": "o", "markersize": 4, "linewidth": 1.6}
    scaled = table.temperature not in (None, 1.0)
    curves = {"Without temperature" if scaled else "As evaluated": (table.by_severity("ece", names), style)}
    if scaled:
        found = table.by_severity("scaled_ece", names)
        curves[f"With temperature ({table.temperature:.3g})"] = (found, style | {"linestyle": DASHES})
    floor = "scaled_noise_floor" if scaled else "noise_floor"  # which older tables do not hold
    if all(getattr(cell, floor) is not None for name in names for cell in table.cells[name].values()):
        look = {"color": ACCURACY, "linestyle": DOTS, "linewidth": 1.6}
        curves["ECE by chance alone"] = (table.by_severity(floor, names), look)
    over = f"mean of {'the standard ' if names == STANDARD_15 else ''}{len(names)} corruptions"
    accuracy = {"_": (table.by_severity("accuracy", names), style)}
    for axes, what, parts, top in ((left, "Accuracy", accuracy, 1.03), (right, "ECE", curves, None)):
        for label, (points, look) in parts.items():
            axes.plot(list(points), list(points.values()), label=label, **look)
        axes.set_xlabel("Severity (0: clean)")
        axes.set_xticks((0, *SEVERITIES))
        axes.set_ylim(0, top)
        tidy(axes, f"{what}, {over}", percent="y")
    _legend(figure, 3, handlelength=3.2)
    return figure


def plot_under_corruption(sides: Mapping[str, Sequence[CorruptionTable]]) -> Picture:
    """
    Two ways to train by severity of corruption: accuracy, and confidence against accuracy. Readable on a phone.

    Args:
        sides (`Mapping[str, Sequence[CorruptionTable]]`): The names of both, and their tables, one for each seed.
            Severity 0 is the clean images; the others are means over the standard 15 corruptions.
    """
    figure = Picture(figsize=(6.4, 3.9), dpi=2 * DPI, layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    curves, severities = [], (0, *SEVERITIES)
    for (name, tables), colour, marker in zip(sides.items(), (COLOURS[1], COLOURS[0]), "so", strict=True):
        found = [table.by_severity("accuracy", STANDARD_15) for table in tables]
        accuracy = [100 * fmean(means[severity] for means in found) for severity in severities]
        gaps = ["clean", *(f"severity_{severity}" for severity in SEVERITIES)]
        gap = [100 * fmean(table.confidence_gap[name].value for table in tables) for name in gaps]
        confidence = np.add(accuracy, gap)
        style = {"color": colour, "marker": marker, "markersize": 6, "linewidth": 2.4}
        left.plot(severities, accuracy, label=name, **style)
        right.plot(accuracy, confidence, **style)
        curves += [*accuracy, *confidence]
    low, high = 10 * math.floor((min(curves) - 2) / 10), min(100, 10 * math.ceil(max(curves) / 10))
    right.plot((low, high), (low, high), color=INK, linewidth=1.2, linestyle=DASHES, zorder=1)
    place, drop = low + 0.4 * (high - low), 0.08 * (high - low)
    right.text(place, place - drop, "calibrated", rotation=45, rotation_mode="anchor", fontsize=10, color=INK)
    left.set_xticks(severities, ("clean", *map(str, SEVERITIES)))
    left.set(ylim=(low, high), title="Accuracy under corruption, %", xlabel="severity")
    right.set(xlim=(low, high), ylim=(low, high), title="Confidence against accuracy, %", xlabel="accuracy, %")
    _legend(figure, 2, fontsize=11)
    for axes in (left, right):
        axes.title.set(fontsize=12, color=INK)
        axes.xaxis.label.set(fontsize=11, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=RULE, linewidth=0.8)
        axes.tick_params(labelsize=10.5, colors=TICK, length=3)
    return figure


def _row_label(table: CorruptionTable, name: str) -> str:
    label = name.replace("_", " ")
    if name == "frost" and "approximate" in (table.frost or ""):
        label += ", own textures"  # docs/measure.md
    counts = {cell.n for cell in table.cells[name].values()}
    return f"{label} (n = {max(counts):,})" if counts != {table.n} else label


def _caption(table: CorruptionTable) -> str:
    """What a reader must know to compare: parameter set, source, number of images."""
    caption = f"{table.n:,} images, {table.params} parameters"
    caption += f", {table.source}" if table.source != "generated" else ""
    return caption + (", each image under one corruption" if table.design == "spread" else "")


# ---- Classes and groups ----


MOST_GROUPS = 50
LONGEST_NAME = 28
# Up to so many classes their shares are written into the confusion matrix, and up to so many it shows all of them.
WRITTEN, MOST_CLASSES = 20, 40


def plot_groups(table: GroupTable, title: str = "") -> Picture:
    """
    The accuracy of each group with its 95 % interval, worst first, and by how much its confidence exceeds it.

    Filled points differ from all other images (or, on the right, from perfect calibration) beyond chance, corrected
    for the number of groups. Of more than 50 groups the worst 50 are shown.

    Args:
        table ([`GroupTable`]): The groups.
        title (`str`, *optional*): Above the picture.
    """
    groups = table.groups[:MOST_GROUPS]
    shown = f"the worst {len(groups)} of {len(table.groups):,}" if len(groups) < len(table.groups) else "worst first"
    by = "Classes" if table.column == "label" else f"By {table.column}"
    figure = picture(6.4, 1.9 + 0.19 * len(groups), f"{title}\n{by}, {shown}")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    overall = sum(group.n * group.accuracy.value for group in table.groups) / table.n
    names = [f"{short(group.name, LONGEST_NAME)}  ({group.n:,})" for group in groups]
    colours = [OVERCONFIDENT_LINE if group.gap.value > 0 else UNDERCONFIDENT_LINE for group in groups]
    accuracy = [group.accuracy for group in groups], [ACCURACY] * len(groups), [group.significant for group in groups]
    gap = [group.gap for group in groups], colours, [group.gap_significant for group in groups]
    for axes, what, (intervals, edges, is_beyond), line in (
        (left, "Accuracy (number of images)", accuracy, overall),
        (right, "Confidence - accuracy", gap, 0),
    ):
        tidy(axes, what, grid="both", percent="x")
        axes.axvline(line, color=INK, linewidth=1, linestyle=DASHES, zorder=1)
        value, low, high = zip(*((part.value, part.low, part.high) for part in intervals), strict=True)
        axes.hlines(range(len(groups)), low, high, colors=edges, linewidth=1.1, zorder=2)
        faces = [colour if beyond else "white" for colour, beyond in zip(edges, is_beyond, strict=True)]
        axes.scatter(value, range(len(groups)), s=15, c=faces, edgecolors=edges, linewidths=1.1, zorder=3)
        axes.set_yticks([])
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
    left.set_yticks(range(len(groups)), names, fontsize=SMALLEST + 0.5, parse_math=False)
    left.tick_params(axis="y", length=0)
    left.set_xlim(max(0.0, min(group.accuracy.low for group in groups) - 0.03), 1.01)
    widest = 1.05 * max(max(abs(group.gap.low), abs(group.gap.high)) for group in groups)
    right.set_xlim(-widest, widest)
    point = {"color": INK, "linewidth": 1.1, "marker": "o", "markersize": 4}
    handles = [
        Line2D([], [], **point, label="Differs beyond chance"),
        Line2D([], [], **point, markerfacecolor="white", label="Does not"),
        Line2D([], [], color=INK, linewidth=1.1, label="95 % interval"),
        Line2D([], [], color=INK, linewidth=1, linestyle=DASHES, label="All images, and no gap"),
        Line2D([], [], color=OVERCONFIDENT_LINE, linewidth=2, label="Overconfident"),
        Line2D([], [], color=UNDERCONFIDENT_LINE, linewidth=2, label="Underconfident"),
    ]
    _legend(figure, 3, handles=handles)
    return figure


def plot_confusion(matrix: ConfusionMatrix, title: str = "") -> Picture:
    """
    How often each class (row) was taken for each (column), as shares of the row.

    Of more than 40 classes those of the most frequent mistakes are shown.

    Args:
        matrix ([`ConfusionMatrix`]): The counts.
        title (`str`, *optional*): Above the picture.
    """
    counts = matrix.to_array()
    names = [short(name, LONGEST_NAME) for name in matrix.class_names]
    seen = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
    shown = seen if len(seen) <= MOST_CLASSES else _most_confused(counts)
    shares = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))[np.ix_(shown, shown)]
    size = np.clip(0.5 * len(shown) if len(shown) <= WRITTEN else 0.115 * len(shown) + 3, 3.2, 15)
    some = f"The {len(shown)} most confused of {len(seen):,} classes" if len(shown) < len(seen) else ""
    figure = picture(size + 2.2, size + 1.3, f"{title}\n{some}")
    axes = figure.subplots()
    font = SMALL if len(shown) <= WRITTEN else 6.5
    labels, scale = [names[place] for place in shown], PowerNorm(0.5, 0, 100)  # small shares are the mistakes
    image = _grid_of_numbers(axes, 100 * shares, labels, labels, font, cmap="Blues", norm=scale)
    for (row, column), share in np.ndenumerate(shares) if len(shown) <= WRITTEN else ():
        if share:
            text = f"{100 * share:.0f}" if share > 0.005 else "<1"  # 0.5 % would be rounded to 0
            colour = "white" if share > 0.4 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALLEST, color=colour)
    axes.set(xlabel="Predicted", ylabel="True")
    axes.spines[:].set_color(RULE)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, ticks=[0, 1, 5, 20, 50, 100])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALLEST, length=2)
    bar.set_label("% of the images of the true class", fontsize=SMALL, color=INK)
    return figure


def _most_confused(counts: np.ndarray) -> np.ndarray:
    """The classes of the pairs that are mixed up most often, in ascending order."""
    wrong = counts - np.diag(np.diag(counts))
    pairs = np.argsort(-wrong, axis=None, kind="stable")[: MOST_CLASSES * MOST_CLASSES]
    classes = dict.fromkeys(np.stack(np.unravel_index(pairs, wrong.shape), axis=1).reshape(-1).tolist())
    return np.sort(list(classes)[:MOST_CLASSES])


# ---- Gallery ----


IN_A_ROW = 6
LARGEST = 256  # pixels of the longer side


def plot_gallery(images: Sequence[Image.Image], captions: Sequence[str], title: str = "") -> Picture:
    """
    A gallery, six images a row.

    Args:
        images (sequence of `PIL.Image.Image`): What to show; large ones are made smaller.
        captions (sequence of `str`): What to write below each, in lines.
        title (`str`, *optional*): Above all.
    """
    columns = min(len(images), IN_A_ROW)
    rows = -(-len(images) // columns)
    lines = 1 + max(caption.count("\n") for caption in captions)
    figure = picture(max(4.0, 1.75 * columns + 0.2), (1.75 + 0.16 * lines) * rows + 0.6, title)
    grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes, image, caption in zip(grid, images, captions, strict=False):
        shown = image.copy()
        shown.thumbnail((LARGEST, LARGEST))
        axes.imshow(shown, interpolation="nearest")
        axes.set_anchor("S")  # captions on one line
        axes.set_xlabel(caption, fontsize=SMALLEST, color=INK, linespacing=1.3, parse_math=False)
    for axes in grid:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure


LONGEST_IN_CAPTION = 24


def confident_mistakes(rows: SampleRows, count: int) -> np.ndarray:
    """The rows of the `count` wrong predictions with the highest confidence, the most confident first."""
    wrong = np.flatnonzero(~rows.correct)
    return wrong[np.argsort(-rows.confidence[wrong], kind="stable")[:count]]


def write_gallery(
    test: ImageDataset, rows: SampleRows, class_names: tuple[str, ...], folder: str | Path, count: int
) -> Path | None:
    """
    Write `mistakes.png`: the most confident wrong predictions with their true class.

    The picture shows test images: it is pushed to the Hub, and shown by the card, only on request.

    Args:
        test ([`ImageDataset`]): The test images.
        rows ([`SampleRows`]): What the published model made of them.
        class_names (`tuple[str, ...]`): One for each class.
        folder (`str` or `Path`): The run's folder.
        count (`int`): At most this many images.

    Returns:
        `Path`, or `None` if no prediction was wrong.
    """
    chosen = confident_mistakes(rows, count)
    path = Path(folder) / GALLERY
    path.unlink(missing_ok=True)
    if not len(chosen):
        return None
    images = [test.image(place) for place in chosen.tolist()]
    captions = [_caption_of_mistake(rows, place, class_names) for place in chosen.tolist()]
    wrong = int((~rows.correct).sum())
    title = f"the {len(chosen)} most confident of {wrong:,} mistakes on {len(rows):,} test images"
    plot_gallery(images, captions, title).savefig(path)
    return path


def _caption_of_mistake(rows: SampleRows, place: int, class_names: tuple[str, ...]) -> str:
    truth, answer = (class_names[int(column[place])] for column in (rows.label, rows.prediction))
    position = place if rows.index is None else int(rows.index[place])
    name = f"image {position}" if rows.name is None else str(rows.name[place])
    said, true = (
        f"{word} {short(of, LONGEST_IN_CAPTION - len(word) - 1)}"
        for word, of in (("predicted", answer), ("true", truth))
    )
    return f"{said}\nwith {100 * rows.confidence[place]:.1f} %\n{true}\n{short(name, LONGEST_IN_CAPTION)}"


# ---- All pictures of a report ----


def report_pictures(report: EvaluationReport) -> Iterator[tuple[str, Picture]]:
    """By the names of their files, one after the other, so that only one is in memory; what it lacks is left out."""
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
