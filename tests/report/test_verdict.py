"""What a report says in two sentences is what its numbers say."""

import dataclasses

import numpy as np
import pytest

from macs_hf.metrics import measure
from macs_hf.report.corruption_names import CORRUPTIONS, SEVERITIES
from macs_hf.report.corruption_table import Cell, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport, Measurement, Temperature
from macs_hf.report.interval import Interval
from macs_hf.report.rows import SampleRows
from macs_hf.report.verdict import confidence_gap, trust_of, verdict


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
    assert verdict(report(part)).headline == "Overconfident"


def test_nothing_can_be_trusted_from_a_few_images() -> None:
    few = measured(1.0, 0.998, n=8)
    assert few.noise_floor < 0.01 and few.metrics["accuracy"].low < 0.7
    found = verdict(EvaluationReport("m", "d", "test", 8, few))
    assert (found.trust, found.headline) == ("unknown", "Too few images to tell")


def test_errors_that_cancel_are_neither_over_nor_underconfidence() -> None:
    confidence = np.repeat(np.array([0.6, 0.9], np.float32), 500)
    right = np.concatenate([np.arange(500) < 350, np.arange(500) < 399])  # 10 points too low, 10.2 too high
    columns = dict.fromkeys(("confidence", "nll", "brier", "margin"), confidence)
    part = measure(SampleRows(np.zeros(1000, np.int32), np.where(right, 0, 1).astype(np.int32), **columns))
    assert trust_of(part) == "miscalibrated" and confidence_gap(part) > 0
    found = verdict(report(part))
    assert found.headline == "Miscalibrated"
    assert found.confidence.startswith("Its calibration error is 10.1 %, more than chance explains")


def test_two_sentences_with_the_numbers() -> None:
    found = verdict(report(measured(0.8, 0.9), measured(0.8, 0.8), 1.5))
    assert found.headline == "Overconfident, and a temperature repairs it"
    assert found.trust == "trusted"
    assert found.ability == "It is right on 80.0 % of 1,000 test images."
    assert found.confidence.startswith("Its confidence is 10.0 points too high on average, more than chance explains;")
    assert "a temperature of 1.50 brings the calibration error from 10.0 % to 0.0 %" in found.confidence
    for sentence in (found.ability, found.confidence):
        assert sentence.endswith(".") and ". " not in sentence


def test_what_may_be_chance_is_no_lack_of_images() -> None:
    part = measured(0.8, 0.822)
    assert verdict(report(part)).headline == "No miscalibration beyond chance"
    few = dataclasses.replace(part, noise_floor=0.05)
    assert verdict(report(few)).headline == "Too few images to tell"


def test_a_temperature_that_does_not_help_is_not_praised() -> None:
    whole = report(measured(0.8, 0.9), measured(0.8, 0.85), 1.2)
    assert verdict(whole).headline.endswith("a temperature helps")
    by_chance = dataclasses.replace(whole, temperature=Temperature(1.2, nll_gain=Interval(0.1, -0.1, 0.3)))
    assert verdict(by_chance).headline.endswith("a temperature does not help beyond chance")
    assert "nothing to repair" in verdict(report(measured(0.8, 0.8), measured(0.8, 0.8), 1.01)).confidence
    undecided = verdict(report(measured(0.8, 0.822), measured(0.8, 0.822), 1.01)).confidence
    assert undecided.endswith("the temperature that fits best is 1.01, which changes little.")
    little = verdict(report(measured(0.8, 0.9), measured(0.8, 0.895), 1.03))
    assert little.headline == "Overconfident, and a temperature changes little"
    assert "a temperature of 1.03 brings the calibration error from 10.0 % to 9.5 %" in little.confidence


def test_the_headline_is_not_better_than_the_published_model() -> None:
    good, unsure, bad = measured(0.8, 0.8), measured(0.8, 0.822), measured(0.8, 0.9)
    found = verdict(report(good, bad, 0.8))
    assert (found.trust, found.headline) == ("overconfident", "Overconfident with its temperature")
    assert verdict(report(unsure, measured(0.8, 0.7), 1.5)).headline == "Underconfident with its temperature"
    assert verdict(report(good, unsure, 0.9)).headline == "No miscalibration beyond chance"
    assert verdict(report(unsure, good, 1.1)).headline == "No miscalibration beyond chance"


def test_why_there_is_no_temperature() -> None:
    whole = report(measured(0.8, 0.9), measured(0.8, 0.9))
    whole = dataclasses.replace(whole, temperature=Temperature(1.0, "fewer than 100 samples"))
    found = verdict(whole)
    assert found.headline == "Overconfident"
    assert found.confidence.endswith("no temperature was fitted (fewer than 100 samples).")


def test_what_breaks_it() -> None:
    cells = {name: {s: Cell(10, 0.3 if name == "fog" else 0.6, 1.0, 0.1) for s in SEVERITIES} for name in CORRUPTIONS}
    table = CorruptionTable("cifar", "generated", 10, cells)
    assert verdict(report(measured(0.8, 0.8), corruptions=table)).ability == (
        "It is right on 80.0 % of 1,000 test images, and on 58.0 % of corrupted ones; fog is the worst, with 30.0 %."
    )
    table = dataclasses.replace(table, cells={"fog": cells["fog"]})
    ability = verdict(report(measured(0.8, 0.8), corruptions=table)).ability
    assert ability.endswith("and at worst, under fog, on 30.0 %.")
