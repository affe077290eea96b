"""Risk and coverage: what share of answers is wrong if only the most confident images get one.

With images in descending confidence and e[i] = 1 for an error:

    risk(k) = (e[1] + ... + e[k]) / k,    coverage(k) = k / n,
    AURC    = (trapezoid area under risk over coverage, from 1 / n to 1) / (1 - 1 / n)

as torch-uncertainty has it; Geifman and El-Yaniv's mean of risk(k) differs by at most 1 / (n - 1). Images of equal
confidence count with the mean over their orders. AURC is linear in the errors, with a weight for each rank:

    AURC = sum over i of e[i] weight(i),    weight(i) = (sum over k >= i of trapezoid(k) / k) / (n - 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..report.interval import Interval
from ..report.risk_coverage import RiskCoverage
from ..report.rows import SampleRows
from .bootstrap import resample_counts
from .score_options import check_level, check_resamples


RISKS = {"1%": 0.01, "5%": 0.05, "10%": 0.10}
CURVE_POINTS = 100
MAX_DRAWS = 3_000_000  # images x resamples: larger test sets are steadier and need fewer resamples


class Ordered(NamedTuple):
    """Images of equal confidence are one step, in descending confidence.

    `step` has the step of each image, `images` the images in the order of their steps; `size` and `errors` are of the
    steps.
    """

    step: np.ndarray
    images: np.ndarray
    size: np.ndarray
    errors: np.ndarray


def risk_coverage(rows: SampleRows, *, n_resamples: int = 2000, level: float = 0.95, seed: int = 0) -> RiskCoverage:
    """
    AURC, its excess over the best ordering, and the coverage at 1, 5 and 10 % risk, with bootstrap intervals.

    Args:
        rows ([`SampleRows`]):
            One row per sample, at least two.
        n_resamples (`int`, *optional*, defaults to `2000`):
            Number of bootstrap resamples; fewer, but at least 200, are used for more than 1,500 samples.
        level (`float`, *optional*, defaults to `0.95`):
            Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the resamples.

    Example:

    ```python
    >>> import torch
    >>> rows = SampleRows.from_logits(torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> found = risk_coverage(rows)
    >>> round(found.aurc.value, 6), found.excess_aurc.value, round(found.coverage_at_risk["5%"].value, 6)
    (0.083333, 0.0, 0.666667)

    ```
    """
    check_resamples(n_resamples)
    check_level(level)
    n = len(rows)
    if n < 2:
        raise ValueError("risk_coverage needs at least two samples")
    order = ordered(rows.confidence, rows.correct)
    values = _areas(order.size, order.errors)[:, 0]
    scores, answered = [], []
    for counts in _counts(n, min(n_resamples, max(200, MAX_DRAWS // n)), seed):
        size, errors = _resampled(order, ~rows.correct, counts)
        scores.append(_areas(size, errors))
        answered.append(coverages(size, errors))
    scores, answered = np.concatenate(scores, axis=1), np.concatenate(answered, axis=1)
    measured = coverages(order.size, order.errors)[:, 0]
    end = np.cumsum(order.size)
    shown = np.unique(np.linspace(0, len(end) - 1, CURVE_POINTS).round().astype(int))
    return RiskCoverage(
        aurc=_interval(values[0], scores[0], level),
        excess_aurc=_interval(values[1], scores[1], level),
        coverage_at_risk={name: _interval(measured[i], answered[i], level) for i, name in enumerate(RISKS)},
        coverage=tuple((end[shown] / n).tolist()),
        risk=tuple((np.cumsum(order.errors) / end)[shown].tolist()),
    )


def ordered(confidence: np.ndarray, correct: np.ndarray) -> Ordered:
    _, step, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    return Ordered(
        step, np.argsort(step, kind="stable"), size, np.bincount(step, weights=~correct, minlength=len(size))
    )


def rank_weights(n: int) -> np.ndarray:
    """Sums of the weights of the first i ranks, i from 0 to n: `(n + 1,)`."""
    trapezoid = np.ones(n)
    trapezoid[[0, -1]] = 0.5
    weights = np.cumsum((trapezoid / np.arange(1, n + 1))[::-1])[::-1] / (n - 1)
    return np.concatenate([[0.0], np.cumsum(weights)])


def coverages(size: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """For each of `RISKS` the largest coverage at which the risk is at most that, else 0: `(risks, resamples)`."""
    size, errors = np.atleast_2d(size), np.atleast_2d(errors)
    answered, wrong = np.cumsum(size, axis=1), np.cumsum(errors, axis=1)
    # A hair above the bound, since 0.05 * 20 need not be 1.
    found = [np.where(wrong <= risk * answered + 1e-9, answered, 0).max(axis=1) for risk in RISKS.values()]
    return np.stack(found) / answered[:, -1]


def aurc_without_each(
    confidence: np.ndarray, correct: np.ndarray
) -> tuple[tuple[float, np.ndarray], tuple[float, np.ndarray]]:
    """AURC and its excess, each with the scores without each sample in turn, shape `(n,)`."""
    step, _, size, errors = ordered(confidence, correct)
    n, own = len(confidence), ~correct
    area, excess = _areas(size, errors)[:, 0]
    if n == 2:
        return (float(area), own[::-1].astype(float)), (float(excess), np.zeros(2))
    sums = rank_weights(n - 1)
    end = np.cumsum(size)
    start = end - size
    per_error = errors / size
    before = np.cumsum(per_error * (sums[np.minimum(end, n - 1)] - sums[start]))  # ranks of steps before stay
    before = np.concatenate([[0.0], before[:-1]])
    after = per_error * (sums[end - 1] - sums[np.maximum(start - 1, 0)])  # those after move up by one
    after = after.sum() - np.cumsum(after)
    mean = (sums[end - 1] - sums[start]) / np.maximum(size - 1, 1)
    without = before[step] + after[step] + (errors[step] - own) * mean[step]
    best = sums[-1] - sums[np.maximum(n - 1 - (own.sum() - own.astype(int)), 0)]
    return (float(area), without), (float(excess), without - best)


def resampled_coverages(
    confidence: np.ndarray, correct: np.ndarray, n_resamples: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Coverages at `RISKS` of runs on the same samples `(risks, runs)`; of resamples `(risks, runs, resamples)`."""
    orders = [ordered(c, y) for c, y in zip(confidence, correct, strict=True)]
    values = np.concatenate([coverages(order.size, order.errors) for order in orders], axis=1)
    blocks = [
        np.stack([coverages(*_resampled(order, ~own, counts)) for order, own in zip(orders, correct, strict=True)], 1)
        for counts in _counts(confidence.shape[1], n_resamples, seed)
    ]
    return values, np.concatenate(blocks, axis=2)


def _areas(size: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """AURC and its excess over the best ordering, `(2, resamples)`, from steps `(resamples, steps)`."""
    size, errors = np.atleast_2d(size), np.atleast_2d(errors)
    end = np.cumsum(size, axis=1)
    n = int(end[0, -1])
    sums = rank_weights(n)
    area = (errors / np.maximum(size, 1) * (sums[end] - sums[end - size])).sum(axis=1)
    best = sums[n] - sums[n - errors.sum(axis=1).astype(np.int64)]
    return np.stack([area, np.maximum(area - best, 0.0)])


def _counts(n: int, n_resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each sample is drawn, `(resamples, n)`, in blocks."""
    rng, block = np.random.default_rng(seed), max(1, 2**17 // n)
    for start in range(0, n_resamples, block):
        yield resample_counts(rng, min(block, n_resamples - start), n).astype(np.int32)


def _resampled(order: Ordered, wrong: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and errors of the steps of each resample."""
    counts, wrong = counts[:, order.images], wrong[order.images]
    if len(order.size) == len(wrong):  # no two images of equal confidence
        return counts, counts * wrong
    starts = np.cumsum(order.size) - order.size
    return np.add.reduceat(counts, starts, axis=1), np.add.reduceat(counts * wrong, starts, axis=1)


def _interval(value: float, scores: np.ndarray, level: float) -> Interval:
    low, high = (float(q) for q in np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]))
    return Interval(float(value), min(low, float(value)), max(high, float(value)))
