"""Reports and comparisons on the page: names, labels and reasons are shown as they are, never taken for markup."""

import dataclasses
import html
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from page_reader import EVIL, HOSTILE, said
from PIL import Image

from macs_hf.app.audit import Mistake, report_page
from macs_hf.app.compare import comparison_page
from macs_hf.app.jobs import notice
from macs_hf.metrics import confusion_matrix, group_measures, measure, risk_coverage
from macs_hf.report.report import (
    Copies,
    Detection,
    EvaluationReport,
    Guarantees,
    Interval,
    Leakage,
    OutOfDistribution,
    Run,
    Temperature,
)
from macs_hf.report.rows import SampleRows
from macs_hf.report.text import text


HALF = Interval(0.5, 0.4, 0.6)


def run(name: str, seed: int = 0) -> Run:
    logits = torch.randn(90, 3, generator=torch.Generator().manual_seed(seed))
    rows = SampleRows.from_logits(logits, torch.arange(90) % 3)
    temperature = Temperature(1.0, EVIL)
    parts = {"classes": group_measures(rows, names=HOSTILE), "confusion": confusion_matrix(rows, names=HOSTILE)}
    parts |= {"risk_coverage": risk_coverage(rows), "guarantees": Guarantees(90, 0, 0, 1.0, True, EVIL)}
    parts |= {"groups": group_measures(rows, [HOSTILE[place % 3] for place in range(90)], column=EVIL)}
    parts |= {"leakage": Leakage({"test": 9, EVIL: 9}, {"test": 9, EVIL: 9}, (Copies("test", EVIL, 1),))}
    parts |= {"ood": OutOfDistribution(EVIL, EVIL, 9, 9, 0.5, 0.6, (Detection("energy", HALF, HALF),))}
    report = EvaluationReport(EVIL, EVIL, EVIL, 90, measure(rows), measure(rows), temperature, command=EVIL, **parts)
    return Run(name, report, rows)


def test_text_is_shown_as_it_is() -> None:
    assert html.unescape(text(EVIL)) == EVIL
    assert said(notice(EVIL)) == EVIL


def test_a_report_full_of_markup() -> None:
    given = run("a")
    mistakes = [Mistake(Image.new("RGB", (8, 8)), EVIL, HOSTILE[0], 0.9)]
    shown = said(report_page(given.report, mistakes, [EVIL]))
    for name in HOSTILE:
        assert name in shown
    # Split, reasons of temperature and promises, note, copies, groups, unknown images, command, ...
    assert shown.count(EVIL) >= 9


def test_a_comparison_full_of_markup() -> None:
    shown = said(comparison_page([run(EVIL), run(HOSTILE[0], 1), run(HOSTILE[2], 2)]))
    assert EVIL in shown and HOSTILE[0] in shown and HOSTILE[2] in shown


def test_a_report_leaves_out_what_it_lacks() -> None:
    given = run("a")
    page = report_page(EvaluationReport("m", "d", "test", 90, given.report.before))
    assert (
        "What breaks it" not in page and "Mistakes it was sure of" not in page and "with its temperature" not in page
    )
    whole = report_page(given.report)
    titles = set(re.findall(r"<h3>(.*?)</h3>", whole))
    assert len(titles) >= 5 and set(re.findall(r"<h3>(.*?)</h3>", page)) < titles


def test_the_first_run_is_the_reference(tmp_path: Path) -> None:
    page = comparison_page([run("first"), run("second", 1), run("third", 2)])
    head = re.search(r"<thead>(.*?)</thead>", page)[1]
    assert re.findall(r">(\w+)<", head) == ["first", "second", "third"]
    with pytest.raises(ValueError, match="labels differ"):
        other = run("other")
        comparison_page(
            [run("first"), dataclasses.replace(other, rows=SampleRows.from_logits(np.zeros((5, 3)), np.zeros(5, int)))]
        )
