"""What corruptions do to a classifier. Each function returns a figure; `figure.savefig(path)` writes it."""

from collections.abc import Mapping
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes

from ..report.corruption_names import FAMILIES, SEVERITIES, STANDARD_15
from ..report.corruption_table import CorruptionTable
from .style import ACCURACY, DASHES, DOTS, INK, LABEL, SMALL, TICK, TITLE, Picture, picture, tidy


GENERATED = "generated"  # here, as most are; others have the name of their dataset


def plot_corruption_heat_map(table: CorruptionTable, *, title: str = "") -> Picture:
    """
    Accuracy (%) by corruption and severity.

    In the spread design each corruption has images of its own, and its row says how many.

    Args:
        table (`CorruptionTable`): The model's scores.
        title (`str`, *optional*): Above the picture.
    """
    rows = list(table.cells)
    severities = list(next(iter(table.cells.values())))
    values = np.array([[100 * cell.accuracy for cell in row.values()] for row in table.cells.values()])
    figure = picture(4.8, 1.3 + 0.25 * len(rows), f"{title}\n{_caption(table)}")
    axes = figure.subplots()
    axes.imshow(values, aspect="auto", cmap="viridis", vmin=0, vmax=100)
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value < 55 else INK
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=SMALL, color=colour)
    axes.set_title("Accuracy, %", fontsize=TITLE, color=INK)
    axes.set_xticks(range(len(severities)), severities, fontsize=SMALL)
    axes.set_yticks(range(len(rows)), [_row_label(table, row) for row in rows], fontsize=SMALL)
    axes.set_xlabel("Severity", fontsize=LABEL, color=INK)
    axes.tick_params(length=0, colors=TICK)
    for row in _last_of_families(rows)[:-1]:
        axes.axhline(rows.index(row) + 0.5, color="white", linewidth=2.5)
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
    _draw(left, table.by_severity("accuracy", names), "_", style)
    ece = table.by_severity("ece", names)
    if table.temperature in (None, 1.0):
        floor = "noise_floor"
        _draw(right, ece, "As evaluated", style)
    else:
        floor = "scaled_noise_floor"
        _draw(right, ece, "Without temperature", style)
        scaled = table.by_severity("scaled_ece", names)
        _draw(right, scaled, f"T = {table.temperature:.3g}", style | {"linestyle": DASHES})
    if floors := _noise_floors(table, names, floor):
        _draw(right, floors, "Noise floor", {"color": ACCURACY, "linestyle": DOTS, "linewidth": 1.6})
    over = "mean of the standard 15" if names == STANDARD_15 else f"mean of {len(names)}"
    for axes, what, top in ((left, "Accuracy", 1.03), (right, "ECE", None)):
        axes.set_title(f"{what}, {over}", fontsize=TITLE, color=INK)
        axes.set_xlabel("Severity (0: clean)")
        axes.set_xticks((0, *SEVERITIES))
        axes.set_ylim(0, top)
        tidy(axes, percent="y")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=SMALL, handlelength=3.2)
    return figure


def _draw(axes: Axes, points: Mapping[int, float], label: str, style: dict[str, object]) -> None:
    axes.plot(list(points), list(points.values()), label=label, **style)


def _noise_floors(table: CorruptionTable, names: tuple[str, ...], field: str) -> dict[int, float]:
    """By severity, the mean over the cells; empty if a cell does not have it."""
    cells = {severity: [table.cells[name][severity] for name in names] for severity in table.cells[names[0]]}
    if table.clean is not None:
        cells = {0: [table.clean]} | cells
    floors = {severity: [getattr(cell, field) for cell in row] for severity, row in cells.items()}
    if any(None in row for row in floors.values()):
        return {}
    return {severity: fmean(row) for severity, row in floors.items()}


def _row_label(table: CorruptionTable, name: str) -> str:
    label = name.replace("_", " ")
    counts = {cell.n for cell in table.cells[name].values()}
    return f"{label} (n = {max(counts):,})" if counts != {table.n} else label


def _last_of_families(rows: list[str]) -> list[str]:
    present = ([name for name in names if name in rows] for names in FAMILIES.values())
    return [names[-1] for names in present if names]


def _caption(table: CorruptionTable) -> str:
    """What a reader must know to compare: parameter set, source, number of images, whether frost is approximate."""
    caption = f"{table.n:,} images, {table.params} parameters"
    caption += f", {table.source}" if table.source != GENERATED else ""
    caption += ", each image under one corruption" if table.design == "spread" else ""
    return caption + (", frost approximate" if "approximate" in (table.frost or "") else "")
