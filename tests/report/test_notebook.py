"""What a notebook shows of reports, tables and rows: their numbers, and nothing that is taken for markup."""

import re

import numpy as np
import pytest
import torch
from page_reader import EVIL, HOSTILE

from macs_hf.metrics import compare, group_measures, measure
from macs_hf.report.corruption_names import SEVERITIES
from macs_hf.report.corruption_table import Cell, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.markup import SPACE, text
from macs_hf.report.rows import SampleRows


LOGITS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 3
ROWS = SampleRows.from_logits(LOGITS, LABELS)
TABLE = CorruptionTable(EVIL, EVIL, 60, {"fog": {s: Cell(60, 1 - s / 10, 1.0, 0.1) for s in SEVERITIES}})


def plain(html: str) -> str:
    assert "<script" not in html and "<img" not in html
    return re.sub("<style>.*?</style>|<[^>]*>", "|", html).replace(SPACE, " ")


def test_a_report() -> None:
    classes = group_measures(ROWS, names=HOSTILE)
    report = EvaluationReport("m", "d", EVIL, 60, measure(ROWS), corruptions=TABLE, classes=classes)
    shown = report._repr_html_()
    ece = report.before.metrics["ece"]
    assert f"{100 * ece.value:.1f} % |{100 * ece.low:.1f} % to {100 * ece.high:.1f} %" in plain(shown)
    assert f"{100 * report.before.noise_floor:.1f} %" in plain(shown)
    assert text(EVIL) in shown and all(text(name) in shown for name in HOSTILE)
    assert text(HOSTILE[0]) in classes._repr_html_()


def test_rows() -> None:
    named = SampleRows(**{**vars(ROWS), "name": np.array([f"{place}{EVIL}" for place in range(60)])})
    shown = named._repr_html_()
    assert f"60 samples, accuracy {100 * ROWS.correct.mean():.1f} %" in plain(shown)
    assert text(f"4{EVIL}") in shown and text(f"5{EVIL}") not in shown  # the first five
    assert f"{ROWS.confidence[0]:.4f}" in shown
    frame = named.to_pandas()
    assert list(frame.columns) == ["name", "label", "prediction", "confidence", "nll", "brier", "margin"]
    np.testing.assert_array_equal(frame.confidence, ROWS.confidence)


def test_a_corruption_table() -> None:
    shown = plain(TABLE._repr_html_())
    assert re.sub(r"\|+", "|", shown).endswith("|fog|90.0 %|80.0 %|70.0 %|60.0 %|50.0 %|70.0 %|")


def test_a_comparison_is_a_dictionary_and_a_table() -> None:
    better = SampleRows.from_logits(LOGITS + 3 * torch.eye(3)[LABELS], LABELS)
    found = compare(better, ROWS)
    assert isinstance(found, dict) and found["accuracy"].verdict == "better"
    shown = re.sub(r"\|+", "|", plain(found._repr_html_()))
    accuracy = found["accuracy"]
    row = f"|Accuracy ↑|{100 * accuracy.a:.2f} %|{100 * accuracy.b:.2f} %|{100 * accuracy.difference:+.2f} |"
    assert row in shown and "a is better" in shown
    assert shown.count("|95 %") == 0 and pytest.approx(accuracy.difference) == accuracy.a - accuracy.b
