"""Figures hold what they say; they are drawn without a display."""

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


def test_heat_map() -> None:
    figure = plot_corruption_heat_map(table(0.9), title="a model")
    (axes,) = figure.axes
    assert axes.get_title() == "Accuracy, %" and axes.images[0].get_array()[3, 4] == pytest.approx(85)
    assert figure.get_suptitle().startswith("a model\n9 images, cifar parameters")
    assert "frost approximate" in figure.get_suptitle()


def test_heat_map_of_a_spread_table_has_the_images_of_each_row() -> None:
    whole = table(0.9)
    spread = replace(whole, n=171, design="spread")
    figure = plot_corruption_heat_map(spread)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "gaussian noise (n = 9)"
    assert "171 images, cifar parameters, each image under one corruption" in figure.get_suptitle().replace("\n", " ")
    assert plot_corruption_heat_map(whole).axes[0].get_yticklabels()[0].get_text() == "gaussian noise"


def test_severity_curves() -> None:
    accuracy, ece = plot_severity_curves(table(0.9, temperature=1.5)).axes
    assert list(accuracy.lines[0].get_xdata()) == [0, 1, 2, 3, 4, 5]
    assert accuracy.lines[0].get_ydata()[5] == pytest.approx(0.85)
    assert accuracy.get_title() == "Accuracy, mean of the standard 15"
    assert [line.get_label() for line in ece.lines] == ["Without temperature", "T = 1.5"]
    assert [line.get_ydata()[5] for line in ece.lines] == pytest.approx([0.1, 5 / 90])
    for unchanged in (None, 1.0):
        _, ece = plot_severity_curves(table(0.9, temperature=unchanged)).axes
        assert [line.get_label() for line in ece.lines] == ["As evaluated"]


def test_severity_curves_average_what_their_title_says() -> None:
    whole = table(0.9)
    extra = {s: replace(cell, accuracy=0.0) for s, cell in whole.cells["saturate"].items()}
    figure = plot_severity_curves(replace(whole, cells=whole.cells | {"saturate": extra}))
    assert figure.axes[0].lines[0].get_ydata()[5] == pytest.approx(0.85)
    some = replace(whole, cells={"fog": whole.cells["fog"], "saturate": extra})
    figure = plot_severity_curves(some)
    assert figure.axes[0].get_title() == "Accuracy, mean of 2"
    assert figure.axes[0].lines[0].get_ydata()[5] == pytest.approx(0.425)


@pytest.mark.parametrize(("temperature", "expected"), [(None, 0.05), (2.0, 0.1)])
def test_the_noise_floor_is_that_of_the_curve_that_is_published(temperature: float | None, expected: float) -> None:
    whole = table(0.9, temperature=temperature)

    def measured(cell: Cell, severity: int) -> Cell:
        return replace(cell, noise_floor=0.01 * severity, scaled_noise_floor=0.02 * severity)

    cells = {name: {s: measured(cell, s) for s, cell in row.items()} for name, row in whole.cells.items()}
    floor = plot_severity_curves(replace(whole, cells=cells, clean=measured(whole.clean, 0))).axes[1].lines[-1]
    assert floor.get_label() == "Noise floor" and floor.get_ydata()[5] == pytest.approx(expected)
