"""AUROC and FPR at 95 % TPR: every pair, scikit-learn's curve, ties, coverage of the intervals, bad input."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.metrics import roc_auc_score, roc_curve

from macs_hf.metrics import detection


def scikit_learn(known: np.ndarray, unknown: np.ndarray) -> tuple[float, float]:
    truth = np.repeat([1, 0], [len(known), len(unknown)])
    scores = np.concatenate([known, unknown])
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    return roc_auc_score(truth, scores), fpr[np.argmax(tpr >= 0.95 - 1e-12)]


@pytest.mark.parametrize(("n", "m"), [(1, 1), (20, 7), (19, 300), (400, 400)])
@pytest.mark.parametrize("digits", [0, 1, 8])  # few digits: many ties
def test_values_are_those_of_all_pairs_and_of_scikit_learn(n: int, m: int, digits: int) -> None:
    rng = np.random.default_rng(n + m)
    known, unknown = rng.normal(1, 1, n).round(digits), rng.normal(0, 1, m).round(digits)
    found = detection(known, unknown, n_resamples=10)
    pairs = (known[:, None] > unknown) + (known[:, None] == unknown) / 2
    assert found.auroc.value == pytest.approx(pairs.mean())
    auroc, fpr = scikit_learn(known, unknown)
    assert (found.auroc.value, found.fpr95.value) == pytest.approx((auroc, fpr))
    for interval in (found.auroc, found.fpr95):
        assert 0 <= interval.low <= interval.value <= interval.high <= 1


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Of normal scores at distance d, AUROC is Phi(d / sqrt 2) and FPR at 95 % is Phi(1.645 - d)."""
    distance, studies, held = 1.5, 300, np.zeros(2)
    truth = ndtr(distance / np.sqrt(2)), ndtr(1.6448536 - distance)
    for seed in range(studies):
        rng = np.random.default_rng(seed)
        found = detection(rng.normal(distance, 1, 150), rng.normal(0, 1, 150), n_resamples=300)
        held += [part.low <= t <= part.high for part, t in zip((found.auroc, found.fpr95), truth, strict=True)]
    assert (held / studies > 0.91).all(), held / studies


def test_sets_that_do_not_overlap_are_not_certain() -> None:
    found = detection(np.arange(10.0, 40), np.arange(10.0))
    assert (found.auroc.value, found.auroc.high, found.fpr95.value, found.fpr95.low) == (1, 1, 0, 0)
    assert found.auroc.low == pytest.approx(0.7225, abs=1e-4) and found.fpr95.high == pytest.approx(0.2775, abs=1e-4)
    assert detection([0.0, 0.0], [1.0, 1.0]).auroc.value == 0


@pytest.mark.parametrize(
    ("known", "unknown", "message"),
    [([], [1.0], "known"), ([1.0], [[1.0]], "unknown"), ([1.0, np.nan], [1.0], "known")],
)
def test_what_is_no_score(known: list, unknown: list, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message} "):
        detection(known, unknown)
    with pytest.raises(ValueError, match="odin"):
        detection([1.0], [0.0], "odin")
