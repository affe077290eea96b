"""What a report says in headline and sections is what its numbers say, and no more than was measured."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from publishing.reports import FOUND, REPORT

from macs_hf.metrics import measure
from macs_hf.report.report import (
    Cell,
    CorruptionTable,
    EvaluationReport,
    Guarantees,
    Interval,
    Measurement,
    Temperature,
)
from macs_hf.report.rows import CORRUPTIONS, SEVERITIES, SampleRows
from macs_hf.report.run_folder import PICTURES
from macs_hf.report.sections import (
    METRICS,
    Section,
    confidence_gap,
    headline,
    interval_text,
    sections,
    temperature_sentences,
    trust_of,
)


def measured(accuracy: float, confidence: float, n: int = 1000) -> Measurement:
    """Of a model that is always equally sure."""
    right = np.arange(n) < round(accuracy * n)
    scores = np.full(n, confidence, np.float32)
    columns = {"confidence": scores, "nll": scores, "brier": scores, "margin": scores}
    return measure(SampleRows(np.zeros(n, np.int32), np.where(right, 0, 1).astype(np.int32), **columns))


def report(
    before: Measurement, after: Measurement | None = None, temperature: float = 1.0, **parts
) -> EvaluationReport:
    fitted = None if after is None else Temperature(temperature)
    return EvaluationReport("m", "d", "test", 1000, before, after, fitted, **parts)


def section(found: EvaluationReport, title: str) -> Section:
    return next(part for part in sections(found) if part.title == title)


def words(part: Section) -> str:
    rows = [] if part.table is None else [part.table.header, *part.table.rows]
    return "\n".join([part.lead, *(" | ".join(row) for row in rows), *part.notes])


# ---- The headline ----


@pytest.mark.parametrize(
    ("accuracy", "confidence", "trust"),
    [(0.8, 0.8, "trusted"), (0.8, 0.9, "overconfident"), (0.8, 0.7, "underconfident"), (0.8, 0.822, "unknown")],
)
def test_trust(accuracy: float, confidence: float, trust: str) -> None:
    part = measured(accuracy, confidence)
    assert trust_of(part) == trust
    assert confidence_gap(part) == pytest.approx(confidence - accuracy, abs=1e-6)


def test_an_error_whose_interval_excludes_0_is_beyond_chance_though_it_may_be_below_the_floor() -> None:
    part = measured(0.8, 0.83)
    ece = part.metrics["ece"]
    assert 0 < ece.low < part.noise_floor < ece.value
    assert headline(report(part)).title == "Overconfident"


def test_nothing_can_be_trusted_from_a_few_images() -> None:
    few = measured(1.0, 0.998, n=8)
    assert few.noise_floor < 0.01 and few.metrics["accuracy"].low < 0.7
    found = headline(EvaluationReport("m", "d", "test", 8, few))
    assert (found.trust, found.title) == ("unknown", "Too few images to tell whether it is calibrated")
    part = measured(0.8, 0.822)  # what may be chance is no lack of images
    assert headline(report(part)).title == "No miscalibration beyond chance"
    assert headline(report(replace(part, noise_floor=0.05))).title == "Too few images to tell whether it is calibrated"


def test_errors_that_cancel_are_neither_over_nor_underconfidence() -> None:
    confidence = np.repeat(np.array([0.6, 0.9], np.float32), 500)
    right = np.concatenate([np.arange(500) < 350, np.arange(500) < 399])  # 10 points too low, 10.2 too high
    columns = dict.fromkeys(("confidence", "nll", "brier", "margin"), confidence)
    part = measure(SampleRows(np.zeros(1000, np.int32), np.where(right, 0, 1).astype(np.int32), **columns))
    assert trust_of(part) == "miscalibrated" and confidence_gap(part) > 0
    assert "10.1 %" in headline(report(part)).confidence


def test_the_headline_is_that_of_the_published_model() -> None:
    good, unsure, bad = measured(0.8, 0.8), measured(0.8, 0.822), measured(0.8, 0.9)
    cases = [
        (bad, good, 1.5, "Overconfident before its temperature, which repairs it"),
        (bad, measured(0.8, 0.85), 1.2, "Overconfident before its temperature, which helps"),
        (good, bad, 0.8, "Overconfident with its temperature"),
        (unsure, measured(0.8, 0.7), 1.5, "Underconfident with its temperature"),
        (good, unsure, 0.9, "No miscalibration beyond chance"),
        (unsure, good, 1.1, "No miscalibration beyond chance"),
    ]
    for before, after, temperature, title in cases:
        found = headline(report(before, after, temperature))
        assert (found.title, found.trust) == (title, trust_of(after))
    by_chance = replace(report(bad, good, 1.2), temperature=Temperature(1.2, nll_gain=Interval(0.1, -0.1, 0.3)))
    assert headline(by_chance).title.endswith("does not help beyond chance")


def test_two_sentences_with_the_numbers() -> None:
    found = headline(report(measured(0.8, 0.9), measured(0.8, 0.8), 1.5))
    assert re.findall(r"[\d.,]*\d", found.ability) == ["80.0", "1,000"]
    gap, ece, _, temperature, after, _ = re.findall(r"[\d.]*\d", found.confidence)
    assert (ece, gap, temperature, after) == ("10.0", "10.0", "1.50", "0.0")
    reason = replace(report(measured(0.8, 0.9), measured(0.8, 0.9)), temperature=Temperature(1.0, "a reason"))
    assert "a reason" in headline(reason).confidence
    cells = {name: {s: Cell(10, 0.3 if name == "fog" else 0.6, 1.0, 0.1) for s in SEVERITIES} for name in CORRUPTIONS}
    table = CorruptionTable("cifar", "generated", 10, cells)
    for part, numbers in (
        (table, ["80.0 %", "58.0 %", "fog", "30.0 %"]),
        (replace(table, cells={"fog": cells["fog"]}), ["80.0 %", "fog", "30.0 %"]),
    ):
        broken = headline(report(measured(0.8, 0.8), corruptions=part)).ability
        assert re.findall(r"[\d.]+ %|fog", broken) == numbers


# ---- Sections ----


def test_every_part_of_a_report_has_its_section_and_no_other() -> None:
    assert [part.title for part in sections(report(measured(0.8, 0.8)))] == ["Measured"]
    titles = ["Measured", "Class names", "Under corruption", "Prediction sets", "Answering only when sure"]
    titles += ["Risk and coverage", "Classes", "By camera", "Images of none of its classes", "Copies between splits"]
    whole = sections(replace(FOUND, renamed_classes=(("LABEL_0", "cat"),)))
    assert [part.title for part in whole] == titles
    for part in whole:
        assert part.finding.endswith(".") and part.lead
        assert part.table is None or {len(row) for row in part.table.rows} == {len(part.table.header)}
    assert {name for part in whole for name in part.pictures} == set(PICTURES)


def test_metrics_with_intervals_and_the_noise_floor() -> None:
    table = section(REPORT, "Measured").table
    assert list(table.header) == ["", "without temperature", "with temperature"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows[METRICS["accuracy"].title] == ["85.00 % [83.00, 87.00]"] * 2
    assert rows[METRICS["ece"].title] == ["8.00 % [7.00, 9.00]", "2.00 % [1.00, 3.00]"]
    assert rows[METRICS["nll"].title] == ["0.600 [0.580, 0.620]", "0.500 [0.480, 0.520]"]
    assert rows["ECE by chance alone"] == ["2.50 %", "2.50 %"]
    stayed = replace(REPORT, temperature=Temperature(1.0, "too few"))
    assert list(section(stayed, "Measured").table.header) == ["", "as published"]


def test_what_is_said_of_a_temperature() -> None:
    gain, rise = Interval(0.1, 0.08, 0.12), Interval(0.03, 0.02, 0.04)
    fitted, said = temperature_sentences(REPORT.temperature)
    assert "1.5000 ± 0.0600" in fitted and "200 images of validation" in fitted and interval_text(gain) in said
    _, said = temperature_sentences(replace(REPORT.temperature, ece_rise=rise))  # which is why it did not help
    assert interval_text(gain) in said and interval_text(rise, 100, " points", 2) in said


# ---- Corruptions ----


def corrupted(table: CorruptionTable) -> str:
    return words(section(replace(REPORT, corruptions=table), "Under corruption"))


def test_means_under_corruption() -> None:
    rows = dict(section(REPORT, "Under corruption").table.rows)
    assert rows["clean, the same images"] == "85.0 %"
    assert rows["mean of the standard 15"] == "57.0 % [55.0, 59.0]" and rows["noise, of the 15"] == "51.0 %"
    assert "extra, of the 15" not in rows


@pytest.mark.parametrize(
    ("gap", "direction"),
    [
        (Interval(0.052, 0.041, 0.063), "is overconfident"),
        (Interval(-0.052, -0.063, -0.041), "is underconfident"),
        (Interval(0.01, -0.02, 0.04), "neither over- nor underconfident"),
    ],
)
def test_the_sign_of_the_gap_says_whether_confidence_is_too_high(gap: Interval, direction: str) -> None:
    table = replace(REPORT.corruptions, confidence_gap=REPORT.corruptions.confidence_gap | {"mean15": gap})
    assert re.search(f"{direction}.*{re.escape(interval_text(gap, 100, ' points', 1, '+'))}", corrupted(table))
    assert "confident" not in corrupted(replace(table, confidence_gap=None))  # older reports do not say


def test_calibration_under_corruption_is_compared_with_the_same_images_and_its_noise() -> None:
    cell = Cell(500, 0.5, 1.0, 0.1, 0.9, 0.06, 0.03, 0.02)
    cells = {name: dict.fromkeys(SEVERITIES, cell) for name in CORRUPTIONS}
    clean = Cell(500, 0.85, 0.5, 0.08, 0.45, 0.03, 0.02, 0.011)
    table = replace(REPORT.corruptions, cells=cells, clean=clean)
    both = re.findall(r"(\S+) % \(noise floor (\S+) %\)", corrupted(table))
    assert both == [("6.0", "2.0"), ("10.0", "3.0"), ("3.0", "1.1")]  # the second is without the temperature
    assert [len(re.findall("noise floor", corrupted(replace(table, temperature=t)))) for t in (None, 1.0)] == [2, 2]


# ---- Guarantees ----


def test_what_is_guaranteed_and_what_came_true() -> None:
    sets, sure = section(REPORT, "Prediction sets"), section(REPORT, "Answering only when sure")
    by_severity = "80.0 / 70.0 / 60.0 / 50.0 / 40.0 %"
    assert sets.table.rows[1] == [
        "90 %", "LAC", "91.0 % [90.0, 100.0]", "1.90", by_severity,
    ]  # fmt: skip
    assert sure.table.rows == [["95 %", "0.83", "70.0 % [67.0, 73.0]", "96.0 % [94.0, 97.0]", by_severity]]
    [missing] = sure.notes
    assert "99 %" in missing and "too few | by far" in missing
    found = REPORT.guarantees
    assert "approximate" in sets.lead and "approximate" in sure.lead
    exact = replace(REPORT, guarantees=replace(found, exact=True))
    assert not any("approximate" in part.lead for part in sections(exact))
    nothing = replace(REPORT, guarantees=replace(found, abstentions=found.abstentions[1:]))
    assert section(nothing, "Answering only when sure").table is None
    gap = {severity: share for severity, share in found.abstentions[0].severity_accuracy.items() if severity != 4}
    gap = replace(found, abstentions=(replace(found.abstentions[0], severity_accuracy=gap, threshold=1 - 1e-6),))
    row = section(replace(REPORT, guarantees=gap), "Answering only when sure").table.rows[0]
    assert row[1] == "0.999999" and row[-1] == "80.0 / 70.0 / 60.0 / - / 40.0 %"
    always = replace(found, abstentions=(replace(found.abstentions[0], threshold=0.0),))
    part = section(replace(REPORT, guarantees=always), "Answering only when sure")  # of every image
    assert part.table.rows[0][1] == "any" and "confidence" not in part.finding and "96.0 %" in part.finding
    none = replace(REPORT, guarantees=Guarantees(60, 0, 0, 1.5, True, "a reason"))
    assert "a reason" in section(none, "Coverage guarantees").finding


def test_how_far_a_model_may_miss_its_coverage() -> None:
    """The threshold is an order statistic of n scores, so the coverage is one of n uniform numbers."""
    generator = np.random.default_rng(0)
    covered = np.sort(generator.random((20_000, 200)), axis=1)[:, math.ceil(201 * 0.9) - 1]
    low, high = 100 * np.quantile(covered, [0.025, 0.975])
    stated = re.search(r"within (\S+) points of 90 %", section(REPORT, "Prediction sets").lead)
    assert REPORT.guarantees.num_guarantee == 200
    assert float(stated[1]) == pytest.approx((high - low) / 2, abs=0.1)


# ---- Where it is wrong ----


def test_risk_and_coverage() -> None:
    part = section(REPORT, "Risk and coverage")
    assert part.table.rows == [("at most 1 %", "20.0 % [10.0, 30.0]"), ("at most 5 %", "60.0 % [50.0, 70.0]")]
    assert "0.0420 [0.0310, 0.0530]" in part.notes[0] and "0.0120" in part.notes[0]
    perfect = replace(REPORT, risk_coverage=replace(REPORT.risk_coverage, risk=(0.0, 0.0)))
    assert section(perfect, "Risk and coverage").table is None  # an interval from 100 to 100 % would say too much
    perfect = section(perfect, "Risk and coverage")
    assert perfect.finding in perfect.pictures["risk_coverage.png"]


def test_classes_and_groups_worst_first() -> None:
    classes, cameras = section(FOUND, "Classes"), section(FOUND, "By camera")
    assert classes.table.rows[0] == [
        "cat", "400", "70.0 % [66.0, 74.0] *", "+10.0 % [+6.0, +14.0]", "85.0 % [83.0, 87.0] *",
    ]  # fmt: skip
    assert "cat taken for bird (90 of 400), bird taken for cat (60 of 300)" in classes.notes[-1]
    assert cameras.table.rows[0] == ["old", "500", "80.0 % [76.0, 84.0]", "+2.0 % [-2.0, +6.0]"]
    hard = "Even a perfectly calibrated model"  # only classes are not known beforehand
    assert hard in words(classes) and hard not in words(cameras)


def test_images_of_no_class_and_copies() -> None:
    part = section(FOUND, "Images of none of its classes")
    assert part.table.rows[-1] == ("energy", "92.0 % [91.0, 93.0]", "30.0 % [28.0, 33.0]")  # with the temperature
    for fact in ("500 images", "61.0 %", "87.0 %", "0.8123", "10.0 % [8.0, 13.0]", "70.0 %", "out: cat", "2 of these"):
        assert fact in words(part)
    copies = section(FOUND, "Copies between splits").lead
    assert "12 of 1,000 test images are also in train" in copies and "2,000 of 50,000 train images" in copies
