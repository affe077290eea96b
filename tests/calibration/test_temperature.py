"""The fitted temperature against closed forms, the conditions of the optimum, and when it must stay 1."""

import logging
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import macs_hf.calibration.temperature
from macs_hf.calibration.temperature import (
    calibration_error_rise,
    choose_temperature,
    fit_temperature,
    fit_temperature_report,
    temperature_helped,
)
from macs_hf.report import Interval, SampleRows


def replicated(probabilities: list[float], temperature: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` copies of one logit vector, its labels in the proportions of softmax(logits / temperature)."""
    labels = np.repeat(np.arange(len(probabilities)), [round(p * count) for p in probabilities])
    return np.tile(temperature * np.log(probabilities), (len(labels), 1)), labels


@pytest.mark.parametrize("temperature", [0.051, 0.99, 1.0, 2.386, 19.9])
@pytest.mark.parametrize("probabilities", [[0.5, 0.25, 0.125, 0.125], [0.9, 0.1]])
def test_the_optimum_is_found_where_it_is_known(probabilities: list[float], temperature: float) -> None:
    logits, labels = replicated(probabilities, temperature, 200)
    fit = fit_temperature_report(logits, labels)
    assert fit.value == pytest.approx(temperature, rel=1e-8)
    assert fit.reason is None
    assert fit.n == 200
    # At the optimum the mean loss is the entropy of the labels.
    assert fit.nll_after == pytest.approx(-sum(p * math.log(p) for p in probabilities), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(0.1, 40),
    temperature=st.floats(0.1, 10),
    classes=st.integers(2, 12),
    shift=st.floats(-1e3, 1e3),
)
def test_no_other_is_better(seed: int, scale: float, temperature: float, classes: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(150, classes))
    labels = (logits / temperature + rng.gumbel(size=logits.shape)).argmax(1)
    fit = fit_temperature_report(logits, labels)

    def nll(value: float) -> float:
        return torch.nn.functional.cross_entropy(torch.tensor(logits / value), torch.tensor(labels)).item()

    assert fit.nll_before == pytest.approx(nll(1.0), rel=1e-9, abs=1e-12)
    assert fit.nll_after == pytest.approx(nll(fit.value), rel=1e-9, abs=1e-12)
    if fit.reason is None:
        assert 0.05 < fit.value < 20
        for factor in (0.5, 0.99, 0.9999, 1.0001, 1.01, 2.0):
            assert nll(fit.value) <= nll(fit.value * factor) + 1e-13
        # Shifting every logit of a sample changes nothing; scaling all logits scales the temperature.
        moved = logits + shift * rng.normal(size=(150, 1))
        assert fit_temperature(moved, labels) == pytest.approx(fit.value, rel=1e-6)
        if 0.05 < 1.7 * fit.value < 20:
            assert fit_temperature(1.7 * logits, labels) == pytest.approx(1.7 * fit.value, rel=1e-7)
    else:
        assert fit.value == 1.0
        assert fit.nll_after == fit.nll_before


def test_tensors_arrays_lists_low_precision_and_chunks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = replicated([0.5, 0.25, 0.25], 2.0, 200)
    reference = fit_temperature(logits, labels)
    tensor = torch.tensor(logits, requires_grad=True)
    assert fit_temperature(tensor, torch.tensor(labels)) == reference
    assert fit_temperature(logits.tolist(), labels.tolist()) == reference
    assert fit_temperature(logits.astype(np.float32), labels.astype(np.uint8)) == pytest.approx(reference, rel=1e-6)
    assert fit_temperature(torch.tensor(logits, dtype=torch.bfloat16), labels) == pytest.approx(reference, rel=1e-2)
    monkeypatch.setattr(macs_hf.calibration.temperature, "VALUES_PER_CHUNK", 70)
    assert fit_temperature(logits, labels) == pytest.approx(reference, rel=1e-12)


@pytest.mark.parametrize(
    ("logits", "labels", "reason"),
    [
        ([[1.0, 0.0]] * 99, [0] * 66 + [1] * 33, "99 samples"),
        ([[1.0, 0.0]] * 200, [0] * 200, "bound 0.05"),  # always right: T would go to 0
        ([[1.0, 1.0]] * 200, [0, 1] * 100, "bound 0.05"),  # T has no effect
        ([[1.0, 0.0]] * 200, [1] * 150 + [0] * 50, "bound 20.0"),  # worse than a coin
    ],
)
def test_the_temperature_stays_one_and_says_why(logits, labels, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="macs_hf.calibration"):
        fit = fit_temperature_report(logits, labels)
    assert fit.value == 1.0 and fit.nll_after == fit.nll_before
    assert fit.standard_error is None and fit.confidence_shift is None
    assert reason in fit.reason and fit.reason in caplog.text


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        ([[1.0, 0.0]] * 3, [0, 1], ValueError, "labels"),
        (np.zeros((0, 3)), np.zeros(0, dtype=int), ValueError, "logits"),
        ([[1.0, 0.0], [math.nan, 0.0]], [0, 1], ValueError, "row 1 "),
        ([[1.0, 0.0]] * 2, [0.0, 1.0], TypeError, "labels"),
    ],
)
def test_wrong_inputs_are_refused(logits, labels, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fit_temperature(logits, labels)


def test_real_logits(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = real_logits
    fit = fit_temperature_report(logits[:5000], labels[:5000])
    assert fit.value == pytest.approx(2.385894515847462, rel=1e-8)
    assert fit.nll_before == pytest.approx(0.4003470984170002, rel=1e-9)
    assert fit.nll_after == pytest.approx(0.2602591873124391, rel=1e-9)


@pytest.mark.parametrize(("gap", "right", "n"), [(2.0, 0.75, 400), (0.3, 0.6, 100), (9.0, 0.99, 2000)])
def test_the_standard_error_in_closed_form(gap: float, right: float, n: int) -> None:
    # With one gap for all samples, the confidence at the optimum is the share that is right: a binomial proportion.
    count = round(right * n)
    fit = fit_temperature_report([[gap, 0.0]] * n, [0] * count + [1] * (n - count))
    error = math.sqrt(right * (1 - right) / n)
    assert fit.value == pytest.approx(gap / math.log(right / (1 - right)), rel=1e-8)
    assert fit.standard_error == pytest.approx(fit.value**2 / gap * error / (right * (1 - right)), rel=1e-6)
    assert fit.confidence_shift == pytest.approx(error, rel=1e-6)


def test_the_standard_error_is_that_of_resampling_where_no_temperature_fits() -> None:
    # Half of the samples are twice as overconfident as the other half, and a tenth of all labels is random.
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(600, 6)) * np.where(np.arange(600) % 2, 3.0, 6.0)[:, None]
    labels = (logits / np.where(np.arange(600) % 2, 1.5, 6.0)[:, None] + rng.gumbel(size=logits.shape)).argmax(1)
    labels = np.where(rng.random(600) < 0.1, rng.integers(6, size=600), labels)
    drawn = rng.integers(600, size=(200, 600))
    temperatures = [fit_temperature(logits[rows], labels[rows]) for rows in drawn]
    fit = fit_temperature_report(logits, labels)
    assert fit.standard_error == pytest.approx(np.std(temperatures), rel=0.15)  # three standard deviations of the draw

    def mean_confidence(temperature: float) -> float:
        return torch.tensor(logits / temperature).softmax(1).amax(1).mean().item()

    moved = [mean_confidence(fit.value + sign * fit.standard_error) for sign in (-1, 1)]
    assert fit.confidence_shift == pytest.approx((moved[0] - moved[1]) / 2, rel=0.01)


def rows_with(nll: list[float], labels: list[int] | None = None) -> SampleRows:
    ids = np.array(labels or [0] * len(nll), dtype=np.int32)
    zeros = np.zeros(len(nll), dtype=np.float32)
    return SampleRows(ids, ids, zeros, np.array(nll, dtype=np.float32), zeros, zeros)


def test_whether_a_temperature_helped_is_a_paired_interval() -> None:
    gain = temperature_helped(rows_with([1.0, 2.0, 4.0, 1.0]), rows_with([0.5, 1.0, 3.5, 1.0]))
    # Gains of 0.5, 1, 0.5, 0: mean 0.5, standard deviation sqrt(1/6), and 3.1824 is Student's quantile at 3 degrees.
    half = 3.182446 * math.sqrt(1 / 6) / 2
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half), rel=1e-5)
    same = rows_with([1.0, 2.0, 4.0])
    assert temperature_helped(same, same) == Interval(0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="before"):
        temperature_helped(same, rows_with([1.0, 2.0, 4.0], [1, 0, 0]))


def drawn(n: int, scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of which `scale` is the right temperature."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, 5))
    return scale * logits, (logits + rng.gumbel(size=logits.shape)).argmax(1)


def torn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """No temperature makes this model calibrated: most answers are all but sure, and a few of them are quite wrong."""
    rng = np.random.default_rng(seed)
    right = rng.random(n) < 0.93
    gap = np.where(right, 2.6, np.where(rng.random(n) < 0.25, 30.0, 2.6))
    return np.stack([gap, np.zeros(n)], axis=1), np.where(right, 0, 1)


def test_a_temperature_is_used_only_where_other_images_gain_from_it() -> None:
    for n, scale, used in ((100, 3.0, True), (150, 0.4, True), (250, 1.7, True), (1000, 1.0, False), (99, 3.0, False)):
        samples = drawn(n, scale)
        fit = choose_temperature(*samples)
        assert (fit.reason is None) == used
        best = fit_temperature_report(*samples)
        assert fit == best if used else (fit.value, fit.nll_after) == (1.0, best.nll_before)
        assert choose_temperature(*samples, force=True) == best


def test_a_temperature_that_lowers_the_likelihood_and_raises_the_calibration_error_is_not_used() -> None:
    samples, test = torn(2000, 0), torn(4000, 1)
    best = fit_temperature(*samples)
    before, after = (SampleRows.from_logits(torch.tensor(test[0] / t), torch.tensor(test[1])) for t in (1.0, best))
    assert temperature_helped(before, after).low > 0 and calibration_error_rise(before, after).low > 0.02
    found = choose_temperature(*samples)
    assert found.value == 1.0 and "ECE" in found.reason


def test_a_single_error_does_not_forbid_a_temperature_that_is_far_from_1() -> None:
    """One of the halves has no error, so that its own best temperature would be 0."""
    samples = [[0.5, 0.0]] * 150, [0] * 149 + [1]
    assert choose_temperature(*samples) == fit_temperature_report(*samples)
