"""The reliability diagram shows the numbers of the report."""

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from macs_hf.plots import plot_reliability, save_reliability
from macs_hf.plots.reliability import OVERCONFIDENT, UNDERCONFIDENT, _wilson
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature


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
    shown = bars(before)
    assert [bar[:3] for bar in shown[:3]] == [
        (0.25, 0.0, 0.4),
        (0.5, 0.0, 0.5),
        (0.75, 0.0, 0.8),
    ]  # empty bin left out
    np.testing.assert_allclose([bar[1:3] for bar in shown[3:]], [(0.4, 0.1), (0.5, 0.1), (0.8, 0.1)])
    assert [bar[3] for bar in shown[3:]] == [UNDERCONFIDENT, OVERCONFIDENT, OVERCONFIDENT]
    np.testing.assert_allclose([bar[2] for bar in bars(histogram)], [0, 0.1, 0.3, 0.6])
    assert [text.get_text() for text in histogram.texts] == ["accuracy 70.0 %", "mean confidence 76.0 %"]


def test_without_temperature_there_is_one_column() -> None:
    assert len(plot_reliability(replace(REPORT, after=None, temperature=None)).axes) == 2


@pytest.mark.parametrize("report", [REPORT, replace(REPORT, after=None)])
def test_png_without_global_state(report: EvaluationReport, tmp_path: Path) -> None:
    loaded = "matplotlib.pyplot" in sys.modules
    save_reliability(report, tmp_path / "reliability.png")
    image = matplotlib.image.imread(tmp_path / "reliability.png")
    assert image.shape[0] > 600 and image.shape[1] == round((4.2 * (1 + (report.after is not None)) + 0.6) * 160)
    assert (image[0, 0, :3] == 1).all() and image.std() > 0.05
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_wilson_interval() -> None:
    low, high = _wilson(np.array([0.0, 0.5, 1.0]), np.array([10, 10, 10]))
    np.testing.assert_allclose(low, [0, 0.2366, 0.7225], atol=1e-3)
    np.testing.assert_allclose(high, [0.2775, 0.7634, 1], atol=1e-3)
