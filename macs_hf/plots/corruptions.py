"""Corruptions, and what they do to a classifier. Each function returns a figure; `figure.savefig(path)` writes it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from ..corruptions.corrupt import corrupt
from ..corruptions.frost import frost_source
from ..report.corruption_table import CORRUPTIONS, FAMILIES, SEVERITIES, CorruptionTable


COLOURS = ("#1f5f8b", "#d1495b", "#3d8b5f", "#8a5fa8", "#c98a1b", "#5c5c5c")


def plot_contact_sheet(
    image: Tensor, *, params: str = "cifar", seed: int = 0, frost_textures: str | Path | None = None
) -> Figure:
    """
    One image `(3, H, W)` under all 19 corruptions (rows) at all 5 severities (columns), the clean image first.

    Args:
        image (`Tensor`): uint8, or float in [0, 1].
        params, seed, frost_textures: As in `corrupt`.
    """
    label_width, cell, gap = 1.45, 0.62, 0.03
    columns, rows = len(SEVERITIES) + 1, len(CORRUPTIONS)
    width, height = label_width + columns * (cell + gap) + 0.1, 0.55 + rows * (cell + gap)
    figure = Figure(figsize=(width, height), dpi=160, facecolor="white")
    batch = image[None]
    for row, name in enumerate(CORRUPTIONS):
        versions = [batch] + [
            corrupt(batch, name, severity, params=params, seed=seed, frost_textures=frost_textures)
            for severity in SEVERITIES
        ]
        bottom = height - 0.5 - (row + 1) * (cell + gap)
        for column, version in enumerate(versions):
            left = label_width + column * (cell + gap)
            axes = figure.add_axes((left / width, bottom / height, cell / width, cell / height))
            axes.imshow(version[0].movedim(0, -1).cpu().numpy(), interpolation="nearest")
            axes.set_axis_off()
        label = name.replace("_", " ")
        if name == "frost" and frost_source(frost_textures) != "original":
            label += "\n(approximate)"
        figure.text(
            (label_width - 0.08) / width, (bottom + cell / 2) / height, label, ha="right", va="center", fontsize=8
        )
    for column, title in enumerate(("clean", *map(str, SEVERITIES))):
        left = label_width + column * (cell + gap) + cell / 2
        figure.text(left / width, 1 - 0.42 / height, title, ha="center", va="center", fontsize=8)
    middle = (label_width + columns * (cell + gap) / 2) / width
    figure.text(middle, 1 - 0.17 / height, f"severity, {params} parameters", ha="center", va="center", fontsize=9)
    return figure


def plot_corruption_heat_map(
    table: CorruptionTable,
    baseline: CorruptionTable | None = None,
    *,
    names: tuple[str, str] = ("accuracy, %", "baseline, %"),
) -> Figure:
    """
    Accuracy (%) by corruption and severity; with a baseline also its own, and the difference in points.

    Args:
        table (`CorruptionTable`): The model's scores.
        baseline (`CorruptionTable`, *optional*): Scores with the same parameter set, corruptions and severities.
        names (`tuple`, *optional*): What to call the two.
    """
    panels = [(names[0], _accuracies(table), False)]
    if baseline is not None:
        if baseline.params != table.params:
            raise ValueError(f"The tables have different parameter sets, {table.params!r} and {baseline.params!r}.")
        if {n: set(r) for n, r in table.cells.items()} != {n: set(r) for n, r in baseline.cells.items()}:
            raise ValueError("The tables hold different corruptions or severities: evaluate both on the same.")
        other = _accuracies(baseline, tuple(table.cells))
        panels += [(names[1], other, False), (f"{names[0]} - {names[1]}, points", panels[0][1] - other, True)]
    rows = list(table.cells)
    severities = list(next(iter(table.cells.values())))
    figure = Figure(
        figsize=(1.9 + 2.5 * len(panels), 1.1 + 0.27 * len(rows)), dpi=160, layout="constrained", facecolor="white"
    )
    all_axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for axes, (title, values, difference) in zip(all_axes, panels, strict=True):
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
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(severities)), severities, fontsize=8)
        axes.set_yticks(range(len(rows)), [name.replace("_", " ") for name in rows], fontsize=8)
        axes.tick_params(length=0)
        for name in _last_of_families(rows)[:-1]:
            axes.axhline(rows.index(name) + 0.5, color="white", linewidth=1.5)
        axes.spines[:].set_visible(False)
    figure.suptitle(_caption(table), fontsize=9)
    figure.supxlabel("severity", fontsize=8)
    return figure


def plot_severity_curves(tables: Mapping[str, CorruptionTable], *, scaled: bool = True) -> Figure:
    """
    Accuracy and ECE (%) against severity, mean over the corruptions; severity 0 is the clean images.

    Args:
        tables (`Mapping[str, CorruptionTable]`): Name of each model and its scores.
        scaled (`bool`, *optional*, defaults to `True`): Also show, dashed, the ECE after temperature scaling.
    """
    if not tables:
        raise ValueError("plot_severity_curves needs at least one table.")
    figure = Figure(figsize=(7.2, 3.1), dpi=160, layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    for colour, (name, table) in zip(_cycle(len(tables)), tables.items(), strict=True):
        style = {"color": colour, "marker": "o", "markersize": 3.5, "linewidth": 1.5}
        accuracy, ece = table.by_severity("accuracy"), table.by_severity("ece")
        left.plot(list(accuracy), [100 * value for value in accuracy.values()], label=name, **style)
        right.plot(list(ece), [100 * value for value in ece.values()], label=name, **style)
        if scaled and table.temperature is not None:
            ece = table.by_severity("scaled_ece")
            label = f"{name}, T = {table.temperature:.2f}"
            right.plot(list(ece), [100 * value for value in ece.values()], label=label, **style | {"linestyle": "--"})
    count = len(next(iter(tables.values())).cells)
    for axes, title in ((left, f"accuracy, %, mean of {count}"), (right, f"ECE, %, mean of {count}")):
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("severity (0: clean)", fontsize=8)
        axes.set_xticks((0, *SEVERITIES))
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7.5, frameon=False, handlelength=3.2)
    figure.suptitle(_caption(*tables.values()), fontsize=9)
    return figure


def _accuracies(table: CorruptionTable, names: tuple[str, ...] | None = None) -> np.ndarray:
    return np.array([[100 * cell.accuracy for cell in table.cells[name].values()] for name in names or table.cells])


def _last_of_families(rows: list[str]) -> list[str]:
    present = ([name for name in names if name in rows] for names in FAMILIES.values())
    return [names[-1] for names in present if names]


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _caption(*tables: CorruptionTable) -> str:
    """What a reader must know to compare: parameter set, source, number of images, whether frost is approximate."""
    sources = ", ".join(sorted({table.source for table in tables}))
    params = ", ".join(sorted({table.params for table in tables}))
    sizes = ", ".join(sorted({f"{table.n:,}" for table in tables}))
    caption = f"{params} parameters, {sources}, n = {sizes}"
    return caption + (", frost approximate" if any("approximate" in (table.frost or "") for table in tables) else "")
