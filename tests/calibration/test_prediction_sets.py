"""Prediction sets: the law of their coverage over random splits, closed forms, and bad input."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import macs_hf.calibration.prediction_sets
import macs_hf.calibration.temperature
from macs_hf.calibration import prediction_set_threshold, prediction_sets
from macs_hf.calibration.prediction_sets import label_scores


def samples(n: int, classes: int = 10, scale: float = 3.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 logits of a model that is overconfident by a factor of two."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(n, classes))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    return torch.tensor(logits, dtype=torch.float32), torch.tensor(labels)


@pytest.mark.parametrize("method", ["lac", "raps"])
@pytest.mark.parametrize(("scale", "coverage"), [(3.0, 0.9), (3.0, 0.8), (12.0, 0.95)])
def test_coverage_follows_the_beta_binomial_law(method: str, scale: float, coverage: float) -> None:
    # Over random splits of one pool, the number of covered test samples has exactly this distribution. At a scale of
    # 12, sure samples would have equal scores in float32.
    n, m, splits = 119, 300, 600
    logits, labels = samples(1000, scale=scale)
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(splits):
        rows = torch.from_numpy(rng.permutation(len(labels)))
        held_out, test = rows[:n], rows[n : n + m]
        threshold = prediction_set_threshold(logits[held_out], labels[held_out], coverage, method)
        hits.append(int((label_scores(logits[test], labels[test], method) <= threshold).sum()))
    k = math.ceil((n + 1) * coverage - 1e-9)
    law = stats.betabinom(m, k, n + 1 - k)
    assert abs(np.mean(hits) - law.mean()) < 3.5 * law.std() / math.sqrt(splits)
    # The largest distance of the two distribution functions, against the bound that chance exceeds once in 10,000.
    counts = np.arange(m + 1)
    distance = np.abs((np.array(hits)[:, None] <= counts).mean(0) - law.cdf(counts)).max()
    assert distance < math.sqrt(math.log(2e4) / (2 * splits))


def test_raps_scores_by_hand() -> None:
    probabilities = [0.3, 0.05, 0.2, 0.15, 0.1, 0.08, 0.07, 0.05]
    logits = [[math.log(p) for p in probabilities]] * 8
    # Ranks 1, 7, 2, 3, 4, 5, 6, 8: of equal probabilities the first class comes first.
    wanted = [0.15, 0.9 + 0.025 + 0.02, 0.4, 0.575, 0.7, 0.79, 0.83 + 0.035 + 0.01, 0.95 + 0.025 + 0.03]
    assert label_scores(logits, list(range(8)), "raps").tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("method", ["lac", "raps"])
def test_sets_hold_the_most_probable_classes_and_grow_with_the_coverage(method: str) -> None:
    logits, labels = samples(600)
    smaller = torch.zeros_like(logits, dtype=torch.bool)
    for coverage in (0.5, 0.8, 0.9, 0.99):
        threshold = prediction_set_threshold(logits[:300], labels[:300], coverage, method)
        sets = prediction_sets(logits, threshold, method)
        assert sets.dtype == torch.bool and sets.shape == logits.shape
        assert sets.gather(1, logits.argmax(1, keepdim=True)).all()
        # No class outside of a set is more probable than one inside.
        least = logits.masked_fill(~sets, math.inf).amin(1)
        assert (logits.masked_fill(sets, -math.inf).amax(1) <= least).all()
        assert (smaller <= sets).all()
        smaller = sets


def test_the_threshold_is_an_order_statistic() -> None:
    probability = np.linspace(0.995, 0.005, 100)  # of the own class
    logits = np.log(np.stack([probability, 1 - probability], axis=1))
    for n, coverage, place in [(99, 0.95, 95), (19, 0.95, 19), (9, 0.9, 9), (4, 0.8, 4), (100, 0.5, 51)]:
        threshold = prediction_set_threshold(logits[:n], [0] * n, coverage)
        assert threshold == pytest.approx(1 - probability[place - 1], abs=1e-12)


@pytest.mark.parametrize(("coverage", "needed"), [(0.8, 4), (0.9, 9), (0.999, 999)])
def test_too_few_samples_are_refused_with_the_number_it_takes(coverage: float, needed: int) -> None:
    logits, labels = samples(needed)
    assert math.isfinite(prediction_set_threshold(logits, labels, coverage))
    with pytest.raises(ValueError, match=str(needed)):
        prediction_set_threshold(logits[1:], labels[1:], coverage)


def test_arrays_lists_and_chunks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = samples(50)
    threshold = prediction_set_threshold(logits, labels, 0.9, "raps")
    sets = prediction_sets(logits, threshold, "raps")
    monkeypatch.setattr(macs_hf.calibration.temperature, "VALUES_PER_CHUNK", 30)
    assert prediction_set_threshold(logits.tolist(), labels.tolist(), 0.9, "raps") == threshold
    assert torch.equal(prediction_sets(logits.numpy(), threshold, "raps"), sets)


def test_wrong_inputs_are_refused() -> None:
    logits, labels = samples(20)
    for coverage in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="coverage"):
            prediction_set_threshold(logits, labels, coverage)
    with pytest.raises(ValueError, match="Label 10 of row 3"):
        prediction_set_threshold(logits, labels.index_fill(0, torch.tensor([3]), 10))
    with pytest.raises(ValueError, match="'aps'"):
        prediction_set_threshold(logits, labels, method="aps")
    with pytest.raises(ValueError, match="threshold"):
        prediction_sets(logits, math.nan)
