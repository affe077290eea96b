"""Two models or recipes on the same images: verdicts, values of the plain functions, coverage."""

import numpy as np
import pytest
import torch

from macs_hf.metrics import calibration_error, compare, paired_difference, risk_coverage, summarize
from macs_hf.report.rows import SampleRows


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
