"""Pictures of classes, groups and mistakes: what they show for few, many and very many of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from macs_hf.metrics import confusion_matrix, group_measures
from macs_hf.plots import plot_confusion, plot_gallery, plot_groups
from macs_hf.report.rows import SampleRows


def rows_of(classes: int, n: int) -> SampleRows:
    """Class k is easier the higher its number, and is taken for the next one."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    logits = torch.randn(n, classes, generator=generator)
    logits[torch.arange(n), labels] += 1 + 4 * labels / classes
    logits[torch.arange(n), (labels + 1) % classes] += 2
    return SampleRows.from_logits(logits, labels)


def names(classes: int) -> list[str]:
    return [f"class ${k}$ of many that have long names" for k in range(classes)]


def tick_labels(figure: Figure) -> list[str]:
    return [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]


@pytest.mark.parametrize(("classes", "shown", "panels"), [(2, 2, 2), (10, 10, 2), (100, 100, 4), (130, 100, 4)])
def test_groups_worst_first(classes: int, shown: int, panels: int, tmp_path: Path) -> None:
    table = group_measures(rows_of(classes, 20 * classes), names=names(classes))
    figure = plot_groups(table, "title")
    figure.savefig(tmp_path / "groups.png")
    assert len(figure.axes) == panels
    ticks = [label for label in tick_labels(figure) if label]
    assert len(ticks) == shown and all(len(label) <= 28 + len("  (20)") for label in ticks)
    assert ticks[0].startswith(table.groups[0].name[:9])
    points = np.concatenate([axes.collections[1].get_offsets().data for axes in figure.axes[::2]])
    assert points[:, 0] == pytest.approx([group.accuracy.value for group in table.groups[:shown]])
    filled = np.concatenate([axes.collections[1].get_facecolors() for axes in figure.axes[::2]])
    assert [not np.allclose(colour, 1) for colour in filled] == [group.significant for group in table.groups[:shown]]
    gaps = np.concatenate([axes.collections[1].get_offsets().data for axes in figure.axes[1::2]])
    assert gaps[:, 0] == pytest.approx([group.gap.value for group in table.groups[:shown]])
    assert f"By label, {'worst first' if shown == classes else 'the worst 100 of 130'}" in figure._suptitle.get_text()


@pytest.mark.parametrize(("classes", "shown", "written"), [(2, 2, True), (10, 10, True), (100, 100, False)])
def test_confusion_as_shares_of_the_true_class(classes: int, shown: int, written: bool, tmp_path: Path) -> None:
    rows = rows_of(classes, 20 * classes)
    matrix = confusion_matrix(rows, classes, names(classes))
    figure = plot_confusion(matrix, "title")
    figure.savefig(tmp_path / "confusion.png")
    axes = figure.axes[0]
    shares = axes.images[0].get_array() / 100
    counts = matrix.to_array()
    assert shares.shape == (shown, shown) and len(axes.get_xticklabels()) == shown
    np.testing.assert_allclose(shares, counts / counts.sum(axis=1, keepdims=True))
    texts = [text.get_text() for text in axes.texts]
    assert len(texts) == (np.count_nonzero(counts) if written else 0)
    assert Image.open(tmp_path / "confusion.png").width <= 2700


def test_of_many_classes_the_most_confused_are_shown() -> None:
    """Classes 7 and 130 are mixed up most often, though others have as many mistakes."""
    labels = np.repeat(np.arange(150), 10)
    prediction = labels.copy()
    prediction[labels == 7] = 130
    prediction[labels == 130] = 7
    scattered = np.flatnonzero(labels == 50)
    prediction[scattered] = np.arange(60, 70)
    zeros = np.zeros(1500, np.float32)
    rows = SampleRows(labels.astype(np.int32), prediction.astype(np.int32), zeros, zeros, zeros, zeros)
    figure = plot_confusion(confusion_matrix(rows))
    shown = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert len(shown) == 40 and {"7", "130", "50"} <= set(shown)
    assert figure._suptitle.get_text() == "The 40 most confused of 150 classes"
    assert figure.axes[0].images[0].get_array()[shown.index("7"), shown.index("130")] == 100


def test_gallery(tmp_path: Path) -> None:
    images = [Image.new("RGB", (900, 300), "red"), Image.new("L", (8, 8)), *[Image.new("RGB", (8, 9))] * 6]
    figure = plot_gallery(images, [f"image {place}\ncosts 5$ or 6$" for place in range(8)], "title")
    figure.savefig(tmp_path / "gallery.png")
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == 8 and len(figure.axes) == 12  # rows of six
    assert shown[0].images[0].get_array().shape[:2] == (85, 256)  # large ones are made smaller
    assert [axes.get_xlabel().split("\n")[0] for axes in shown] == [f"image {place}" for place in range(8)]
    with pytest.raises(ValueError, match="at least one image"):
        plot_gallery([], [])
