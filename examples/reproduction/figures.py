"""Figures of a grid: each setting a mark with its interval, in a panel per metric, and what a training step costs."""

import textwrap
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from macs_hf.rendering.pictures import COLOURS, DASHES, DPI, INK, plot_under_corruption

from .claims import step_times
from .grid import Grid, Setting, name_of, settings_of
from .results import METRICS, Groups, difference, estimated, measured, of_table


BAND = "#f4f4f4"
# What an interval says of a method, by colour and by mark: the colour-blind can tell them apart, and so does a print.
MARK = {"linestyle": "none", "marker": "o", "markersize": 5.5, "markeredgewidth": 1.3}
VERDICTS = {
    "reference": {"color": INK},
    "better": {"color": COLOURS[0]},
    "worse": {"color": COLOURS[1], "marker": "s"},
    "undecided": {"color": "#666666", "markerfacecolor": "white"},
    "one seed": {"color": "#666666", "marker": "x"},
}
# Short names of metrics above panels.
PANELS = {"mean15": "accuracy\nunder corruption, %", "corrupted_nll": "NLL\nunder corruption"}


def draw(grid: Grid, groups: Groups, folder: Path) -> list[Path]:
    """Every figure of the grid for which there are runs, as PNG: one for each dataset and model of its table."""
    written = []
    for name, spec in grid.figures.items():
        own = of_table(grid, spec["table"], groups)
        if "compared" in spec:
            known = {row.label: row for row in settings_of(grid, spec["table"])}
            rows = [known[label] for label in spec["compared"]]
            written.append(folder / f"{name}.png")
            tables = {name_of(row.label): [run.report.corruptions for run in own[row]] for row in rows}
            plot_under_corruption(tables).savefig(written[-1], format="png")
            continue
        rows = [
            row
            for row in settings_of(grid, spec["table"])
            if any(estimated(own, row, metric) for metric in spec["metrics"])
        ]
        pairs = list(dict.fromkeys(row[:2] for row in rows))
        for pair in pairs:
            path = folder / ("-".join((name, *pair) if len(pairs) > 1 else (name,)) + ".png")
            plot_methods([row for row in rows if row[:2] == pair], own, spec).savefig(path, format="png")
            written.append(path)
    return written


def plot_methods(rows: list[Setting], groups: Groups, spec: dict[str, Any]) -> Figure:
    """
    One panel per metric, one line per setting: a pale dot for every seed, a mark for their mean, and a whisker for the
    95 % interval of the difference to the first setting, over seeds and test images. The mark says what the interval
    does: better, worse, or undecided. With `step_times`, a model of the benchmark that measures them side by side, a
    last panel has the time of a training step over that of plain Trainer.
    """
    others = sorted(rows[1:], key=_is_ours)
    lines = [*others[::-1], rows[0]]
    timed = spec.get("step_times", "")
    costs = {row.label: found for row in rows if (found := step_times(timed, row.label))}
    count = len(spec["metrics"]) + bool(costs)
    size = (1.5 + 1.75 * count, 1.35 + 0.25 * len(rows))
    figure = Figure(figsize=size, dpi=DPI, layout="constrained", facecolor="white")
    panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    drawn = set()
    for axes, metric in zip(panels, spec["metrics"], strict=False):
        for place, row in enumerate(lines):
            drawn.add(_draw_method(axes, place, row, rows[0], groups, metric))
        base = estimated(groups, rows[0], metric)
        if base is not None:
            axes.axvline(base.mean, color=INK, linewidth=0.9, linestyle=DASHES, zorder=1)
        better = {True: "lower is better", False: "higher is better", None: ""}[METRICS[metric].lower_is_better]
        _tidy(axes, f"{PANELS.get(metric, METRICS[metric].title)}\n{better}")
    for place, row in enumerate(lines if costs else []):
        if row.label in costs:
            value, low, high = costs[row.label]
            panels[-1].plot((low, high), [place] * 2, color=INK, linewidth=1.2)
            panels[-1].plot(value, place, "o", color=INK, markersize=5.5)
    if costs:
        panels[-1].axvline(1, color=INK, linewidth=0.9, linestyle=DASHES, zorder=1)
        batch = timed.rpartition(", ")[2]  # the network is that of the other panels
        _tidy(panels[-1], f"Time of a step,\nover plain Trainer\n({batch})")
    for axes in panels:
        for place in range(0, len(lines), 2):
            axes.axhspan(place - 0.5, place + 0.5, color=BAND, zorder=0, linewidth=0)
        axes.set_ylim(-0.5, len(lines) - 0.5)
    names = [textwrap.fill(name_of(row.label), 28) for row in lines]
    panels[0].set_yticks(range(len(lines)), names, fontsize=9, linespacing=1.0)
    for label, row in zip(panels[0].get_yticklabels(), lines, strict=True):
        label.set(fontweight="bold" if _is_ours(row) else "normal", color=INK)
    _explain(figure, name_of(rows[0].label), drawn)
    return figure


def _draw_method(axes: Axes, place: int, row: Setting, first: Setting, groups: Groups, metric: str) -> str | None:
    """Returns the verdict that the mark shows."""
    values = list(measured(groups, row, metric).values())
    if not values:
        return None
    verdict = "reference"
    if row != first:
        found = difference(groups, row, first, metric)
        verdict = "one seed" if found is None or found.n < 2 else found.verdict.replace("equal", "undecided")
    style = VERDICTS[verdict]
    if verdict in ("better", "worse", "undecided"):
        ends = fmean(values) - found.value + found.low, fmean(values) - found.value + found.high
        axes.plot(ends, [place] * 2, color=style["color"], linewidth=1.6, solid_capstyle="butt", zorder=3)
    if len(values) > 1:
        axes.plot(values, [place] * len(values), "|", color=style["color"], alpha=0.45, markersize=6, zorder=2)
    axes.plot(fmean(values), place, **MARK | style, zorder=4)
    return verdict


def _explain(figure: Figure, first: str, drawn: set[str | None]) -> None:
    """The legend, in words, of the marks that were drawn."""
    names = {"better": f"better than {first}", "worse": "worse", "undecided": "may be chance", "one seed": "one seed"}
    shown = {verdict: name for verdict, name in names.items() if verdict in drawn}
    handles = [Line2D([], [], **MARK | VERDICTS[verdict], label=name) for verdict, name in shown.items()]
    handles.append(Line2D([], [], color=INK, linewidth=1.6, label="95 % interval of the difference"))
    handles.append(Line2D([], [], color=INK, marker="|", linestyle="none", alpha=0.45, label="seeds"))
    columns = 6 if figure.get_figwidth() > 8 else 3  # as many as fit
    options = {"frameon": False, "fontsize": 8.5, "columnspacing": 1.2}
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **options)


def _is_ours(row: Setting) -> bool:
    return row.method.startswith("macs") or row.method in ("consistency_only", "recommended")


def _tidy(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9.5, color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(labelsize=8.5, colors="#444444", length=3)
    axes.tick_params(axis="y", length=0)
