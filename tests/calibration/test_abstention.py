"""Answering only when sure: against the procedure written out, closed forms, and simulated guarantees."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from macs_hf.calibration import abstention_report, abstention_threshold
from macs_hf.calibration.abstention import THRESHOLDS


def written_out(confidence: np.ndarray, correct: np.ndarray, accuracy: float, delta: float) -> float | None:
    found = None
    for threshold in THRESHOLDS:
        answered = correct[confidence >= threshold]
        if len(answered) < max(math.log(delta) / math.log(accuracy), len(confidence) / 20):
            continue
        if stats.binomtest(int(answered.sum()), len(answered), accuracy, alternative="greater").pvalue > delta:
            break
        found = float(threshold)
    return found


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 800),
    accuracy=st.sampled_from([0.6, 0.8, 0.9, 0.95, 0.97]),
    delta=st.sampled_from([0.01, 0.05, 0.1]),
)
def test_it_is_the_procedure_written_out(seed: int, n: int, accuracy: float, delta: float) -> None:
    rng = np.random.default_rng(seed)
    confidence = 1 - rng.random(n) ** 3
    correct = rng.random(n) < confidence
    assert abstention_threshold(confidence, correct, accuracy, delta) == written_out(
        confidence, correct, accuracy, delta
    )


@pytest.mark.parametrize(("accuracy", "delta", "needed"), [(0.95, 0.05, 59), (0.9, 0.05, 29), (0.99, 0.05, 299)])
def test_how_many_right_answers_it_takes(accuracy: float, delta: float, needed: int) -> None:
    assert abstention_threshold([0.7] * needed, [True] * needed, accuracy, delta) == 0.0
    fit = abstention_report([0.7] * (needed - 1), [True] * (needed - 1), accuracy, delta)
    assert fit.threshold is None and fit.num_samples == needed - 1
    assert str(needed) in fit.reason


def test_a_model_that_is_wrong_where_it_is_sure_gets_no_threshold() -> None:
    confidence = np.concatenate([np.full(80, 0.9999), np.full(700, 0.5)])
    correct = np.concatenate([np.arange(80) % 2, np.ones(700)])
    fit = abstention_report(confidence, correct)
    assert fit.threshold is None and "40 are wrong" in fit.reason


def simulated(confidence: list[float], share: list[float], right: list[float], n: int, draws: int = 800) -> float:
    """How often the guarantee of 0.9 at delta = 0.1 breaks for a population of a few confidences."""
    share, right = np.array(share) / sum(share), np.array(right)
    accuracy = np.cumsum(share * right) / np.cumsum(share)  # of answering from each confidence on, highest first
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(draws):
        counts = rng.multinomial(n, share)
        hits = rng.binomial(counts, right)
        correct = np.concatenate([np.arange(c) < k for c, k in zip(counts, hits, strict=True)])
        threshold = abstention_threshold(np.repeat(confidence, counts), correct, accuracy=0.9, delta=0.1)
        if threshold is not None:
            broken += accuracy[np.flatnonzero(np.array(confidence) >= threshold)[-1]] < 0.9
    return broken / draws


@pytest.mark.parametrize(
    ("share", "right", "n"),
    [
        ([1, 1, 1, 1], [0.899, 0.899, 0.899, 0.899], 300),  # just too low everywhere
        ([2, 2, 2, 4], [0.895, 0.895, 0.895, 0.895], 90),  # and few samples, so that thresholds are skipped
        ([2, 1, 1, 6], [0.88, 0.95, 0.92, 0.88], 90),  # it rises again where thresholds were skipped
    ],
)
def test_guarantees_are_broken_no_more_often_than_delta(share: list[float], right: list[float], n: int) -> None:
    assert simulated([0.99, 0.9, 0.8, 0.7], share, right, n) <= 0.1


@pytest.mark.parametrize(
    ("confidence", "correct", "options", "message"),
    [
        ([0.5], [True], {"accuracy": 1.0}, "accuracy"),
        ([0.5, 0.6], [True], {}, "confidence and correct"),
        ([0.5, math.nan], [True, True], {}, "confidence\\[1\\]"),
    ],
)
def test_wrong_inputs_are_refused(confidence: list, correct: list, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        abstention_threshold(confidence, correct, **options)
