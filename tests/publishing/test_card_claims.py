"""What the card may claim: only what was measured beyond chance, and what was promised."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from macs_hf.metrics import wilson
from macs_hf.publishing.card import model_card
from macs_hf.publishing.corruption_shift import harmful_severity
from macs_hf.publishing.guarantees import lowest_class
from macs_hf.report.corruption_table import CORRUPTIONS, SEVERITIES, Cell, CorruptionTable
from macs_hf.report.evaluation import Interval
from macs_hf.report.guarantees import Guarantees, PredictionSetGuarantee, Share

from .reports import REPORT, SETTINGS


@pytest.mark.parametrize(
    ("ece", "floor", "claim"),
    [
        (Interval(0.02, 0.0, 0.03), 0.025, "no miscalibration was detected"),
        (Interval(0.03, 0.0, 0.04), 0.025, "cannot be decided from so few images"),
        (Interval(0.08, 0.07, 0.09), 0.025, "the error is larger than chance explains"),
    ],
)
def test_what_the_noise_floor_says(ece: Interval, floor: float, claim: str) -> None:
    part = replace(REPORT.after, metrics=REPORT.after.metrics | {"ece": ece}, noise_floor=floor)
    assert claim in model_card(replace(REPORT, after=part), SETTINGS).text


@pytest.mark.parametrize(
    ("gain", "titles", "sentence"),
    [
        (
            Interval(0.1, 0.08, 0.12),
            "| before calibration | as published |",
            "lowered the NLL of the test images by 0.1",
        ),
        (
            Interval(0.0003, 0.0001, 0.0006),
            "| before calibration | as published |",
            "by 0.0003 [0.0001, 0.0006].",
        ),
        (Interval(0.1, -0.01, 0.2), "| without temperature | with temperature, as published |", "**It did not lower"),
        (Interval(0.0, 0.0, 0.0), "| without temperature | with temperature, as published |", "**It did not lower"),
        (
            Interval(-0.1, -0.2, -0.01),
            "| without temperature | with temperature, as published |",
            "**It raised the NLL",
        ),
    ],
)
def test_calibrated_is_said_only_where_the_temperature_helped(gain: Interval, titles: str, sentence: str) -> None:
    text = model_card(replace(REPORT, temperature=replace(REPORT.temperature, nll_gain=gain)), SETTINGS).text
    assert titles in text and sentence in text
    assert ("return calibrated" in text) == (gain.low > 0)
    assert ("probabilities are not\ncalled calibrated" in text) == (gain.low <= 0)


@pytest.mark.parametrize(("shift", "warned"), [(0.0099, False), (0.01, True), (None, False)])
def test_an_uncertain_temperature_is_called_so(shift: float | None, warned: bool) -> None:
    temperature = replace(REPORT.temperature, confidence_shift=shift)
    text = model_card(replace(REPORT, temperature=temperature), SETTINGS).text
    assert "1.5000 ± 0.0600 (standard error), was fitted on 200 images" in text
    assert ("**The temperature is uncertain**" in text) == warned


@pytest.mark.parametrize(
    ("gap", "claim"),
    [
        (
            Interval(0.052, 0.041, 0.063),
            "overconfident: its mean confidence is 5.2 points above its accuracy [4.1, 6.3]",
        ),
        (
            Interval(-0.052, -0.063, -0.041),
            "underconfident: its mean confidence is 5.2 points below its accuracy [4.1, 6.3]",
        ),
        (Interval(0.01, -0.02, 0.04), "neither over- nor underconfident beyond chance"),
    ],
)
def test_the_sign_of_the_gap_says_whether_confidence_is_too_high(gap: Interval, claim: str) -> None:
    table = replace(REPORT.corruptions, confidence_gap=REPORT.corruptions.confidence_gap | {"mean15": gap})
    assert f"Under corruption (mean of the standard 15) the model is {claim}" in card_of(table)
    # Nothing is said without a measured sign, as of older reports.
    silent = card_of(replace(table, confidence_gap=None))
    assert "overconfident" not in silent and "underconfident" not in silent and "usually too high" not in silent


def card_of(table: CorruptionTable) -> str:
    return model_card(replace(REPORT, corruptions=table), SETTINGS).text


def harmed(by_severity: dict[int, float], spread: float = 0.0) -> CorruptionTable:
    """With an ECE of 40 % without temperature, and with it of so much more."""
    cells = {
        name: {s: Cell(500, 0.6, 1.0, 0.4, 0.9, 0.4 + harm + spread * (-1) ** i) for s, harm in by_severity.items()}
        for i, name in enumerate(CORRUPTIONS)
    }
    return replace(REPORT.corruptions, cells=cells, design="spread")


@pytest.mark.parametrize(
    ("harm", "severity"),
    [
        ((-0.05, -0.02, 0.01, 0.02, 0.03), 3),
        ((0.01, 0.01, 0.01, 0.01, 0.01), 1),
        ((0.01, -0.01, 0.01, -0.01, 0.02), 5),
        ((0.02, 0.02, 0.02, 0.02, -0.01), None),  # helps where it is worst
        ((0.0, 0.0, 0.0, 0.0, 0.0), None),
    ],
)
def test_the_severity_from_which_on_the_temperature_does_harm(harm: tuple[float, ...], severity: int | None) -> None:
    table = harmed(dict(zip(SEVERITIES, harm, strict=True)))
    assert harmful_severity(table) == severity
    text = card_of(table)
    assert ("the temperature does harm" in text) == (severity is not None)
    if severity == 3:
        assert "From severity 3 on the temperature does harm: at severity 3 the mean ECE is 41.0 % with it" in text
        assert "and 40.0 % without." in text
    # A harm that differs in sign from corruption to corruption is chance.
    assert harmful_severity(harmed(dict(zip(SEVERITIES, harm, strict=True)), spread=0.2)) is None


@pytest.mark.parametrize(("floor", "severity"), [(0.005, 1), (0.015, 4), (0.05, None), (None, None)])
def test_where_corruptions_share_their_images_a_harm_below_the_noise_is_chance(
    floor: float | None, severity: int | None
) -> None:
    table = harmed(dict(zip(SEVERITIES, (0.01, 0.01, 0.01, 0.02, 0.03), strict=True)))
    assert harmful_severity(table) == 1  # each corruption has images of its own
    cells = {
        name: {s: replace(c, scaled_noise_floor=floor) for s, c in row.items()} for name, row in table.cells.items()
    }
    assert harmful_severity(replace(table, cells=cells, design="crossed")) == severity


def test_calibration_under_corruption_is_compared_with_the_same_images_and_its_noise() -> None:
    cell = Cell(500, 0.5, 1.0, 0.1, 0.9, 0.06, 0.03, 0.02)
    cells = {name: dict.fromkeys(SEVERITIES, cell) for name in CORRUPTIONS}
    clean = Cell(500, 0.85, 0.5, 0.08, 0.45, 0.03, 0.02, 0.011)
    text = card_of(replace(REPORT.corruptions, cells=cells, clean=clean))
    assert "The mean ECE is 6.0 % (noise floor 2.0 %), that of the same images" in text
    assert "without corruption 3.0 % (noise floor 1.1 %)." in text


def test_approximate_promises_are_called_so() -> None:
    exact = model_card(replace(REPORT, guarantees=replace(REPORT.guarantees, exact=True)), SETTINGS).text
    assert "that were used for nothing else." in exact and "approximate" not in exact
    approximate = model_card(REPORT, SETTINGS).text
    assert "**the promise is approximate**" in approximate and "approximately, as above" in approximate


def test_a_card_says_how_far_a_model_may_miss_the_promise() -> None:
    """The threshold is an order statistic of n scores, so the coverage is one of n uniform numbers."""
    generator = np.random.default_rng(0)
    covered = np.sort(generator.random((20_000, 200)), axis=1)[:, math.ceil(201 * 0.9) - 1]
    low, high = 100 * np.quantile(covered, [0.025, 0.975])
    text = model_card(REPORT, SETTINGS).text
    stated = re.search(r"that promise 90 % usually reach\s+(\S+) to (\S+) %", text)
    assert REPORT.guarantees.num_guarantee == 200
    assert (float(stated[1]), float(stated[2])) == pytest.approx((low, high), abs=0.15)


def test_the_lowest_class_is_not_one_of_a_few_images() -> None:
    promise = PredictionSetGuarantee("lac", 0.9, 0.4, 200, Share(0.9, 0.8, 1.0, 604), 1.2, (2, 210, 288, 0))
    promises = Guarantees(200, 200, 604, 1.0, True, None, (4, 300, 300, 0), (), (promise,))
    assert lowest_class(promise, promises) == ("class 1", Share(0.7, *wilson(210, 300), 300))
    named = replace(promises, class_names=("ant", "bee", "cat", "dog"))
    assert lowest_class(promise, named)[0] == "bee"


def test_where_no_answers_are_promised_there_is_no_table() -> None:
    sure, none = REPORT.guarantees.abstentions
    text = model_card(replace(REPORT, guarantees=replace(REPORT.guarantees, abstentions=(none,))), SETTINGS).text
    assert "smallest confidence" not in text
    assert "guarantees these shares of right answers: 99 % (200 held-out samples are too few \\| by far)." in text
    text = model_card(replace(REPORT, guarantees=replace(REPORT.guarantees, abstentions=(sure,))), SETTINGS).text
    assert (
        "| 95 % | 0.83 | 70.0 % [67.0, 73.0] | 96.0 % [94.0, 97.0] |" in text and "No threshold was found" not in text
    )


def test_a_severity_without_answers_leaves_a_gap() -> None:
    sure, none = REPORT.guarantees.abstentions
    answered = {severity: share for severity, share in sure.severity_accuracy.items() if severity != 4}
    changed = replace(REPORT.guarantees, abstentions=(replace(sure, severity_accuracy=answered), none))
    assert "| 80.0 / 70.0 / 60.0 / - / 40.0 % |" in model_card(replace(REPORT, guarantees=changed), SETTINGS).text
