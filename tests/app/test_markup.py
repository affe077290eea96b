"""Names, labels and reasons are shown as they are, wherever they come from, and never taken for markup."""

import dataclasses
import html
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from page_reader import EVIL, HOSTILE, said
from PIL import Image

from macs_hf.app.auditing import Mistake
from macs_hf.app.comparison_markup import comparison_page
from macs_hf.app.curves import severity_curve
from macs_hf.app.markup import notice
from macs_hf.app.report_markup import report_page
from macs_hf.metrics import confusion_matrix, group_measures, measure, risk_coverage
from macs_hf.publishing.report_findings import guarantees
from macs_hf.report.evaluation import EvaluationReport, Temperature
from macs_hf.report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share
from macs_hf.report.interval import Interval
from macs_hf.report.leakage import Copies, Leakage
from macs_hf.report.markup import SPACE, text
from macs_hf.report.rows import SampleRows
from macs_hf.report.run import Run
from macs_hf.report.unknowns import Detection, Unknowns


HALF = Interval(0.5, 0.4, 0.6)


def run(name: str, seed: int = 0) -> Run:
    logits = torch.randn(90, 3, generator=torch.Generator().manual_seed(seed))
    rows = SampleRows.from_logits(logits, torch.arange(90) % 3)
    temperature = Temperature(1.0, EVIL)
    parts = {"classes": group_measures(rows, names=HOSTILE), "confusion": confusion_matrix(rows, names=HOSTILE)}
    parts |= {"risk_coverage": risk_coverage(rows), "guarantees": Guarantees(90, 0, 0, 1.0, True, EVIL)}
    parts |= {"groups": group_measures(rows, [HOSTILE[place % 3] for place in range(90)], column=EVIL)}
    parts |= {"leakage": Leakage({"test": 9, EVIL: 9}, {"test": 9, EVIL: 9}, (Copies("test", EVIL, 1),))}
    parts |= {"unknowns": Unknowns(EVIL, EVIL, 9, 9, 0.5, 0.6, (Detection("energy", HALF, HALF),))}
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
    titles = ("Measured", "Confidence and accuracy", "Risk and coverage", "Classes", "What it promises")
    assert [title in page for title in titles] == [True, True, False, False, False]
    whole = report_page(given.report)
    assert all(title in whole for title in (*titles, "Images of none of its classes"))


def test_promises_and_what_came_true() -> None:
    share = Share(0.93, 0.9, 0.95, 90)
    sets = PredictionSetGuarantee("lac", 0.9, 0.4, 50, share, 1.25, (80, 10))
    answers = (
        AbstentionGuarantee(0.95, 0.05, 50, 0.8, None, share, share),
        AbstentionGuarantee(0.99, 0.05, 50, None, EVIL),
    )
    found = Guarantees(50, 50, 90, 1.0, True, None, (80, 10), (), (sets,), answers)
    shown = said(guarantees(dataclasses.replace(run("a").report, guarantees=found))).replace(SPACE, " ")
    assert "at least 90 %93.0 % 90.0 % to 95.0 %1.25" in shown
    assert "at least 95 %80 % or more93.0 %" in shown
    assert f"At least 99 % right is not promised: {EVIL}." in shown


def test_the_first_run_is_the_reference(tmp_path: Path) -> None:
    page = comparison_page([run("first"), run("second", 1), run("third", 2)])
    head = re.search(r"<thead>(.*?)</thead>", page)[1]
    assert re.findall(r">(\w+)<", head) == ["first", "second", "third"]
    with pytest.raises(ValueError, match="labels differ"):
        other = run("other")
        comparison_page(
            [run("first"), dataclasses.replace(other, rows=SampleRows.from_logits(np.zeros((5, 3)), np.zeros(5, int)))]
        )


def test_the_curve_has_a_point_for_each_severity() -> None:
    drawn = severity_curve([0.9] * 6, [1.0, 0.8, 0.6, 0.5, 0.5, 0.4], [True, True, False, True, True, True], 2, 0.7)
    heights = [float(value) for value in re.findall(r'cy="([\d.]+)"', drawn)]
    assert heights == sorted(heights) and len(heights) == 6
    assert drawn.count("dot other chosen") == 1 and drawn.count("threshold") == 1
