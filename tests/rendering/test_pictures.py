"""Pictures show the numbers of the report, without a display."""

import io
import itertools
import sys
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.metrics import confusion_matrix, group_measures, risk_coverage, wilson
from macs_hf.rendering import (
    pictures,
    plot_confusion,
    plot_corruption_heat_map,
    plot_gallery,
    plot_groups,
    plot_reliability,
    plot_risk_coverage,
    plot_severity_curves,
)
from macs_hf.rendering.pictures import OVERCONFIDENT, UNDERCONFIDENT, picture, png, short
from macs_hf.report.report import (
    Cell,
    CorruptionTable,
    EvaluationReport,
    Interval,
    Measurement,
    ReliabilityTable,
    Temperature,
)
from macs_hf.report.rows import SampleRows


# ---- Reliability, risk and coverage ----


BINS = ReliabilityTable(
    (0.0, 0.25, 0.5, 0.75), (0.25, 0.5, 0.75, 1.0), (0, 10, 30, 60), (0.0, 0.4, 0.6, 0.9), (0.0, 0.5, 0.5, 0.8)
)
ENDS = {"accuracy": (0.7, 0.6, 0.8), "nll": (0.9, 0.8, 1.0), "ece": (0.0513, 0.0443, 0.0576), "brier": (0.4, 0.3, 0.5)}
BEFORE = Measurement({name: Interval(*ends) for name, ends in ENDS.items()}, 0.0049, BINS)
REPORT = EvaluationReport("someone/model", "cifar10", "test", 100, BEFORE, BEFORE, Temperature(2.386))


def bars(axes: Axes) -> list[tuple[float, float, float, str]]:
    patches = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(p.get_x(), p.get_y(), p.get_height(), to_hex(p.get_facecolor())) for p in patches]


def test_bars_and_texts_are_those_of_the_report() -> None:
    figure = plot_reliability(REPORT)
    before, after, histogram, _ = figure.axes
    assert "5.13 % (4.43 to 5.76), by chance 0.49 %" in before.get_title() and "2.39" in after.get_title()
    shown = bars(before)  # the empty bin is left out
    assert [bar[:3] for bar in shown[:3]] == [(0.25, 0.0, 0.4), (0.5, 0.0, 0.5), (0.75, 0.0, 0.8)]
    np.testing.assert_allclose([bar[1:3] for bar in shown[3:]], [(0.4, 0.1), (0.5, 0.1), (0.8, 0.1)])
    assert [bar[3] for bar in shown[3:]] == [UNDERCONFIDENT, OVERCONFIDENT, OVERCONFIDENT]
    np.testing.assert_allclose([bar[2] for bar in bars(histogram)], [0, 0.1, 0.3, 0.6])
    ends = [segment[:, 1] for segment in before.collections[0].get_segments()]
    np.testing.assert_allclose(ends, [wilson(5, 10), wilson(15, 30), wilson(48, 60)])
    assert ["70.0 %" in histogram.texts[0].get_text(), "76.0 %" in histogram.texts[1].get_text()] == [True, True]


def test_axes_and_headings_say_no_more_than_is_known() -> None:
    report = replace(ranked(), model="/home/someone/runs/best", dataset="/home/someone/pictures")
    for plot in (plot_reliability, plot_risk_coverage):
        assert plot(report).get_suptitle() == "best\npictures, test (n = 100)"


def test_without_temperature_there_is_one_column() -> None:
    assert len(plot_reliability(replace(REPORT, after=None, temperature=None)).axes) == 2
    assert len(plot_reliability(replace(REPORT, temperature=Temperature(1.0, "too few samples"))).axes) == 2


def test_png_without_global_state() -> None:
    loaded, figure = "matplotlib.pyplot" in sys.modules, plot_reliability(REPORT)
    image = matplotlib.image.imread(io.BytesIO(png(figure)))
    assert figure._repr_png_() == png(figure)  # what a notebook shows
    assert image.shape[0] > 600 and image.shape[1] == round((4.2 * 2 + 0.6) * 160) and image.std() > 0.05
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def ranked(n: int = 400) -> EvaluationReport:
    """Right with the probability it claims: 70 % on the whole."""
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 0.9, n)
    logits = np.stack([np.log(confidence), np.log(1 - confidence)], axis=1)
    labels = (rng.random(n) > confidence).astype(np.int64)
    found = risk_coverage(SampleRows.from_logits(torch.tensor(logits), torch.tensor(labels)))
    return replace(REPORT, risk_coverage=found)


def test_risk_and_coverage_are_those_of_the_report() -> None:
    report = ranked()
    found = report.risk_coverage
    figure = plot_risk_coverage(report)
    (axes,) = figure.axes
    curve, ideal = axes.lines[:2]
    np.testing.assert_allclose(curve.get_xydata(), np.stack([found.coverage, found.risk], axis=1))
    # Of the report's accuracy, 70 %: no error up to that coverage, and all of them at the end.
    x, y = ideal.get_xydata().T
    assert (y[x <= 0.7] == 0).all() and y[-1] == pytest.approx(0.3)
    best = found.aurc.value - found.excess_aurc.value
    assert axes.get_title().startswith(f"AURC {found.aurc.value:.4f} (") and axes.get_title().endswith(f"{best:.4f}")
    points = dict(zip(axes.lines[2].get_ydata(), axes.lines[2].get_xdata(), strict=True))
    ends = [segment[:, 0] for part in axes.collections for segment in part.get_segments()]
    assert ends == [pytest.approx((x.low, x.high)) for x in found.coverage_at_risk.values() if 0 < x.value < 1]
    shares = {float(name.removesuffix("%")) / 100: share.value for name, share in found.coverage_at_risk.items()}
    assert points == {risk: share for risk, share in shares.items() if 0 < share < 1}
    with pytest.raises(ValueError, match="has no risk_coverage"):
        plot_risk_coverage(REPORT)


def test_long_names_are_shortened_in_the_middle_and_long_lines_broken() -> None:
    assert short("class number 17", 15) == "class number 17"
    assert short("a class with the number 17", 15) == "a class…mber 17"
    figure = picture(3, 2, f"{'x' * 100}\nmany words that do not fit into one line of a heading\n\n")
    first, *others = figure.get_suptitle().split("\n")
    assert len(first) == 33 and "…" in first and len(others) == 2
    assert picture(3, 2).get_suptitle() == ""


# ---- Corruptions ----


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
    assert figure.get_suptitle().startswith("a model\n") and len(axes.get_yticklabels()) == len(CORRUPTIONS)
    figure = plot_corruption_heat_map(replace(table(0.9), n=171, design="spread"))
    assert "(n = 9)" in figure.axes[0].get_yticklabels()[0].get_text()


def test_severity_curves() -> None:
    accuracy, ece = plot_severity_curves(table(0.9, temperature=1.5)).axes
    assert list(accuracy.lines[0].get_xdata()) == [0, 1, 2, 3, 4, 5]
    assert accuracy.lines[0].get_ydata()[5] == pytest.approx(0.85)
    assert [line.get_ydata()[5] for line in ece.lines] == pytest.approx([0.1, 5 / 90])
    for unchanged in (None, 1.0):
        assert len(plot_severity_curves(table(0.9, temperature=unchanged)).axes[1].lines) == 1
    whole = table(0.9)  # the mean is over the standard 15, or over what there is
    extra = {s: replace(cell, accuracy=0.0) for s, cell in whole.cells["saturate"].items()}
    for cells, expected in (
        (whole.cells | {"saturate": extra}, 0.85),
        ({"fog": whole.cells["fog"], "saturate": extra}, 0.425),
    ):
        found = plot_severity_curves(replace(whole, cells=cells)).axes[0].lines[0].get_ydata()[5]
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(("temperature", "expected"), [(None, 0.05), (2.0, 0.1)])
def test_the_noise_floor_is_that_of_the_curve_that_is_published(temperature: float | None, expected: float) -> None:
    whole = table(0.9, temperature=temperature)

    def measured(cell: Cell, severity: int) -> Cell:
        return replace(cell, noise_floor=0.01 * severity, scaled_noise_floor=0.02 * severity)

    cells = {name: {s: measured(cell, s) for s, cell in row.items()} for name, row in whole.cells.items()}
    floor = plot_severity_curves(replace(whole, cells=cells, clean=measured(whole.clean, 0))).axes[1].lines[-1]
    assert floor.get_ydata()[5] == pytest.approx(expected)


# ---- Classes, groups and mistakes ----


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


@pytest.mark.parametrize(("classes", "shown"), [(2, 2), (130, 50)])
def test_groups_worst_first(classes: int, shown: int) -> None:
    table = group_measures(rows_of(classes, 20 * classes), names=names(classes))
    figure = plot_groups(table, "title")
    ticks = [label for label in tick_labels(figure) if label]
    assert len(ticks) == shown and all(len(label) <= 28 + len("  (20)") for label in ticks)
    assert ticks[0].startswith(table.groups[0].name[:9])
    accuracy, gap = (axes.collections[1] for axes in figure.axes)
    assert list(accuracy.get_offsets().data[:, 0]) == pytest.approx(
        [group.accuracy.value for group in table.groups[:shown]]
    )
    filled = [not np.allclose(colour, 1) for colour in accuracy.get_facecolors()]
    assert filled == [group.significant for group in table.groups[:shown]]
    assert list(gap.get_offsets().data[:, 0]) == pytest.approx([group.gap.value for group in table.groups[:shown]])
    assert f"Classes, {'worst first' if shown == classes else 'the worst 50 of 130'}" in figure._suptitle.get_text()


@pytest.mark.parametrize(("classes", "written"), [(10, True), (40, False)])
def test_confusion_as_shares_of_the_true_class(classes: int, written: bool) -> None:
    matrix = confusion_matrix(rows_of(classes, 20 * classes), classes, names(classes))
    figure, counts = plot_confusion(matrix, "title"), matrix.to_array()
    axes = figure.axes[0]
    assert len(axes.get_xticklabels()) == classes and figure.get_size_inches()[0] * 160 < 2900
    np.testing.assert_allclose(axes.images[0].get_array() / 100, counts / counts.sum(axis=1, keepdims=True))
    assert len(axes.texts) == (np.count_nonzero(counts) if written else 0)


def test_of_many_classes_the_most_confused_are_shown() -> None:
    """Classes 7 and 130 are mixed up most often, though others have as many mistakes."""
    labels = np.repeat(np.arange(150), 10)
    prediction = np.select([labels == 7, labels == 130], [130, 7], labels)
    prediction[labels == 50] = np.arange(60, 70)
    zeros = np.zeros(1500, np.float32)
    rows = SampleRows(labels.astype(np.int32), prediction.astype(np.int32), zeros, zeros, zeros, zeros)
    figure = plot_confusion(confusion_matrix(rows))
    shown = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert len(shown) == 40 and {"7", "130", "50"} <= set(shown)
    assert figure._suptitle.get_text() == "The 40 most confused of 150 classes"
    assert figure.axes[0].images[0].get_array()[shown.index("7"), shown.index("130")] == 100


def test_gallery() -> None:
    images = [Image.new("RGB", (900, 300), "red"), Image.new("L", (8, 8)), *[Image.new("RGB", (8, 9))] * 6]
    figure = plot_gallery(images, [f"image {place}\ncosts 5$ or 6$" for place in range(8)], "title")
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == 8 and len(figure.axes) == 12  # rows of six
    assert shown[0].images[0].get_array().shape[:2] == (85, 256)  # large ones are made smaller
    assert [axes.get_xlabel().split("\n")[0] for axes in shown] == [f"image {place}" for place in range(8)]


def test_captions_of_mistakes_are_not_clipped() -> None:
    zeros = np.full(12, 0.998, np.float32)
    files = np.array([f"IMG_20260314_WWWWWWWWMMMM_{place:04d}.jpeg" for place in range(12)])
    rows = SampleRows(np.arange(12, dtype=np.int32), np.arange(12, dtype=np.int32)[::-1], *[zeros] * 4, name=files)
    captions = [pictures._caption_of_mistake(rows, place, tuple(names(12))) for place in range(12)]
    assert all("predicted " in caption and "true " in caption for caption in captions)
    figure = plot_gallery([Image.new("RGB", (32, 32 + place)) for place in range(12)], captions, "title")
    figure.draw_without_rendering()
    boxes = [axes.xaxis.label.get_window_extent() for axes in figure.axes]
    assert all(figure.bbox.contains(*box.min) and figure.bbox.contains(*box.max) for box in boxes)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
