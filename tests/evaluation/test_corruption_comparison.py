"""Paired comparisons under corruption: closed forms, cancelling, what cannot be compared."""

import math
from dataclasses import replace

import numpy as np
import pytest

from macs_hf.corruptions import SEVERITIES
from macs_hf.evaluation.run_comparison import compare_corruptions
from macs_hf.report.report import Cell, CorruptionTable
from macs_hf.report.rows import CorruptionRows


def table(**hits: str) -> CorruptionTable:
    """One digit per image: at how many severities it was right."""
    n = len(next(iter(hits.values())))
    cells = {name: {s: Cell(n, 0.5, 1.0, 0.1) for s in SEVERITIES} for name in hits}
    digits = np.array([[int(digit) for digit in column] for column in hits.values()], dtype=np.uint8).T
    rows = CorruptionRows(np.arange(n), tuple(hits), digits)
    return CorruptionTable("cifar", "generated", n, cells, seed=0, rows=rows)


def test_the_interval_is_that_of_the_differences_of_images() -> None:
    found = compare_corruptions(table(fog="5310"), table(fog="4311"), [["fog"]])
    differences = [0.2, 0.0, 0.0, -0.2]
    half = 1.96 * math.sqrt(sum(d * d for d in differences) / 3 / 4)
    assert found.difference == pytest.approx(0) and found.verdict == "undecided"
    assert (found.low, found.high) == pytest.approx((-half, half), rel=1e-4)
    assert (found.a, found.b) == pytest.approx((9 / 20, 9 / 20))


def test_what_is_hard_for_both_cancels() -> None:
    good, poor = "5" * 50 + "1" * 50, "4" * 50 + "0" * 50
    found = compare_corruptions(table(fog=good), table(fog=poor), [["fog"]])
    assert (found.low, found.difference, found.high) == pytest.approx((0.2, 0.2, 0.2))
    assert found.verdict == "better"
    assert compare_corruptions(table(fog=poor), table(fog=good), [["fog"]]).verdict == "worse"


def test_a_lower_nll_wins() -> None:
    nll = np.array([[0.5], [1.0], [3.0], [0.25]], dtype=np.float32)
    sure, unsure = (
        replace(one, rows=replace(one.rows, nll=nll + shift, scaled_nll=nll + 2 * shift))
        for one, shift in ((table(fog="5310"), 0.0), (table(fog="4311"), 0.125))
    )
    found = compare_corruptions(sure, unsure, [["fog"]], "nll")
    assert (found.low, found.difference, found.high) == pytest.approx((-0.125, -0.125, -0.125))
    assert (found.a, found.b) == pytest.approx((4.75 / 4, 5.25 / 4))
    assert found.verdict == compare_corruptions(table(fog="55"), table(fog="44"), [["fog"]]).verdict
    assert compare_corruptions(sure, unsure, [["fog"]], "scaled_nll").difference == pytest.approx(-0.25)
    with pytest.raises(ValueError, match="the rows hold no scaled_nll"):
        compare_corruptions(table(fog="55"), table(fog="44"), [["fog"]], "scaled_nll")


def test_groups_count_alike() -> None:
    a, b = table(fog="55", snow="55", contrast="00"), table(fog="00", snow="00", contrast="55")
    assert compare_corruptions(a, b, [["fog", "snow"], ["contrast"]]).difference == pytest.approx(0)
    assert compare_corruptions(a, b, [["fog", "snow", "contrast"]]).difference == pytest.approx(1 / 3)


def test_of_several_runs_the_mean_counts() -> None:
    a, b = [table(fog="5500"), table(fog="0055")], [table(fog="4400"), table(fog="0044")]
    found = compare_corruptions(a, b, [["fog"]])
    assert found.difference == pytest.approx(0.1) and found.verdict == "undecided"  # each run fails on other images
    one = compare_corruptions(a[0], b[0], [["fog"]])
    assert one.low < 0.1 < one.high and one.difference == pytest.approx(0.1)
    with pytest.raises(ValueError, match="at least one table"):
        compare_corruptions(a, [], [["fog"]])


def test_what_cannot_be_compared_is_named() -> None:
    one = table(fog="53")
    for other, message in (
        (replace(one, seed=1), r"differ in seed \(0 and 1\)"),
        (table(fog="531"), r"differ in n \(2 and 3\)"),
        (replace(one, rows=None), "no rows"),
        (replace(one, rows=replace(one.rows, index=np.array([0, 2]))), "other images of the test split"),
    ):
        with pytest.raises(ValueError, match=message):
            compare_corruptions(one, other, [["fog"]])
    assert compare_corruptions(replace(one, size=(64, 64)), one, [["fog"]]).difference == 0  # of an older table
    with pytest.raises(ValueError, match="'gaussian_noise' was not measured"):
        compare_corruptions(one, one)
