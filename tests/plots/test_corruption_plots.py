"""Figures hold what they say; they are drawn without a display."""

import math
from dataclasses import replace

import pytest

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.plots.corruptions import plot_corruption_heat_map, plot_severity_curves
from macs_hf.report.corruption_table import Cell, CorruptionTable


def table(accuracy: float, params: str = "cifar", temperature: float | None = None) -> CorruptionTable:
    cells = {n: {s: Cell(9, accuracy - s / 100, 1.0, s / 50, 1.0, s / 90) for s in SEVERITIES} for n in CORRUPTIONS}
    clean = Cell(9, accuracy, 1.0, 0.01, 1.0, 0.01)
    return CorruptionTable(
        params, "generated", 9, cells, clean, frost="procedural (approximate)", temperature=temperature
    )


def test_heat_map_shows_both_and_the_difference() -> None:
    figure = plot_corruption_heat_map(table(0.9), table(0.8), names=("ours", "theirs"))
    ours, theirs, difference = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["ours", "theirs", "ours - theirs, points"]
    assert ours.images[0].get_array()[3, 4] == pytest.approx(85)
    assert theirs.images[0].get_array()[3, 4] == pytest.approx(75)
    assert difference.images[0].get_array()[3, 4] == pytest.approx(10)
    assert "frost approximate" in figure.get_suptitle() and figure.get_suptitle().startswith(
        "9 images, cifar parameters"
    )
    assert len(plot_corruption_heat_map(table(0.9)).axes) == 1


def test_heat_map_refuses_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="different parameter sets"):
        plot_corruption_heat_map(table(0.9), table(0.8, params="imagenet"))
    part = table(0.8)
    part = CorruptionTable(**vars(part) | {"cells": {"fog": part.cells["fog"]}})
    with pytest.raises(ValueError, match="different corruptions"):
        plot_corruption_heat_map(table(0.9), part)


def test_heat_map_of_a_spread_table_has_the_images_of_each_row() -> None:
    whole = table(0.9)
    spread = replace(whole, n=171, design="spread")
    figure = plot_corruption_heat_map(spread)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "gaussian noise (n = 9)"
    assert "171 images, cifar parameters, each image under one corruption" in figure.get_suptitle().replace("\n", " ")
    assert plot_corruption_heat_map(whole).axes[0].get_yticklabels()[0].get_text() == "gaussian noise"
    with pytest.raises(ValueError, match="different designs, 'crossed' and 'spread'"):
        plot_corruption_heat_map(whole, spread)


def test_severity_curves() -> None:
    figure = plot_severity_curves({"a": table(0.9, temperature=1.5), "b": table(0.8)})
    accuracy, ece = figure.axes
    assert [len(axes.lines) for axes in figure.axes] == [2, 5]
    assert list(accuracy.lines[0].get_xdata()) == [0, 1, 2, 3, 4, 5]
    assert accuracy.lines[1].get_ydata()[5] == pytest.approx(0.75)
    assert ece.lines[0].get_ydata()[5] == pytest.approx(0.1) and ece.lines[1].get_label() == "a, T = 1.5"
    assert accuracy.get_title() == "Accuracy, mean of the standard 15"
    assert len({(line.get_color(), line.get_marker()) for line in accuracy.lines}) == 2  # not by colour alone
    with pytest.raises(ValueError, match="at least one"):
        plot_severity_curves({})


def test_severity_curves_average_what_their_title_says() -> None:
    whole = table(0.9)
    extra = {s: replace(cell, accuracy=0.0) for s, cell in whole.cells["saturate"].items()}
    figure = plot_severity_curves({"a": replace(whole, cells=whole.cells | {"saturate": extra})})
    assert figure.axes[0].lines[0].get_ydata()[5] == pytest.approx(0.85)
    some = replace(whole, cells={"fog": whole.cells["fog"], "saturate": extra})
    figure = plot_severity_curves({"a": some})
    assert figure.axes[0].get_title() == "Accuracy, mean of 2"
    assert figure.axes[0].lines[0].get_ydata()[5] == pytest.approx(0.425)


def test_the_noise_floor_is_that_of_the_cells_or_approximate() -> None:
    whole = table(0.9, temperature=2.0)
    floor = plot_severity_curves({"a": whole}).axes[1].lines[-1]
    assert floor.get_label() == "Noise floor (approximate)"
    assert floor.get_ydata()[0] == pytest.approx(math.sqrt(2 / math.pi * 0.9 * 0.1 / 9))

    def measured(cell: Cell, severity: int) -> Cell:
        return replace(cell, noise_floor=0.01 * severity, scaled_noise_floor=0.02 * severity)

    cells = {name: {s: measured(cell, s) for s, cell in row.items()} for name, row in whole.cells.items()}
    known = replace(whole, cells=cells, clean=measured(whole.clean, 0))
    for scaled, expected in ((True, 0.1), (False, 0.05)):
        floor = plot_severity_curves({"a": known}, scaled=scaled).axes[1].lines[-1]
        assert floor.get_label() == "Noise floor" and floor.get_ydata()[5] == pytest.approx(expected)
