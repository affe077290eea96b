"""Differences of runs and models: closed forms, verdicts, and simulated coverage."""

import numpy as np
import pytest
import torch
from scipy import stats

from macs_hf.metrics import calibration_error, compare, difference_of_runs, paired_difference, risk_coverage, summarize
from macs_hf.report.rows import SampleRows


# ---- Differences of numbers, over images and seeds ----


Z = stats.norm.ppf(0.975)


def half(found) -> float:
    assert found.difference - found.low == pytest.approx(found.high - found.difference)
    return found.high - found.difference


def test_one_run_a_side_is_the_paired_interval_of_the_images() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, (1, 50)), rng.normal(0, 1, (1, 50))
    found = paired_difference(a, b)
    assert found.covers == "images" and found.verdict == "better"
    assert found.difference == pytest.approx((a - b).mean())
    assert half(found) == pytest.approx(Z * (a - b).std(ddof=1) / np.sqrt(50))
    assert paired_difference(a, b, higher_is_better=False).verdict == "worse"
    assert paired_difference(b, a).verdict == "worse"
    wide = paired_difference(a, b, level=0.999)
    assert half(wide) / half(found) == pytest.approx(stats.norm.ppf(0.9995) / Z)


def test_seeds_images_and_interaction_in_closed_form() -> None:
    """Two against two: the equations of the module, with the interaction from the residuals of a two-way table."""
    rng = np.random.default_rng(1)
    n = 200
    image = rng.normal(0, 1, n)
    a, b = (image * 0.5 * side + rng.normal(0, 0.1, (2, 1)) + rng.normal(0, 0.3, (2, n)) for side in (0, 1))
    seeds = sum(side.mean(axis=1).var(ddof=1) / 2 for side in (a, b))
    images = (a.mean(axis=0) - b.mean(axis=0)).var(ddof=1) / n
    interaction = 0.0
    for side in (a, b):
        residual = side - side.mean(axis=0) - side.mean(axis=1, keepdims=True) + side.mean()
        interaction += (residual**2).sum() / (n - 1) / n / 2
    spread = np.array([side.mean(axis=1).var(ddof=1) for side in (a, b)])
    moderated = (spread + spread.mean()) / 2
    freedom = moderated.sum() ** 2 / (moderated**2).sum()
    expected = np.sqrt(stats.t.ppf(0.975, freedom) ** 2 * seeds + Z**2 * (images - interaction))
    found = paired_difference(a, b)
    assert half(found) == pytest.approx(expected)
    assert found.covers == "images and seeds"


def test_pairs_of_the_same_seed_in_closed_form() -> None:
    """What a seed does to both sides cancels; the interaction is that of the differences."""
    rng = np.random.default_rng(7)
    shared = rng.normal(0, 1, (4, 1))
    a, b = (shared + rng.normal(0, 0.1, (4, 1)) + rng.normal(0, 0.3, (4, 300)) for _ in "ab")
    d = a - b
    residual = d - d.mean(axis=0) - d.mean(axis=1, keepdims=True) + d.mean()
    images = d.mean(axis=0).var(ddof=1) / 300 - (residual**2).sum() / 3 / 299 / 300 / 4
    seeds = d.mean(axis=1).var(ddof=1) / 4
    found = paired_difference(a, b, same_seeds=True)
    assert half(found) == pytest.approx(np.sqrt(stats.t.ppf(0.975, 3) ** 2 * seeds + Z**2 * max(images, 0)))
    assert half(found) < half(paired_difference(a, b)) / 2
    with pytest.raises(ValueError, match="same_seeds"):
        paired_difference(a, b[:3], same_seeds=True)


def test_a_single_run_borrows_the_spread_of_the_other_side() -> None:
    zeros = np.zeros((6, 6))
    found = difference_of_runs([1.0], [0.0, 0.1, 0.2, 0.3, 0.4], zeros)
    spread = np.var([0.0, 0.1, 0.2, 0.3, 0.4], ddof=1)
    assert half(found) == pytest.approx(stats.t.ppf(0.975, 4) * np.sqrt(spread * (1 + 1 / 5)))
    assert found.covers == "images and seeds"


def test_standard_errors_of_unrelated_sides_add_up() -> None:
    """Blocks of equal entries: what one side's images add to its runs is the same for all of them."""
    blocks = np.zeros((5, 5))
    blocks[:2, :2], blocks[2:, 2:] = 0.03**2, 0.04**2
    found = difference_of_runs([1.0, 1.0], [0.5, 0.5, 0.5], blocks)
    assert half(found) == pytest.approx(Z * 0.05)


def test_equal_runs_are_equal_and_nothing_else_is() -> None:
    a = np.random.default_rng(0).integers(0, 2, (1, 30))
    assert paired_difference(a, a)[2:6] == (0, 0, 0, "equal")
    swapped = a.copy()
    swapped[0, [np.flatnonzero(a[0])[0], np.flatnonzero(a[0] == 0)[0]]] ^= 1
    found = paired_difference(a, swapped)
    assert found.difference == 0 and found.verdict == "undecided"
    several = np.random.default_rng(1).integers(0, 2, (3, 30))
    for same_seeds in (False, True):
        assert paired_difference(several, several[::-1], same_seeds=same_seeds)[2:6] == (0, 0, 0, "equal")
    assert paired_difference(several, several[[0, 0, 1, 1, 2, 2]])[2:6] == (0, 0, 0, "equal")
    assert paired_difference(several, several[[0, 0, 1, 2]]).verdict == "undecided"
    no_images = np.zeros((4, 4))  # what the images would say is not known, only what the seeds do
    found = difference_of_runs([0.5, 0.6], [0.6, 0.5], no_images)
    assert found.verdict == "undecided" and half(found) > 0.1


def test_a_bias_shifts_the_interval_by_all_that_it_may_be() -> None:
    covariance = np.diag([0.0001, 0.0])
    assert difference_of_runs([1.03], [1.0], covariance).verdict == "better"
    found = difference_of_runs([1.03], [1.0], covariance, bias=(0.005, 0.02))
    assert (found.low, found.high) == pytest.approx((0.01 - Z * 0.01, 0.025 + Z * 0.01))
    assert found.verdict == "undecided"
    found = difference_of_runs([1.01], [1.0], covariance, bias=(-0.06, -0.05))
    assert (found.low, found.high) == pytest.approx((0.01, 0.07 + Z * 0.01))  # widened to hold the difference
    assert found.verdict == "better"
    found = difference_of_runs([1.0], [1.01], covariance, bias=(-0.06, -0.05))
    assert found.verdict == "undecided"  # 0 is between what was measured and the interval of the truth
    assert (found.low, found.high) == pytest.approx((-0.01, 0.05 + Z * 0.01))


def test_images_seen_under_one_column_each_are_strata() -> None:
    """The mean over columns of the means of their images; NaN where nothing was measured."""
    rng = np.random.default_rng(3)
    column = np.repeat([1, 0], [10, 90])
    a, b = rng.normal(size=(2, 1, 100)) + 5 * (column == 0)
    spread = [np.where(column[:, None] == [0, 1], side[..., None], np.nan) for side in (a, b)]
    found = paired_difference(*spread)
    parts = [(a - b)[0, column == c] for c in (0, 1)]
    assert found.difference == pytest.approx(np.mean([part.mean() for part in parts]))
    variance = sum(0.25 * part.var(ddof=1) / len(part) for part in parts)
    assert half(found) == pytest.approx(Z * np.sqrt(variance))
    weighted = paired_difference(*spread, weights=[3, 1])
    assert weighted.difference == pytest.approx(0.75 * parts[0].mean() + 0.25 * parts[1].mean())


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), {}, "a and b"),
        (np.zeros((1, 1)), np.ones((1, 1)), {}, "two images"),
        (np.array([[0, np.nan, 1]]), np.zeros((1, 3)), {}, "NaN"),
        (np.zeros((1, 3)), np.zeros((1, 3)), {"weights": [-1.0]}, "weights"),
    ],
)
def test_errors(a: np.ndarray, b: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paired_difference(a, b, **options)


UNPAIRED = [(1, 1), (2, 2), (3, 3), (5, 5), (2, 4), (1, 3)]


@pytest.mark.parametrize(
    ("runs", "same_seeds"), [(runs, False) for runs in UNPAIRED] + [(runs, True) for runs in UNPAIRED[1:4]]
)
@pytest.mark.parametrize("interaction", [0.0, 1.0])
def test_intervals_cover(runs: tuple[int, int], same_seeds: bool, interaction: float) -> None:
    """Here 400 studies, within four standard errors; a larger simulation: model_cards/benchmarks/coverage.json."""
    rng = np.random.default_rng(6)
    seed_sd = 0.0 if runs == (1, 1) else 0.03
    hits = 0
    for _ in range(400):
        common = rng.exponential(1, 200)
        a, b = (
            common + rng.normal(0, 0.4, 200) + rng.normal(0, seed_sd, (s, 1)) + rng.normal(0, interaction, (s, 200))
            for s in runs
        )
        found = paired_difference(a, b, same_seeds=same_seeds)
        hits += found.low <= 0 <= found.high
    assert 0.90 <= hits / 400 <= 0.995


# ---- Two models or recipes on the same images ----


def sampled_rows(seed: int, n: int = 1000, sharpen: float = 1.0, noise: float = 0.0) -> SampleRows:
    """Logits whose softmax is the truth, multiplied by `sharpen` (1 is calibrated) and disturbed by `noise`."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 4, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return SampleRows.from_logits(sharpen * logits + noise * torch.randn(n, 4, generator=generator), labels)


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
    noisier = compare(calibrated, sampled_rows(0, noise=6.0))
    assert {noisier[name].verdict for name in ("accuracy", "coverage_at_10%_risk", "aurc")} == {"better"}


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


@pytest.mark.parametrize("other", [sampled_rows(5), sampled_rows(0, n=10), []], ids=["labels", "length", "none"])
def test_compare_refuses_other_samples(other: SampleRows | list) -> None:
    with pytest.raises(ValueError, match="compare needs"):
        compare(sampled_rows(0), other)


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
