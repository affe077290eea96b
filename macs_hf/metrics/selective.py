"""Risk and coverage: what share of answers is wrong if only the most confident images get one.

With images in descending confidence and e[i] = 1 for an error:

    risk(k) = (e[1] + ... + e[k]) / k,    coverage(k) = k / n,
    AURC    = (trapezoid area under risk over coverage, from 1 / n to 1) / (1 - 1 / n)

as torch-uncertainty has it; Geifman and El-Yaniv's mean of risk(k) differs by at most 1 / (n - 1). Images of equal
confidence count with the mean over their orders. AURC is linear in the errors, with a weight for each rank:

    AURC = sum over i of e[i] weight(i),    weight(i) = (sum over k >= i of trapezoid(k) / k) / (n - 1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..report.report import Interval, RiskCoverage
from ..report.rows import SampleRows
from .intervals import percentiles, resample_counts
from .scores import check_settings


RISKS = {"1%": 0.01, "5%": 0.05, "10%": 0.10}
CURVE_POINTS = 100
MAX_DRAWS = 3_000_000  # images x resamples: larger test sets are steadier and need fewer resamples
MAX_STEPS = 10_000  # of more images than this, neighbours in confidence are resampled as one step


class Ordered(NamedTuple):
    """
    Images in descending confidence, those of equal confidence as one step.

    `images` are their numbers in this order, and `wrong` says which answers are wrong; `start`, `size` and `errors`
    are of the steps.
    """

    images: np.ndarray
    wrong: np.ndarray
    start: np.ndarray
    size: np.ndarray
    errors: np.ndarray


def risk_coverage(rows: SampleRows, *, n_resamples: int = 2000, level: float = 0.95, seed: int = 0) -> RiskCoverage:
    """
    AURC, its excess over the best ordering, and the coverage at 1, 5 and 10 % risk, with bootstrap intervals.

    Args:
        rows ([`SampleRows`]): One row per sample, at least two.
        n_resamples (`int`, *optional*, defaults to `2000`): Number of bootstrap resamples; fewer, but at least 200,
            are used for more than 1,500 samples. Of more than 10,000 samples, groups of neighbours in confidence are
            resampled, so that the cost is about that of a sort.
        level (`float`, *optional*, defaults to `0.95`): Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`): Seed of the resamples.

    Example:

    ```python
    >>> import torch
    >>> rows = SampleRows.from_logits(torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> found = risk_coverage(rows)
    >>> round(found.aurc.value, 6), found.excess_aurc.value, round(found.coverage_at_risk["5%"].value, 6)
    (0.083333, 0.0, 0.666667)

    ```
    """
    check_settings(n_resamples=n_resamples, level=level)
    n = len(rows)
    if n < 2:
        raise ValueError("risk_coverage needs at least two samples")
    order, sums = ordered(rows.confidence, rows.correct), _rank_weights(n)
    values, end = _scores(order.size, order.errors, sums)[:, 0], order.start + order.size
    n_resamples = min(n_resamples, max(200, MAX_DRAWS // n))
    if n <= MAX_STEPS:
        blocks, shift = (steps for [steps] in _resampled([order], n_resamples, seed)), 0.0
    else:
        starts = np.unique(np.searchsorted(end, np.linspace(0, n, MAX_STEPS, endpoint=False), side="right"))
        merged = np.add.reduceat(order.size, starts), np.add.reduceat(order.errors, starts)
        blocks = _resampled_merged(*merged, n_resamples, seed)
        shift = values - _scores(*merged, sums)[:, 0]  # what merging changes
    scores = np.concatenate([_scores(*block, sums) for block in blocks], axis=1)
    scores = np.clip(scores.T + shift, 0, 1).T
    aurc, excess, *answered = (
        Interval(value, *percentiles(value, column, level))
        for value, column in zip(values.tolist(), scores, strict=True)
    )
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
    wrong, start = ~correct[images], np.flatnonzero(np.diff(confidence[images], prepend=2.0))  # no confidence is 2
    size, errors = np.diff(start, append=len(images)), np.add.reduceat(wrong, start, dtype=np.float64)
    return Ordered(images, wrong, start, size, errors)


def _rank_weights(n: int) -> np.ndarray:
    """Sums of the weights of the first i ranks, i from 0 to n: `(n + 1,)`."""
    trapezoid = np.ones(n)
    trapezoid[[0, -1]] = 0.5
    weights = np.cumsum((trapezoid / np.arange(1, n + 1))[::-1])[::-1] / (n - 1)
    return np.concatenate([[0.0], np.cumsum(weights)])


def _scores(size: np.ndarray, errors: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """
    AURC, its excess over the best ordering, and the coverages at `RISKS`, `(2 + risks, resamples)`.

    From steps `(resamples, steps)` and [`_rank_weights`] of as many images.
    """
    size, errors = np.atleast_2d(size), np.atleast_2d(errors)
    end, n = np.cumsum(size, axis=1), len(sums) - 1
    area = (errors / np.maximum(size, 1) * (sums[end] - sums[end - size])).sum(axis=1)
    best = sums[n] - sums[n - errors.sum(axis=1).astype(np.int64)]
    return np.stack([area, np.maximum(area - best, 0.0), *_coverages(size, errors)])


def _coverages(size: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """For each of `RISKS` the largest coverage at which the risk is at most that, else 0: `(risks, resamples)`."""
    answered, wrong = np.cumsum(np.atleast_2d(size), axis=1), np.cumsum(np.atleast_2d(errors), axis=1)
    # A hair above the bound, since 0.05 * 20 need not be 1.
    found = [np.where(wrong <= risk * answered + 1e-9, answered, 0).max(axis=1) for risk in RISKS.values()]
    return np.stack(found) / answered[:, -1]


def aurc_without_each(
    confidence: np.ndarray, correct: np.ndarray
) -> tuple[tuple[float, np.ndarray], tuple[float, np.ndarray]]:
    """AURC and its excess, each with the scores without each sample in turn, shape `(n,)`."""
    images, _, start, size, errors = ordered(confidence, correct)
    n, own, end = len(confidence), ~correct, start + size
    area, excess = _scores(size, errors, _rank_weights(n))[:2, 0]
    if n == 2:
        return (float(area), own[::-1].astype(float)), (float(excess), np.zeros(2))
    sums = _rank_weights(n - 1)
    step = np.empty(n, dtype=np.int64)
    step[images] = np.repeat(np.arange(len(size)), size)
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
    orders = [ordered(*run) for run in zip(confidence, correct, strict=True)]
    values = np.concatenate([_coverages(order.size, order.errors) for order in orders], axis=1)
    blocks = [
        np.stack([_coverages(*steps) for steps in block], axis=1) for block in _resampled(orders, n_resamples, seed)
    ]
    return values, np.concatenate(blocks, axis=2)


def _resampled(
    orders: Sequence[Ordered], n_resamples: int, seed: int
) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Blocks of resamples, the same for all runs: for each run sizes and errors of its steps `(resamples, steps)`."""
    n = len(orders[0].images)
    for [counts] in resample_counts([n], n_resamples, 2**17 // n, seed):
        steps = []
        for order in orders:
            size = counts.astype(np.int32)[:, order.images]
            steps.append((size, size * order.wrong))
            if len(order.size) < n:
                steps[-1] = tuple(np.add.reduceat(part, order.start, axis=1) for part in steps[-1])
        yield steps


def _resampled_merged(
    size: np.ndarray, errors: np.ndarray, n_resamples: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sizes and errors of the steps of each resample: right and wrong images of a step are one draw each."""
    rng, n = np.random.default_rng(seed), size.sum()
    chances = np.concatenate([size - errors, errors]) / n
    for start in range(0, n_resamples, 20):
        drawn = rng.multinomial(n, chances, size=min(20, n_resamples - start)).reshape(-1, 2, len(size))
        yield drawn.sum(axis=1), drawn[:, 1]
