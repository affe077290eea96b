"""Figures hold what they say; they are drawn without a display."""

from pathlib import Path

import pytest
import torch
from torchvision.io import decode_image

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.plots.corruptions import plot_contact_sheet, plot_corruption_heat_map, plot_severity_curves
from macs_hf.report.corruption_table import Cell, CorruptionTable


def table(accuracy: float, params: str = "cifar", temperature: float | None = None) -> CorruptionTable:
    cells = {n: {s: Cell(9, accuracy - s / 100, 1.0, s / 50, 1.0, s / 90) for s in SEVERITIES} for n in CORRUPTIONS}
    clean = Cell(9, accuracy, 1.0, 0.01, 1.0, 0.01)
    return CorruptionTable(
        params, "generated", 9, cells, clean, frost="procedural (approximate)", temperature=temperature
    )


def test_contact_sheet(tmp_path: Path) -> None:
    image = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    figure = plot_contact_sheet(image, frost_textures="procedural")
    assert len(figure.axes) == 19 * 6
    labels = [text.get_text() for text in figure.texts]
    assert (
        "jpeg compression" in labels and "frost\n(approximate)" in labels and any("cifar" in label for label in labels)
    )
    figure.savefig(tmp_path / "sheet.png", dpi=40)
    assert decode_image(str(tmp_path / "sheet.png")).float().std() > 10


def test_heat_map_shows_both_and_the_difference() -> None:
    figure = plot_corruption_heat_map(table(0.9), table(0.8), names=("ours", "theirs"))
    ours, theirs, difference = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["ours", "theirs", "ours - theirs, points"]
    assert ours.images[0].get_array()[3, 4] == pytest.approx(85)
    assert theirs.images[0].get_array()[3, 4] == pytest.approx(75)
    assert difference.images[0].get_array()[3, 4] == pytest.approx(10)
    assert "frost approximate" in figure.get_suptitle() and "n = 9" in figure.get_suptitle()
    assert len(plot_corruption_heat_map(table(0.9)).axes) == 1


def test_heat_map_refuses_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="different parameter sets"):
        plot_corruption_heat_map(table(0.9), table(0.8, params="imagenet"))
    part = table(0.8)
    part = CorruptionTable(**vars(part) | {"cells": {"fog": part.cells["fog"]}})
    with pytest.raises(ValueError, match="different corruptions"):
        plot_corruption_heat_map(table(0.9), part)


def test_severity_curves() -> None:
    figure = plot_severity_curves({"a": table(0.9, temperature=1.5), "b": table(0.8)})
    accuracy, ece = figure.axes
    assert [len(axes.lines) for axes in figure.axes] == [2, 3]
    assert list(accuracy.lines[0].get_xdata()) == [0, 1, 2, 3, 4, 5]
    assert accuracy.lines[1].get_ydata()[5] == pytest.approx(75)
    assert ece.lines[0].get_ydata()[5] == pytest.approx(10) and ece.lines[1].get_label() == "a, T = 1.50"
    with pytest.raises(ValueError, match="at least one"):
        plot_severity_curves({})
