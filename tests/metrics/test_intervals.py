"""Intervals and noise floor of one model's metrics: moments, closed forms, coverage."""

import numpy as np
import pytest

from macs_hf.metrics import (
    estimate_calibration_error,
    expected_calibration_error,
    intervals,
    measure,
    summarize,
    wilson,
)
from macs_hf.metrics.intervals import CalibrationEstimate, interval, random_groups, resampled_sums

from .test_comparison import sampled_rows


def estimated(confidence: np.ndarray, correct: np.ndarray, **options: int) -> CalibrationEstimate:
    """Of two classes, the first of which is predicted."""
    pairs = np.stack([confidence, 1 - confidence], axis=1)
    return estimate_calibration_error(pairs, ~correct, probabilities=True, **options)


def test_resampled_sums_have_the_moments_of_the_bootstrap() -> None:
    columns = np.random.default_rng(0).standard_normal((200, 3))
    sums = np.concatenate(list(resampled_sums(columns, 20_000)))
    assert sums.shape == (20_000, 3)
    np.testing.assert_allclose(sums.mean(axis=0), columns.sum(axis=0), atol=0.5)
    np.testing.assert_allclose(np.cov(sums.T), 200 * np.cov(columns.T, bias=True), atol=8)


def test_groups_keep_the_interval_when_samples_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    confidence = 0.5 + rng.beta(5, 1, 8000) / 2
    correct = rng.random(8000) < confidence - 0.05
    single = estimated(confidence, correct)
    monkeypatch.setattr(intervals, "MAX_GROUPS", 1000)
    assert len(set(random_groups(8000, 45).tolist())) == 1000
    grouped = estimated(confidence, correct)
    assert grouped.ece == pytest.approx(single.ece)
    assert grouped.high - grouped.low == pytest.approx(single.high - single.low, rel=0.15)


@pytest.mark.parametrize("variant", ["equal_width", "equal_mass", "classwise", "smooth"])
def test_estimate_holds_the_score_and_is_reproducible(variant: str) -> None:
    rng = np.random.default_rng(1)
    logits, labels = 3 * rng.standard_normal((400, 4)), rng.integers(0, 4, 400)
    estimate = estimate_calibration_error(logits, labels, variant=variant, n_resamples=200)
    assert estimate.ece == pytest.approx(expected_calibration_error(logits, labels, variant=variant), abs=1e-12)
    assert 0 <= estimate.low <= estimate.ece <= estimate.high <= 1
    assert 0 < estimate.noise_floor < estimate.low  # random labels: far from calibrated
    assert estimate == estimate_calibration_error(logits, labels, variant=variant, n_resamples=200)


@pytest.mark.parametrize("variant", ["equal_width", "equal_mass", "classwise", "smooth"])
def test_noise_floor_is_the_mean_score_of_calibrated_labels(variant: str) -> None:
    rng = np.random.default_rng(2)
    logits = 2 * rng.standard_normal((500, 3))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = []
    for _ in range(60):
        labels = (probs.cumsum(axis=1) < rng.random((500, 1))).sum(axis=1)
        scores.append(expected_calibration_error(logits, labels, variant=variant))
    floor = estimate_calibration_error(logits, labels, variant=variant, n_resamples=2).noise_floor
    assert floor == pytest.approx(np.mean(scores), rel=0.12)


def test_interval_reflects_and_begins_at_zero_if_noise_explains_the_score() -> None:
    scores = np.linspace(0.2, 0.3, 1001)
    assert interval(0.2, scores, 0.9) == pytest.approx((0.105, 0.2))  # 2 * 0.2 - 0.295, and the value itself
    assert interval(0.2, scores, 0.9, noise=np.full(10, 0.25))[0] == 0
    assert interval(0.2, scores, 0.9, noise=np.full(10, 0.01))[0] == pytest.approx(0.105)


@pytest.mark.parametrize("shift", [0.0, 0.03])
def test_interval_covers_the_truth(shift: float) -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(60):
        confidence = rng.uniform(0.5, 1, 800)
        estimate = estimated(confidence, rng.random(800) < confidence - shift, n_resamples=100)
        hits += estimate.low <= shift <= estimate.high
    assert hits >= 50


def test_measure_agrees_with_the_summary() -> None:
    rows = sampled_rows(0, sharpen=2.0)
    measurement = measure(rows, n_resamples=300)
    assert {name: metric.value for name, metric in measurement.metrics.items()} == pytest.approx(summarize(rows))
    for metric in measurement.metrics.values():
        assert metric.low <= metric.value <= metric.high
    assert sum(measurement.bins.count) == len(rows)
    gaps = np.abs(np.subtract(measurement.bins.accuracy, measurement.bins.confidence)) @ measurement.bins.count
    assert gaps / len(rows) == pytest.approx(summarize(rows)["ece"])
    accuracy = measurement.metrics["accuracy"]
    assert (accuracy.low, accuracy.high) == wilson(int(rows.correct.sum()), len(rows))
