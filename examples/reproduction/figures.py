"""The paper's figures from our runs: method profiles, dumbbell, and bars, with the spread over seeds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from macs_hf.plots.style import COLOURS

from .aggregate import estimated, of_table
from .grid import Grid, Setting, settings_of
from .method_figure import plot_methods
from .quantities import METRICS, Run


Groups = dict[Setting, list[Run]]
INK, PALE = "#222222", "#b8b8b8"


def draw(grid: Grid, groups: Groups, folder: Path) -> list[Path]:
    """Every figure of the grid for which there are runs, as PNG."""
    written = []
    for name, spec in grid.figures.items():
        metrics = spec.get("metrics") or [spec["metric"]]
        own = of_table(grid, spec["table"], groups)
        rows = [row for row in settings_of(grid, spec["table"]) if any(estimated(own, row, m) for m in metrics)]
        if rows:
            path = folder / f"{name}.png"
            KINDS[spec["kind"]](rows, own, spec).savefig(path, format="png")
            written.append(path)
    return written


def plot_profiles(rows: list[Setting], groups: Groups, spec: dict[str, Any]) -> Figure:
    """One panel per dataset, one line per model, the methods along the axis."""
    datasets, methods, models = _unique(rows, 0), list(dict.fromkeys(row.label for row in rows)), _unique(rows, 1)
    figure, panels = _panels(len(datasets), 3.4, 2.9)
    for axes, dataset in zip(panels, datasets, strict=True):
        for colour, model in zip(_colours(len(models)), models, strict=True):
            own = {row.label: row for row in rows if row[:2] == (dataset, model)}
            found = [(methods.index(label), estimated(groups, row, spec["metric"])) for label, row in own.items()]
            found.sort(key=lambda point: point[0])
            if found:
                places, values = zip(*found, strict=True)
                spread = [value.std or 0.0 for value in values]
                means = [value.mean for value in values]
                axes.errorbar(
                    places,
                    means,
                    spread,
                    color=colour,
                    marker="o",
                    markersize=4,
                    capsize=2,
                    linewidth=1.4,
                    label=model,
                )
        axes.set_xticks(range(len(methods)), [_short(method) for method in methods], rotation=30, ha="right")
        _tidy(axes, dataset)
    panels[0].set_ylabel(METRICS[spec["metric"]].title, fontsize=9)
    _legend(figure, panels)
    return figure


def plot_dumbbell(rows: list[Setting], groups: Groups, spec: dict[str, Any]) -> Figure:
    """The baseline and the method of every dataset and model, joined by a line; the arrow is red if it got worse."""
    lower = METRICS[spec["metric"]].lower_is_better
    pairs = []
    for row in rows:
        twin = row._replace(method=spec["baseline"])
        if row.method == spec["method"] and (base := estimated(groups, twin, spec["metric"])):
            changes = "".join(f", {name} {value}" for name, value in row.changes)
            pairs.append((f"{row.dataset}, {row.model}{changes}", base, estimated(groups, row, spec["metric"])))
    figure = Figure(figsize=(6.4, 1.2 + 0.3 * max(len(pairs), 1)), dpi=160, layout="constrained", facecolor="white")
    axes = figure.subplots()
    for place, (_, base, ours) in enumerate(pairs):
        better = (ours.mean < base.mean) == bool(lower)
        axes.plot([base.mean, ours.mean], [place, place], color=COLOURS[2] if better else COLOURS[1], linewidth=2.2)
        for value, colour in ((base, PALE), (ours, COLOURS[0])):
            axes.errorbar(value.mean, place, xerr=value.std or 0.0, color=INK, linewidth=0.7, capsize=2, zorder=3)
            axes.plot(value.mean, place, "o", color=colour, markersize=6.5, zorder=4)
    axes.set_yticks(range(len(pairs)), [name for name, _, _ in pairs])
    axes.margins(y=0.5 / max(len(pairs), 1))
    axes.invert_yaxis()
    for label, colour in ((spec["baseline"], PALE), (spec["method"], COLOURS[0])):
        axes.plot([], [], "o", color=colour, label=label)
    _tidy(axes, METRICS[spec["metric"]].title, grid="x")
    _legend(figure, [axes])
    return figure


def plot_bars(rows: list[Setting], groups: Groups, spec: dict[str, Any]) -> Figure:
    """One panel per dataset and model, one bar per setting, with the sample standard deviation over seeds."""
    pairs = list(dict.fromkeys(row[:2] for row in rows))
    most = max(sum(row[:2] == pair for row in rows) for pair in pairs)
    figure, panels = _panels(len(pairs), max(2.8, 0.9 + 0.55 * most), 3.2)
    spec_metric = METRICS[spec["metric"]]
    for axes, pair in zip(panels, pairs, strict=True):
        own = [row for row in rows if row[:2] == pair]
        found = [estimated(groups, row, spec["metric"]) for row in own]
        means, spread = [value.mean for value in found], [value.std or 0.0 for value in found]
        colours = [COLOURS[0] if row.method.startswith("macs") else PALE for row in own]
        axes.bar(range(len(own)), means, yerr=spread, color=colours, ecolor=INK, capsize=3, width=0.72, zorder=2)
        for place, (mean, std) in enumerate(zip(means, spread, strict=True)):
            text = f"{mean:.{min(spec_metric.decimals, 2)}f}"
            axes.annotate(
                text, (place, mean + std), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=7.5
            )
        axes.set_xticks(range(len(own)), [_short(row.label) for row in own], rotation=30, ha="right")
        axes.margins(y=0.12)
        _tidy(axes, ", ".join(pair))
    panels[0].set_ylabel(spec_metric.title, fontsize=9)
    return figure


KINDS: dict[str, Callable[[list[Setting], Groups, dict[str, Any]], Figure]] = {
    "profiles": plot_profiles,
    "dumbbell": plot_dumbbell,
    "bars": plot_bars,
    "methods": plot_methods,
}


def _panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    lines = -(-count // columns)
    size = (width * columns, height * lines + 0.4)
    figure = Figure(figsize=size, dpi=160, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, squeeze=False).flatten().tolist()
    for spare in panels[count:]:
        spare.set_axis_off()
    return figure, panels[:count]


def _tidy(axes: Axes, title: str, grid: str = "y") -> None:
    axes.set_title(title, fontsize=9.5, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e5e5e5", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors="#444444", length=3)


def _legend(figure: Figure, panels: list[Axes]) -> None:
    handles = {}
    for axes in panels:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=min(len(handles), 4), frameon=False, fontsize=8
    )


def _colours(count: int) -> list[Any]:
    """As many colours as are asked for, distinct by hue first and lightness after that."""
    return [(*COLOURS, *("#17becf", "#7f5539", "#bcbd22"))[i % 9] for i in range(count)]


def _unique(rows: list[Setting], axis: int) -> list[str]:
    return list(dict.fromkeys(row[axis] for row in rows))


def _short(label: str) -> str:
    names = {"label_smoothing": "label smooth.", "perturb_augment": "T as augm.", "consistency_only": "consistency"}
    method, *changes = label.split(", ")
    return "\n".join([names.get(method, method.replace("_", " ")), *(change.split("=")[-1] for change in changes)])
