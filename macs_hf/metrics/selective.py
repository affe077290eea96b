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

from ..report.report import Interval, RiskCoverage
from ..report.rows import SampleRows
from .ece import check_level, check_resamples
from .intervals import percentiles, resample_counts


RISKS = {"1%": 0.01, "5%": 0.05, "10%": 0.10}
CURVE_POINTS = 100
MAX_DRAWS = 3_000_000  # images x resamples: larger test sets are steadier and need fewer resamples
MAX_STEPS = 10_000  # of more images than this, neighbours in confidence are resampled as one step


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
            Number of bootstrap resamples; fewer, but at least 200, are used for more than 1,500 samples. Of more than
            10,000 samples, groups of neighbours in confidence are resampled, so that the cost is about that of a sort.
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
    n, wrong = len(rows), ~rows.correct
    if n < 2:
        raise ValueError("risk_coverage needs at least two samples")
    order, sums = ordered(rows.confidence, rows.correct), rank_weights(n)
    values = _scores(order.size, order.errors, sums)[:, 0]
    n_resamples = min(n_resamples, max(200, MAX_DRAWS // n))
    if n <= MAX_STEPS:
        blocks = (_resampled(order, wrong, counts) for counts in _counts(n, n_resamples, seed))
        shift = np.zeros_like(values)
    else:
        size, errors = _merged(order)
        blocks = _resampled_merged(size, errors, n_resamples, seed)
        shift = values - _scores(size, errors, sums)[:, 0]  # what merging changes
    scores = np.concatenate([_scores(*block, sums) for block in blocks], axis=1)
    scores = np.clip(scores + shift[:, None], 0, 1)
    aurc, excess, *answered = (
        Interval(value, *percentiles(value, column, level))
        for value, column in zip(values.tolist(), scores, strict=True)
    )
    end = np.cumsum(order.size)
    shown = np.unique(np.linspace(0, len(end) - 1, CURVE_POINTS).round().astype(int))
    return RiskCoverage(
        aurc=aurc,
        excess_aurc=excess,
        coverage_at_risk=dict(zip(RISKS, answered, strict=True)),
        coverage=tuple((end[shown] / n).tolist()),
        risk=tuple((np.cumsum(order.errors) / end)[shown].tolist()),
    )


def ordered(confidence: np.ndarray, correct: np.ndarray) -> Ordered:
    images = np.argsort(-confidence, kind="stable")
    starts = np.flatnonzero(np.diff(confidence[images], prepend=2.0))  # no confidence is 2
    size = np.diff(starts, append=len(images))
    step = np.empty(len(images), dtype=np.int64)
    step[images] = np.repeat(np.arange(len(size)), size)
    return Ordered(step, images, size, np.add.reduceat(~correct[images], starts, dtype=np.float64))


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
    area, excess = _scores(size, errors, rank_weights(n))[:2, 0]
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


def _scores(size: np.ndarray, errors: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """
    AURC, its excess over the best ordering, and the coverages at `RISKS`, `(2 + risks, resamples)`.

    From steps `(resamples, steps)` and [`rank_weights`] of as many images.
    """
    size, errors = np.atleast_2d(size), np.atleast_2d(errors)
    end, n = np.cumsum(size, axis=1), len(sums) - 1
    area = (errors / np.maximum(size, 1) * (sums[end] - sums[end - size])).sum(axis=1)
    best = sums[n] - sums[n - errors.sum(axis=1).astype(np.int64)]
    return np.stack([area, np.maximum(area - best, 0.0), *coverages(size, errors)])


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


def _merged(order: Ordered) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and errors of at most `MAX_STEPS` steps, each of neighbours in confidence."""
    end = np.cumsum(order.size)
    starts = np.unique(np.searchsorted(end, np.linspace(0, end[-1], MAX_STEPS, endpoint=False), side="right"))
    return np.add.reduceat(order.size, starts), np.add.reduceat(order.errors, starts)


def _resampled_merged(
    size: np.ndarray, errors: np.ndarray, n_resamples: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sizes and errors of the steps of each resample: right and wrong images of a step are one draw each."""
    rng, n = np.random.default_rng(seed), size.sum()
    chances = np.concatenate([size - errors, errors]) / n
    for start in range(0, n_resamples, 20):
        drawn = rng.multinomial(n, chances, size=min(20, n_resamples - start)).reshape(-1, 2, len(size))
        yield drawn.sum(axis=1), drawn[:, 1]
