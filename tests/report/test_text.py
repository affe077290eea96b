"""A report in a terminal and in a notebook: its numbers, and nothing that is taken for markup or obeyed."""

import re
from dataclasses import replace

import pytest
import torch
from page_reader import EVIL, HOSTILE
from publishing.reports import FOUND, REPORT

from macs_hf.cli.output import after_saving, model_of
from macs_hf.metrics import compare, group_measures, measure
from macs_hf.publishing.push import pull_request_refusal
from macs_hf.report.report import Cell, CorruptionTable, EvaluationReport, Interval, SizeTrial, Temperature
from macs_hf.report.rows import SEVERITIES, SampleRows
from macs_hf.report.sections import Table, headline, sections
from macs_hf.report.text import SPACE, html_text, html_words, table_lines


LOGITS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 3
ROWS = SampleRows.from_logits(LOGITS, LABELS)
TABLE = CorruptionTable(EVIL, EVIL, 60, {"fog": {s: Cell(60, 1 - s / 10, 1.0, 0.1) for s in SEVERITIES}})


# ---- Terminal ----


def test_printing_a_report_gives_the_headline_and_a_line_for_each_finding() -> None:
    lines = str(FOUND).splitlines()
    assert lines[0] == "user/base on user/pictures, test (n = 1,000, 32 x 48 pixels)"
    assert lines[1] == f"{headline(FOUND).title}."
    parts = [part for part in sections(FOUND) if part.title != "Risk and coverage"]
    assert lines[2:] == [part.finding for part in parts]
    assert "method macs" in str(replace(FOUND, training_arguments={"method": "macs"})).splitlines()[0]
    assert "\x1b" not in str(replace(FOUND, split="\x1b[2J"))


def test_columns_are_aligned() -> None:
    assert table_lines(Table(("", "a"), [("one", "1.0"), ("eleven", "11.0")])) == [
        "           a",
        "one      1.0",
        "eleven  11.0",
    ]


@pytest.mark.parametrize(
    ("temperature", "calibrated"),
    [
        (REPORT.temperature, True),
        (replace(REPORT.temperature, nll_gain=None), True),
        (replace(REPORT.temperature, nll_gain=Interval(0.001, -0.01, 0.012)), False),
        (replace(REPORT.temperature, nll_gain=Interval(0.1, 0.05, 0.15), ece_rise=Interval(0.0, -0.01, 0.01)), True),
        (replace(REPORT.temperature, nll_gain=Interval(0.1, 0.05, 0.15), ece_rise=Interval(0.08, 0.06, 0.1)), False),
        (Temperature(1.0, "a reason", nll_gain=Interval(0.0, 0.0, 0.0)), False),
    ],
)
def test_a_model_is_called_calibrated_only_if_the_temperature_helped(
    temperature: Temperature, calibrated: bool
) -> None:
    report = replace(REPORT, temperature=temperature)
    assert (model_of(report) == "calibrated model is") == calibrated
    assert ("without the temperature" in str(report)) == (temperature.reason is None)
    assert (pull_request_refusal(report) is None) == calibrated
    harms = temperature.reason is None and not calibrated
    assert ("push it to the Hub" in after_saving(report, "run", pushed=False)) == (not harms)
    assert headline(report).title.endswith("a temperature does not help beyond chance") == harms
    assert ("Not called calibrated" in str(report)) == harms


def test_an_accuracy_at_chance_level_is_said_before_anything_else() -> None:
    chance = FOUND.chance_level
    accuracy = {"accuracy": Interval(chance + 0.02, chance - 0.01, chance + 0.05)}
    parts = {
        name: replace(part, metrics=part.metrics | accuracy)
        for name in ("before", "after")
        if (part := getattr(FOUND, name)) is not None
    }
    report = replace(FOUND, **parts, training_arguments={})
    assert report.above_chance is False and headline(report).trust == "chance"
    first, second, *_ = str(report).splitlines()
    assert "not above chance" in first and f"{100 * chance:.1f} %" in second and "--image_size" in second
    assert str(report).splitlines().index(str(FOUND).splitlines()[0]) == 2
    assert "not above chance" in model_of(report) and "not above chance" in report._repr_html_()
    assert "push it to the Hub" not in after_saving(report, "run", pushed=False)
    sized = replace(report, better_size=SizeTrial(48, 200, 0.8))
    assert "--image_size 48" in headline(sized).confidence and "80.0 %" in headline(sized).confidence
    assert "--image_size" not in headline(replace(report, training_arguments={"seed": 0})).confidence


# ---- Notebook ----


def plain(html: str) -> str:
    assert "<script" not in html and "<img" not in html
    return re.sub(r"\|+", "|", re.sub("<style>.*?</style>|<[^>]*>", "|", html)).replace(SPACE, " ")


def test_a_report() -> None:
    classes = group_measures(ROWS, names=HOSTILE)
    report = EvaluationReport("m", "d", EVIL, 60, measure(ROWS), corruptions=TABLE, classes=classes)
    shown = report._repr_html_()
    ece = report.before.metrics["ece"]
    assert f"|{100 * ece.value:.2f} % [{100 * ece.low:.2f}, {100 * ece.high:.2f}]|" in plain(shown)
    assert f"|{100 * report.before.noise_floor:.2f} %|" in plain(shown)
    assert html_text(EVIL) in shown and all(html_words(name) in shown for name in HOSTILE)


def test_a_comparison_is_a_dictionary_and_a_table() -> None:
    better = SampleRows.from_logits(LOGITS + 3 * torch.eye(3)[LABELS], LABELS)
    found = compare(better, ROWS)
    accuracy = found["accuracy"]
    assert isinstance(found, dict) and accuracy.verdict == "better"
    row = f"|Accuracy ↑|{100 * accuracy.a:.2f} %|{100 * accuracy.b:.2f} %|{100 * accuracy.difference:+.2f}|"
    assert row in plain(found._repr_html_())
