"""The reliability diagram shows the numbers of the report."""

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from macs_hf.metrics import risk_coverage, wilson
from macs_hf.plots import alt_texts, plot_reliability, plot_risk_coverage
from macs_hf.plots.style import OVERCONFIDENT, UNDERCONFIDENT, picture, png, short
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from macs_hf.report.rows import SampleRows


METRICS = {
    "accuracy": Interval(0.7, 0.6, 0.8),
    "nll": Interval(0.9, 0.8, 1.0),
    "ece": Interval(0.0513, 0.0443, 0.0576),
    "brier": Interval(0.4, 0.3, 0.5),
}
BINS = ReliabilityTable(
    lower=(0.0, 0.25, 0.5, 0.75),
    upper=(0.25, 0.5, 0.75, 1.0),
    count=(0, 10, 30, 60),
    confidence=(0.0, 0.4, 0.6, 0.9),
    accuracy=(0.0, 0.5, 0.5, 0.8),
)
BEFORE = Measurement(METRICS, 0.0049, BINS)
REPORT = EvaluationReport("someone/model", "cifar10", "test", 100, BEFORE, BEFORE, Temperature(2.386))


def bars(axes: Axes) -> list[tuple[float, float, float, str]]:
    patches = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(p.get_x(), p.get_y(), p.get_height(), to_hex(p.get_facecolor())) for p in patches]


def test_bars_and_texts_are_those_of_the_report() -> None:
    figure = plot_reliability(REPORT)
    before, after, histogram, _ = figure.axes
    title = "Before temperature scaling\nECE 5.13 % (4.43 to 5.76), noise floor 0.49 %"
    assert before.get_title() == title and after.get_title().startswith("After (T = 2.39)")
    assert figure.get_suptitle() == "someone/model\ncifar10, test (n = 100)"
    trained = plot_reliability(replace(REPORT, training_arguments={"method": "macs"}))
    assert trained.get_suptitle().startswith("someone/model, macs\n")
    shown = bars(before)
    assert [bar[:3] for bar in shown[:3]] == [
        (0.25, 0.0, 0.4),
        (0.5, 0.0, 0.5),
        (0.75, 0.0, 0.8),
    ]  # empty bin left out
    np.testing.assert_allclose([bar[1:3] for bar in shown[3:]], [(0.4, 0.1), (0.5, 0.1), (0.8, 0.1)])
    assert [bar[3] for bar in shown[3:]] == [UNDERCONFIDENT, OVERCONFIDENT, OVERCONFIDENT]
    np.testing.assert_allclose([bar[2] for bar in bars(histogram)], [0, 0.1, 0.3, 0.6])
    ends = [segment[:, 1] for segment in before.collections[0].get_segments()]
    np.testing.assert_allclose(ends, [wilson(5, 10), wilson(15, 30), wilson(48, 60)])
    assert [text.get_text() for text in histogram.texts] == [
        "accuracy 70.0 % (line)",
        "mean confidence 76.0 % (dashed)",
    ]


def test_the_histogram_is_as_high_as_its_data_and_its_labels_are_outside() -> None:
    figure = plot_reliability(REPORT)
    *_, histogram, other = figure.axes
    assert histogram.get_ylim() == other.get_ylim() == pytest.approx((0, 1.12 * 0.6))
    figure.draw_without_rendering()
    for axes in (histogram, other):
        inside = axes.get_window_extent()
        assert all(not text.get_window_extent().overlaps(inside) for text in axes.texts)


def test_the_legend_explains_whiskers_and_colours() -> None:
    (legend,) = plot_reliability(REPORT).legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown[0] == "Accuracy of a bin, with its 95 % interval"
    assert {"Overconfident by", "Underconfident by", "Accuracy equals confidence"} < set(shown)


def test_pictures_name_no_folders_of_the_machine() -> None:
    report = replace(ranked(), model="/home/someone/runs/best", dataset="/home/someone/pictures")
    for plot in (plot_reliability, plot_risk_coverage):
        assert plot(report).get_suptitle() == "best\npictures, test (n = 100)"


def test_without_temperature_there_is_one_column() -> None:
    assert len(plot_reliability(replace(REPORT, after=None, temperature=None)).axes) == 2
    stayed = replace(REPORT, temperature=Temperature(1.0, "too few samples"))
    assert len(plot_reliability(stayed).axes) == 2 and "before" not in alt_texts(stayed)["reliability.png"]
    assert alt_texts(REPORT)["reliability.png"].count("ECE 5.1 %") == 2


@pytest.mark.parametrize("report", [REPORT, replace(REPORT, after=None)])
def test_png_without_global_state(report: EvaluationReport, tmp_path: Path) -> None:
    loaded = "matplotlib.pyplot" in sys.modules
    figure = plot_reliability(report)
    (tmp_path / "reliability.png").write_bytes(png(figure))
    image = matplotlib.image.imread(tmp_path / "reliability.png")
    assert figure._repr_png_() == png(figure)  # what a notebook shows
    assert image.shape[0] > 600 and image.shape[1] == round((4.2 * (1 + (report.after is not None)) + 0.6) * 160)
    assert (image[0, 0, :3] == 1).all() and image.std() > 0.05
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
    points = {round(line.get_ydata()[0], 2): line.get_xdata()[0] for line in axes.lines[2:]}
    ends = [segment[:, 0] for part in axes.collections for segment in part.get_segments()]
    assert ends == [pytest.approx((x.low, x.high)) for x in found.coverage_at_risk.values() if 0 < x.value < 1]
    assert points == {
        float(name.removesuffix("%")) / 100: share.value
        for name, share in found.coverage_at_risk.items()
        if 0 < share.value < 1
    }
    with pytest.raises(ValueError, match="has no risk_coverage"):
        plot_risk_coverage(REPORT)
    perfect = replace(REPORT, risk_coverage=replace(found, risk=(0.0,) * len(found.risk)))
    assert plot_risk_coverage(perfect).axes[0].get_title() == f"None of {REPORT.n:,} answers was wrong"


def test_long_names_are_shortened_in_the_middle_and_long_lines_broken() -> None:
    assert short("class number 17", 15) == "class number 17"
    assert short("a class with the number 17", 15) == "a class…mber 17"
    figure = picture(3, 2, f"{'x' * 100}\nmany words that do not fit into one line of a heading\n\n")
    first, *others = figure.get_suptitle().split("\n")
    assert len(first) == 33 and "…" in first and len(others) == 2
    assert picture(3, 2).get_suptitle() == ""


def test_shares_on_axes_have_no_digits_that_mean_nothing() -> None:
    axes = plot_risk_coverage(ranked()).axes[0]
    shown = axes.yaxis.get_major_formatter()
    assert [shown(share) for share in (0, 0.025, 0.05, 1)] == [f"{x}\u202f%" for x in ("0", "2.5", "5", "100")]
