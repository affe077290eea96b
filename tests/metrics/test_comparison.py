"""Intervals, noise floor and comparisons from rows."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
import torch

from macs_hf.metrics import (
    bootstrap,
    calibration_error,
    compare,
    estimate_calibration_error,
    expected_calibration_error,
    measure,
    paired_difference,
    risk_coverage,
    summarize,
)
from macs_hf.metrics.bootstrap import estimate_from_confidences, interval, noise_scores, random_groups, resampled_sums
from macs_hf.metrics.inflation import noise_inflation
from macs_hf.report.rows import SampleRows


def sampled_rows(seed: int, n: int = 1000, sharpen: float = 1.0, noise: float = 0.0) -> SampleRows:
    """Logits whose softmax is the truth, multiplied by `sharpen` (1 is calibrated) and disturbed by `noise`."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 4, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return SampleRows.from_logits(sharpen * logits + noise * torch.randn(n, 4, generator=generator), labels)


def test_resampled_sums_have_the_moments_of_the_bootstrap() -> None:
    columns = np.random.default_rng(0).standard_normal((200, 3))
    sums = np.concatenate(list(resampled_sums(columns, 20_000)))
    assert sums.shape == (20_000, 3)
    np.testing.assert_allclose(sums.mean(axis=0), columns.sum(axis=0), atol=0.5)
    np.testing.assert_allclose(np.cov(sums.T), 200 * np.cov(columns.T, bias=True), atol=8)


def test_groups_keep_the_interval_when_samples_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    confidence = rng.beta(5, 1, 8000)
    correct = rng.random(8000) < confidence - 0.05
    single = estimate_from_confidences(confidence, correct)
    monkeypatch.setattr(bootstrap, "MAX_GROUPS", 1000)
    assert len(set(random_groups(8000, 45).tolist())) == 1000
    grouped = estimate_from_confidences(confidence, correct)
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


def test_noise_floor_in_closed_form() -> None:
    # One bin, p = 1/2: the mean of |k / n - 1/2| for k binomial; and none at all for certainty.
    n = 16
    k = np.arange(n + 1)
    chances = np.array([float(np.prod(np.arange(n - i + 1, n + 1)) / np.prod(np.arange(1, i + 1))) for i in k]) / 2**n
    assert noise_scores(np.full(n, 0.5)).mean() == pytest.approx((chances * np.abs(k / n - 0.5)).sum(), rel=0.05)
    assert noise_scores(np.ones(10)).max() == 0


def test_noise_floor_falls_with_the_square_root_of_n() -> None:
    confidence = np.random.default_rng(0).uniform(0.3, 1, 10_000)
    floors = [noise_scores(confidence[:n]).mean() for n in (2500, 10_000)]
    assert floors[0] / floors[1] == pytest.approx(2, rel=0.05)


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
        confidence = rng.uniform(0.4, 1, 800)
        estimate = estimate_from_confidences(confidence, rng.random(800) < confidence - shift, n_resamples=100)
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
    # Wilson's interval, from its equation.
    p, n, z = measurement.metrics["accuracy"].value, len(rows), 1.959964
    centre, half = (
        (p + z * z / 2 / n) / (1 + z * z / n),
        z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + (z / 2 / n) ** 2),
    )
    accuracy = measurement.metrics["accuracy"]
    assert (accuracy.low, accuracy.high) == pytest.approx((centre - half, centre + half), abs=1e-6)


@pytest.mark.parametrize("right", [True, False])
def test_an_accuracy_of_all_or_nothing_has_an_interval_with_a_width(right: bool) -> None:
    rows = SampleRows.from_logits(torch.tensor([[3.0, 0.0]] * 50), torch.full((50,), 0 if right else 1))
    accuracy = measure(rows).metrics["accuracy"]
    assert (accuracy.low, accuracy.high) == pytest.approx((50 / 53.84, 1) if right else (0, 3.84 / 53.84), abs=1e-3)


CALIBRATION = ("ece", "nll", "brier", "debiased_ece", "confidence_gap")


def test_compare_says_better_worse_and_undecided() -> None:
    calibrated, sharp = sampled_rows(0), sampled_rows(0, sharpen=3.0)
    result, mirrored = compare(calibrated, sharp), compare(sharp, calibrated)
    assert [result[name].verdict for name in CALIBRATION] == ["better"] * 5
    assert [mirrored[name].verdict for name in CALIBRATION] == ["worse"] * 5
    assert result["accuracy"].verdict == mirrored["accuracy"].verdict == "equal"  # sharpening changes no prediction
    for name, found in result.items():
        assert found.difference == pytest.approx(-mirrored[name].difference)
        assert (found.low, found.high) == pytest.approx((-mirrored[name].high, -mirrored[name].low), abs=1e-9)
        assert found.low <= found.difference <= found.high and found.covers == "images"


def test_compared_values_are_those_of_the_plain_functions() -> None:
    rows, other = sampled_rows(0, sharpen=2.0), sampled_rows(0, noise=1.0)
    result = compare(rows, other)
    for side, of_side in (("a", rows), ("b", other)):
        summary = summarize(of_side)
        for name in ("accuracy", "nll", "ece", "brier"):
            assert getattr(result[name], side) == pytest.approx(summary[name])
        confidence, measured = of_side.confidence.astype(np.float64), risk_coverage(of_side, n_resamples=2)
        debiased = calibration_error(confidence, of_side.correct, debiased=True)
        assert getattr(result["debiased_ece"], side) == pytest.approx(debiased)
        assert getattr(result["confidence_gap"], side) == pytest.approx(confidence.mean() - summary["accuracy"])
        assert getattr(result["aurc"], side) == pytest.approx(measured.aurc.value)
        assert getattr(result["excess_aurc"], side) == pytest.approx(measured.excess_aurc.value)
        for risk, coverage in measured.coverage_at_risk.items():
            assert getattr(result[f"coverage_at_{risk}_risk"], side) == pytest.approx(coverage.value)


def test_compare_higher_accuracy_is_better() -> None:
    result = compare(sampled_rows(0), sampled_rows(0, noise=6.0))
    assert result["accuracy"].verdict == result["coverage_at_10%_risk"].verdict == result["aurc"].verdict == "better"


@pytest.mark.parametrize("order", [[0], [0, 1, 2], [2, 0, 1]])
def test_compare_with_itself_is_equal_everywhere(order: list[int]) -> None:
    runs = [sampled_rows(1, noise=noise) for noise in (1.0, 1.5, 2.0)]
    for comparison in compare(runs[: len(order)], [runs[place] for place in order]).values():
        assert (comparison.difference, comparison.low, comparison.high, comparison.verdict) == (0, 0, 0, "equal")


@pytest.mark.parametrize(("n", "verdict"), [(4, "undecided"), (5, "better")])
def test_few_differing_images_do_not_decide(n: int, verdict: str) -> None:
    """Of 100 images n are right in `a` only and none in `b` only: a two-sided sign test of 4 has p = 0.125."""
    label, zeros = np.zeros(100, np.int32), np.zeros(100, np.float32)
    wrong = (np.arange(100) < n).astype(np.int32)
    a, b = (SampleRows(label, prediction, zeros + 0.5, zeros, zeros, zeros) for prediction in (label, wrong))
    assert compare(a, b)["accuracy"].verdict == verdict


@pytest.mark.parametrize("runs", [1, 3])
def test_interval_of_ece_holds_the_truth_against_a_calibrated_side(runs: int) -> None:
    """The plug-in error of a calibrated model is all noise, so the plug-in difference is too small; true is -0.1."""
    rng, n, truth = np.random.default_rng(0), 600, -0.1
    label, zeros = np.zeros(n, np.int32), np.zeros(n, np.float32)
    held = {"ece": 0, "debiased_ece": 0}
    for _ in range(60):
        confidence, luck = rng.uniform(0.4, 0.9, n), rng.random(n)

        def run(claimed: np.ndarray, confidence: np.ndarray = confidence, luck: np.ndarray = luck) -> SampleRows:
            wrong = np.where(rng.random(n) < 0.7, luck, rng.random(n)) >= confidence
            return SampleRows(label, wrong.astype(np.int32), claimed.astype(np.float32), zeros, zeros, zeros)

        found = compare(*([run(confidence + gap) for _ in range(runs)] for gap in (0, 0.1)), n_resamples=2)
        for name in held:
            held[name] += found[name].low <= truth <= found[name].high
    assert min(held.values()) >= 54


def test_what_two_sides_share_does_not_widen_the_interval_of_their_ece() -> None:
    """Two calibrated models, nearly the same: how much of either error is noise is unknown, and the same for both."""
    rows = sampled_rows(0, n=2000)
    near = dataclasses.replace(rows, confidence=np.clip(rows.confidence * np.float32(1.0001), 0, 1))
    found = compare(rows, near)["ece"]
    least, _, most = noise_inflation(rows.confidence.astype(np.float64), rows.correct)
    assert most - least > 0.002 and found.high - found.low < 0.25 * (most - least)


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.3])
def test_noise_inflation_is_what_noise_adds(gap: float) -> None:
    rng, added, estimates = np.random.default_rng(0), [], []
    for _ in range(300):
        confidence = rng.uniform(0.4, 1, 500)
        correct = rng.random(500) < confidence - gap
        added.append(calibration_error(confidence, correct) - gap)
        estimates.append(noise_inflation(confidence, correct))
    least, about, most = np.mean(estimates, axis=0)
    assert least <= about <= most
    assert least - 0.005 <= np.mean(added) <= most + 0.005  # a little too much is taken out of gaps as small as noise
    if gap != 0.05:  # where noise and gaps are alike, only the range is known
        assert about == pytest.approx(np.mean(added), rel=0.2, abs=0.002)


def test_noise_inflation_of_a_model_that_is_sure_and_right_is_nothing() -> None:
    assert noise_inflation(np.ones(20), np.ones(20, dtype=bool)).tolist() == [0, 0, 0]


def test_no_noise_floor_decides_an_ece() -> None:
    # 4,000 samples in one bin: b claims a little more than a, the same on every image, and less than the noise floor.
    n = 4000
    label, prediction = np.zeros(n, np.int32), np.repeat(np.array([0, 1], np.int32), n // 2)
    zeros = np.zeros(n, np.float32)
    a, b = (SampleRows(label, prediction, np.full(n, c, np.float32), zeros, zeros, zeros) for c in (0.55, 0.553))
    assert compare(a, b)["ece"].verdict == "better"
    assert noise_scores(a.confidence).mean() > 0.003


def test_pairing_makes_small_differences_visible() -> None:
    rows = sampled_rows(2, n=2000)
    shifted = SampleRows(
        rows.label, rows.prediction, rows.confidence, rows.nll + np.float32(0.01), rows.brier, rows.margin
    )
    result = compare(rows, shifted)["nll"]
    assert result.verdict == "better" and result.high - result.low < 1e-6


def test_of_several_runs_the_mean_counts() -> None:
    a, b = [sampled_rows(0, noise=1.0), sampled_rows(0, noise=3.0)], [sampled_rows(0), sampled_rows(0, sharpen=2.0)]
    found = compare(a, b)
    for name in ("accuracy", "nll", "ece", "brier"):
        of_a, of_b = (np.mean([summarize(rows)[name] for rows in side]) for side in (a, b))
        assert (found[name].a, found[name].b) == pytest.approx((of_a, of_b))
    assert {comparison.covers for comparison in found.values()} == {"images and seeds"}
    expected = paired_difference([r.nll for r in a], [r.nll for r in b], higher_is_better=False)
    assert found["nll"][:5] == pytest.approx(expected[:5]) and found["nll"].verdict == expected.verdict
    paired = compare(a, b, same_seeds=True)["nll"]
    expected = paired_difference([r.nll for r in a], [r.nll for r in b], same_seeds=True)
    assert paired[:5] == pytest.approx(expected[:5]) and paired.low != found["nll"].low
    assert compare(a[:1], b[:1]) == compare(a[0], b[0])
    with pytest.raises(ValueError, match="at least one run"):
        compare(a, [])


def test_a_spread_of_seeds_is_no_difference_of_recipes() -> None:
    """Each single pair differs beyond the images alone; with three seeds a side that is no difference of recipes."""
    sharpness = [[1.0, 1.3, 1.6], [1.05, 1.25, 1.6]]
    a, b = ([sampled_rows(0, sharpen=s, n=4000) for s in side] for side in sharpness)
    assert compare(a[0], b[2])["nll"].verdict == "better"
    assert compare(a, b)["nll"].verdict == "undecided"


def test_compare_refuses_other_samples() -> None:
    with pytest.raises(ValueError, match="same samples"):
        compare(sampled_rows(0), sampled_rows(5))
    with pytest.raises(ValueError, match="1000 and 10 rows"):
        compare(sampled_rows(0), sampled_rows(0, n=10))


def test_estimate_errors() -> None:
    for variant in ("equal_width", "classwise"):
        with pytest.raises(ValueError, match=r"shape \(n, classes\)"):
            estimate_calibration_error([0.1, 0.9], [0, 1], variant=variant)
        with pytest.raises(ValueError, match="n_resamples must be positive, got -1"):
            estimate_calibration_error([[0.1, 0.9]], [0], variant=variant, n_resamples=-1)
    with pytest.raises(ValueError, match="n_resamples must be positive, got 0"):
        measure(sampled_rows(0), n_resamples=0)


def test_classwise_intervals_of_many_classes_are_made_in_blocks() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((300, 400)), rng.integers(0, 400, 300)
    tracemalloc.start()
    estimate = estimate_calibration_error(logits, labels, variant="classwise", n_resamples=300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert estimate.low <= estimate.ece <= estimate.high
    assert peak < 200 * 2**20


def test_no_interval_of_a_difference_leaves_what_is_possible() -> None:
    """One run against two that could not differ more: the spread of two runs is known so badly that t(1) is 12.7."""
    labels = torch.arange(100) % 2
    right = 9.0 * torch.nn.functional.one_hot(labels, 2)
    good, bad = SampleRows.from_logits(right, labels), SampleRows.from_logits(-right, labels)
    found = compare(good, [good, bad])
    largest = {"nll": np.inf, "brier": 2.0, "confidence_gap": 2.0}
    for name, result in found.items():
        bound = largest.get(name, 1.0)
        assert -bound <= result.low <= result.difference <= result.high <= bound, name
    assert (found["accuracy"].low, found["ece"].high) == (-1.0, 1.0)
