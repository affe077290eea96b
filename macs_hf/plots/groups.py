"""Where a model is worse than on average: accuracy and confidence of each class or group, and the confusion matrix."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.lines import Line2D

from ..report.groups import ConfusionMatrix, GroupMeasures, GroupTable
from ..report.interval import Interval
from .style import (
    ACCURACY,
    DASHES,
    INK,
    LABEL,
    OVERCONFIDENT_LINE,
    RULE,
    SMALL,
    SMALLEST,
    TITLE,
    UNDERCONFIDENT_LINE,
    Picture,
    picture,
    short,
    tidy,
)


MOST_GROUPS = 100
IN_ONE_COLUMN = 50
LONGEST_NAME = 28
# Up to so many classes their shares are written into the confusion matrix, and up to so many it shows all of them.
WRITTEN, MOST_CLASSES, MOST_CONFUSED = 20, 100, 40


def plot_groups(table: GroupTable, title: str = "") -> Picture:
    """
    The accuracy of each group with its 95 % interval, worst first, and by how much its confidence exceeds it.

    Filled points differ from all other images (or, on the right, from perfect calibration) beyond chance, corrected
    for the number of groups. Of more than 100 groups the worst 100 are shown.

    Args:
        table ([`GroupTable`]): The groups.
        title (`str`, *optional*): Above the picture.
    """
    groups = table.groups[:MOST_GROUPS]
    columns = 1 if len(groups) <= IN_ONE_COLUMN else 2
    rows = -(-len(groups) // columns)
    shown = f"the worst {len(groups)} of {len(table.groups):,}" if len(groups) < len(table.groups) else "worst first"
    figure = picture(6.4 * columns, 1.7 + 0.19 * rows, f"{title}\nBy {table.column}, {shown}")
    all_axes = figure.subplots(1, 2 * columns, sharex=False, squeeze=False, width_ratios=[3, 2] * columns)[0]
    overall = sum(group.n * group.accuracy.value for group in table.groups) / table.n
    lowest = min(group.accuracy.low for group in groups)
    widest = max(max(abs(group.gap.low), abs(group.gap.high)) for group in groups)
    for column in range(columns):
        part = groups[column * rows : (column + 1) * rows]
        _accuracies(all_axes[2 * column], part, overall, lowest)
        _gaps(all_axes[2 * column + 1], part, widest)
        for axes in all_axes[2 * column : 2 * column + 2]:
            axes.set_ylim(rows - 0.5, -0.5)
    point = {"color": INK, "linewidth": 1.1, "marker": "o", "markersize": 4}
    handles = [
        Line2D([], [], **point, label="Differs beyond chance"),
        Line2D([], [], **point, markerfacecolor="white", label="Does not"),
        Line2D([], [], color=INK, linewidth=1.1, label="95 % interval"),
        Line2D([], [], color=INK, linewidth=1, linestyle=DASHES, label="All images, and no gap"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=SMALL)
    return figure


def plot_confusion(matrix: ConfusionMatrix, title: str = "") -> Picture:
    """
    How often each class (row) was taken for each (column), as shares of the row.

    Of more than 100 classes only 40 are shown, those of the most frequent mistakes.

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
    image = axes.imshow(100 * shares, cmap="Blues", norm=PowerNorm(0.5, 0, 100))  # small shares are the mistakes
    font = SMALL if len(shown) <= WRITTEN else 6.5 if len(shown) <= 50 else 5
    upright = all(len(names[place]) <= 3 for place in shown)
    labels = [names[place] for place in shown]
    axes.set_xticks(range(len(shown)), labels, rotation=0 if upright else 90, fontsize=font, parse_math=False)
    axes.set_yticks(range(len(shown)), labels, fontsize=font, parse_math=False)
    if len(shown) <= WRITTEN:
        for (row, column), share in np.ndenumerate(shares):
            if share:
                text = f"{100 * share:.0f}" if share > 0.005 else "<1"  # 0.5 % would be rounded to 0
                colour = "white" if share > 0.4 else INK
                axes.text(column, row, text, ha="center", va="center", fontsize=SMALLEST, color=colour)
    axes.set_xlabel("Predicted", fontsize=LABEL, color=INK)
    axes.set_ylabel("True", fontsize=LABEL, color=INK)
    axes.tick_params(length=0)
    axes.spines[:].set_color(RULE)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, ticks=[0, 1, 5, 20, 50, 100])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALLEST, length=2)
    bar.set_label("% of the images of the true class", fontsize=SMALL, color=INK)
    return figure


def _most_confused(counts: np.ndarray) -> np.ndarray:
    """The classes of the pairs that are mixed up most often, in ascending order."""
    wrong = counts - np.diag(np.diag(counts))
    pairs = np.argsort(-wrong, axis=None, kind="stable")[: MOST_CONFUSED * MOST_CONFUSED]
    classes = dict.fromkeys(np.stack(np.unravel_index(pairs, wrong.shape), axis=1).reshape(-1).tolist())
    return np.sort(list(classes)[:MOST_CONFUSED])


def _accuracies(axes: Axes, groups: tuple[GroupMeasures, ...], overall: float, lowest: float) -> None:
    axes.axvline(overall, color=INK, linewidth=1, linestyle=DASHES, zorder=1)
    _points(axes, [group.accuracy for group in groups], ACCURACY, [group.significant for group in groups])
    labels = [f"{short(group.name, LONGEST_NAME)}  ({group.n:,})" for group in groups]
    axes.set_xlim(max(0.0, lowest - 0.03), 1.01)
    axes.set_title("Accuracy (number of images)", fontsize=TITLE, color=INK)
    _rows(axes, labels)


def _gaps(axes: Axes, groups: tuple[GroupMeasures, ...], widest: float) -> None:
    axes.axvline(0, color=INK, linewidth=1, linestyle=DASHES, zorder=1)
    colours = [OVERCONFIDENT_LINE if group.gap.value > 0 else UNDERCONFIDENT_LINE for group in groups]
    _points(axes, [group.gap for group in groups], colours, [group.gap_significant for group in groups])
    axes.set_xlim(-1.05 * widest, 1.05 * widest)
    axes.set_title("Confidence - accuracy", fontsize=TITLE, color=INK)
    _rows(axes, [])


def _points(axes: Axes, intervals: list[Interval], colours: str | list[str], filled: list[bool]) -> None:
    rows = range(len(intervals))
    value, low, high = zip(*((part.value, part.low, part.high) for part in intervals), strict=True)
    axes.hlines(rows, low, high, colors=colours, linewidth=1.1, zorder=2)
    edges = [colours] * len(filled) if isinstance(colours, str) else colours
    faces = [edge if full else "white" for edge, full in zip(edges, filled, strict=True)]
    axes.scatter(value, rows, s=15, c=faces, edgecolors=edges, linewidths=1.1, zorder=3)


def _rows(axes: Axes, labels: list[str]) -> None:
    tidy(axes, grid="both", percent="x")
    axes.set_yticks(range(len(labels)), labels, fontsize=SMALLEST + 0.5, parse_math=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
