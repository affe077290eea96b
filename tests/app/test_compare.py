"""Reports and comparisons on the page: names, labels and reasons are shown as they are, never taken for markup."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from page_reader import EVIL, HOSTILE, said

from macs_hf.app.audit import report_page
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


def test_a_report_full_of_markup() -> None:
    given = run("a")
    shown = said(report_page(given.report, notes=[EVIL]))
    for name in HOSTILE:
        assert name in shown
    # Split, reasons of temperature and guarantees, note, copies, groups, unknown images, command, ...
    assert shown.count(EVIL) >= 9
    assert said(notice(EVIL)) == EVIL


def test_a_comparison_full_of_markup() -> None:
    shown = said(comparison_page([run(EVIL), run(HOSTILE[0], 1), run(HOSTILE[2], 2)]))
    assert EVIL in shown and HOSTILE[0] in shown and HOSTILE[2] in shown


def test_the_first_run_is_the_reference() -> None:
    page = comparison_page([run("first"), run("second", 1), run("third", 2)])
    head = re.search(r"<thead>(.*?)</thead>", page)[1]
    assert re.findall(r">(\w+)<", head) == ["first", "second", "third"]
    other = dataclasses.replace(run("other"), rows=SampleRows.from_logits(np.zeros((5, 3)), np.zeros(5, int)))
    with pytest.raises(ValueError, match="labels differ"):
        comparison_page([run("first"), other])
