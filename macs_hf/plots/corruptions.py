"""What corruptions do to a classifier. Each function returns a figure; `figure.savefig(path)` writes it."""

import math
from collections.abc import Mapping
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes

from ..report.corruption_names import FAMILIES, SEVERITIES, STANDARD_15
from ..report.corruption_table import Cell, CorruptionTable
from .style import COLOURS, DASHES, DOTS, INK, LABEL, MARKERS, SMALL, TICK, TITLE, Picture, picture, tidy


GENERATED = "generated"  # here, as most are; others have the name of their dataset


def plot_corruption_heat_map(
    table: CorruptionTable,
    baseline: CorruptionTable | None = None,
    *,
    names: tuple[str, str] = ("Accuracy, %", "Baseline, %"),
    title: str = "",
) -> Picture:
    """
    Accuracy (%) by corruption and severity; with a baseline also its own, and the difference in points.

    In the spread design each corruption has images of its own, and its row says how many.

    Args:
        table (`CorruptionTable`): The model's scores.
        baseline (`CorruptionTable`, *optional*): Scores with the same design, parameter set, corruptions and
            severities.
        names (`tuple`, *optional*): What to call the two.
        title (`str`, *optional*): Above the picture.
    """
    panels = [(names[0], _accuracies(table), False)]
    if baseline is not None:
        for field, what in (("params", "parameter sets"), ("design", "designs")):
            of_table, of_baseline = getattr(table, field), getattr(baseline, field)
            if of_table != of_baseline:
                raise ValueError(f"The tables have different {what}, {of_table!r} and {of_baseline!r}.")
        if {n: set(r) for n, r in table.cells.items()} != {n: set(r) for n, r in baseline.cells.items()}:
            raise ValueError("The tables hold different corruptions or severities: evaluate both on the same.")
        other = _accuracies(baseline, tuple(table.cells))
        panels += [(names[1], other, False), (f"{names[0]} - {names[1]}, points", panels[0][1] - other, True)]
    rows = list(table.cells)
    severities = list(next(iter(table.cells.values())))
    figure = picture(2.3 + 2.5 * len(panels), 1.3 + 0.25 * len(rows), f"{title}\n{_caption(table)}")
    all_axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for axes, (name, values, difference) in zip(all_axes, panels, strict=True):
        limit = max(1.0, float(np.abs(values).max()))
        scale = (
            {"cmap": "RdBu", "vmin": -limit, "vmax": limit}
            if difference
            else {"cmap": "viridis", "vmin": 0, "vmax": 100}
        )
        axes.imshow(values, aspect="auto", **scale)
        for (row, column), value in np.ndenumerate(values):
            dark = abs(value) > 0.6 * limit if difference else value < 55
            text = f"{value:+.1f}" if difference else f"{value:.0f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL, color="white" if dark else INK)
        axes.set_title(name, fontsize=TITLE, color=INK, parse_math=False)
        axes.set_xticks(range(len(severities)), severities, fontsize=SMALL)
        axes.set_yticks(range(len(rows)), [_row_label(table, row) for row in rows], fontsize=SMALL)
        axes.set_xlabel("Severity", fontsize=LABEL, color=INK)
        axes.tick_params(length=0, colors=TICK)
        for row in _last_of_families(rows)[:-1]:
            axes.axhline(rows.index(row) + 0.5, color="white", linewidth=2.5)
        axes.spines[:].set_visible(False)
    return figure


def plot_severity_curves(tables: Mapping[str, CorruptionTable], *, scaled: bool = True, title: str = "") -> Picture:
    """
    Accuracy and ECE against severity; severity 0 is the clean images.

    A point is the mean over the standard 15 corruptions, or over all that every table has if some of them are missing.
    Dotted, the noise floor of the ECE: what a calibrated model would score on so few images, the mean over the same
    cells. It is that of the model's own confidences; where a table lacks it, it is that of a model that is as
    confident as it is accurate, on every image alike, and the legend says "approximate".

    Args:
        tables (`Mapping[str, CorruptionTable]`): Name of each model and its scores; the name of only one is not shown.
        scaled (`bool`, *optional*, defaults to `True`): Also show, dashed, the ECE after temperature scaling, and take
            the noise floor of that.
        title (`str`, *optional*): Above the picture.
    """
    if not tables:
        raise ValueError("plot_severity_curves needs at least one table.")
    common = [name for name in next(iter(tables.values())).cells if all(name in t.cells for t in tables.values())]
    names = STANDARD_15 if set(STANDARD_15) <= set(common) else tuple(common)
    if not names:
        raise ValueError("plot_severity_curves needs tables with at least one corruption in common.")
    figure = picture(7.6, 3.9 + 0.18 * len(tables), f"{title}\n{_caption(*tables.values())}")
    left, right = figure.subplots(1, 2)
    for place, (name, table) in enumerate(tables.items()):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        style = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.6}
        after_scaling = scaled and table.temperature is not None
        plain = "without temperature" if after_scaling else "as evaluated"
        _draw(left, table.by_severity("accuracy", names), "_", style)
        _draw(right, table.by_severity("ece", names), _label(name, plain, tables), style)
        if after_scaling:
            label = _label(name, f"T = {table.temperature:.3g}", tables)
            _draw(right, table.by_severity("scaled_ece", names), label, style | {"linestyle": DASHES})
        floors, is_approximate = _noise_floors(table, names, "scaled_noise_floor" if after_scaling else "noise_floor")
        label = _label(name, "noise floor" + (" (approximate)" if is_approximate else ""), tables)
        _draw(right, floors, label, {"color": colour, "linestyle": DOTS, "linewidth": 1.6})
    over = "mean of the standard 15" if names == STANDARD_15 else f"mean of {len(names)}"
    for axes, what, top in ((left, "Accuracy", 1.03), (right, "ECE", None)):
        axes.set_title(f"{what}, {over}", fontsize=TITLE, color=INK)
        axes.set_xlabel("Severity (0: clean)")
        axes.set_xticks((0, *SEVERITIES))
        axes.set_ylim(0, top)
        tidy(axes, percent="y")
    legend = figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=SMALL, handlelength=3.2)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name may hold dollar signs
    return figure


def _label(name: str, what: str, tables: Mapping[str, CorruptionTable]) -> str:
    """With one model its name is in the title, if anywhere."""
    return f"{name}, {what}" if len(tables) > 1 else what[0].upper() + what[1:]


def _draw(axes: Axes, points: Mapping[int, float], label: str, style: dict[str, object]) -> None:
    axes.plot(list(points), list(points.values()), label=label, **style)


def _noise_floors(table: CorruptionTable, names: tuple[str, ...], field: str) -> tuple[dict[int, float], bool]:
    """By severity, the mean over the cells, and whether it is approximate."""
    cells = {severity: [table.cells[name][severity] for name in names] for severity in table.cells[names[0]]}
    if table.clean is not None:
        cells = {0: [table.clean]} | cells
    is_approximate = any(getattr(cell, field) is None for row in cells.values() for cell in row)
    return {
        severity: fmean(_approximate_floor(cell) if is_approximate else getattr(cell, field) for cell in row)
        for severity, row in cells.items()
    }, is_approximate


def _approximate_floor(cell: Cell) -> float:
    """Of one bin with all images: the mean size of a normal error with the variance of an accuracy of n images."""
    return math.sqrt(2 / math.pi * cell.accuracy * (1 - cell.accuracy) / cell.n)


def _accuracies(table: CorruptionTable, names: tuple[str, ...] | None = None) -> np.ndarray:
    return np.array([[100 * cell.accuracy for cell in table.cells[name].values()] for name in names or table.cells])


def _row_label(table: CorruptionTable, name: str) -> str:
    label = name.replace("_", " ")
    counts = {cell.n for cell in table.cells[name].values()}
    return f"{label} (n = {max(counts):,})" if counts != {table.n} else label


def _last_of_families(rows: list[str]) -> list[str]:
    present = ([name for name in names if name in rows] for names in FAMILIES.values())
    return [names[-1] for names in present if names]


def _caption(*tables: CorruptionTable) -> str:
    """What a reader must know to compare: parameter set, source, number of images, whether frost is approximate."""
    sources = ", ".join(sorted({table.source for table in tables}))
    params = ", ".join(sorted({table.params for table in tables}))
    sizes = ", ".join(sorted({f"{table.n:,}" for table in tables}))
    caption = f"{sizes} images, {params} parameters"
    caption += f", {sources}" if sources != GENERATED else ""
    if any(table.design == "spread" for table in tables):
        caption += ", each image under one corruption"
    return caption + (", frost approximate" if any("approximate" in (table.frost or "") for table in tables) else "")
