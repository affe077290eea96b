"""Verdicts from per-sample rows: every metric with a bootstrap interval, and paired comparisons of two models.

The metrics are functions of sums over samples, so a resample is a vector of counts and all resamples are one matrix
product; see `ece/bootstrap.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..report.evaluation import Interval, Measurement, ReliabilityTable
from ..report.rows import SampleRows
from .bootstrap import check_resamples, group_sums, interval, noise_scores, random_groups, resampled_sums
from .ece import bin_index, bin_score, reliability_bins


class Comparison(NamedTuple):
    """
    One metric of two models on the same samples.

    Args:
        a, b (`float`):
            The metric of each model.
        difference, low, high (`float`):
            `a - b` and its paired bootstrap interval.
        verdict (`str`):
            `"win"` if `a` is better than `b`, `"loss"` if it is worse, `"tie"` if the interval holds 0 or, for ECE, if
            the difference is below the noise floor.
        noise_floor (`float`):
            The larger noise floor of the two for ECE, 0 for the others.
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    verdict: Literal["win", "tie", "loss"]
    noise_floor: float = 0.0


def measure(
    rows: SampleRows, *, n_bins: int = 15, n_resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Measurement:
    """
    All metrics of one model with their bootstrap intervals, the noise floor of the ECE, and its bins.

    Args:
        rows ([`SampleRows`]):
            One row per sample.
        n_bins (`int`, *optional*, defaults to `15`):
            Number of equal-width bins.
        n_resamples (`int`, *optional*, defaults to `2000`):
            Number of bootstrap resamples.
        level (`float`, *optional*, defaults to `0.95`):
            Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`):
            Seed of all draws.
    """
    check_resamples(n_resamples)
    confidence = rows.confidence.astype(np.float64)
    noise = noise_scores(confidence, n_bins=n_bins, seed=seed)
    columns = _columns(rows, random_groups(len(rows), 4 * n_bins, seed), n_bins)
    values = _scores(columns.sum(axis=0, keepdims=True), n_bins)
    resamples = [_scores(sums, n_bins) for sums in resampled_sums(columns, n_resamples, seed)]
    metrics = {}
    for name, value in values.items():
        scores = np.concatenate([block[name] for block in resamples])
        if name == "ece":
            low, high = interval(float(value[0]), scores, level, noise)
        else:
            # Means are unbiased, so plain quantiles serve, and they never leave the range of the metric.
            low, high = (float(q) for q in np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]))
        metrics[name] = Interval(float(value[0]), low, high)
    bins = reliability_bins(confidence, rows.correct, n_bins)
    filled = np.maximum(bins.count, 1)
    table = ReliabilityTable(
        lower=tuple(bins.lower.tolist()),
        upper=tuple(bins.upper.tolist()),
        count=tuple(int(count) for count in bins.count),
        confidence=tuple((bins.confidence / filled).tolist()),
        accuracy=tuple((bins.correct / filled).tolist()),
    )
    return Measurement(metrics, float(noise.mean()), table)


def compare(
    a: SampleRows | Sequence[SampleRows],
    b: SampleRows | Sequence[SampleRows],
    *,
    n_bins: int = 15,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Comparison]:
    """
    Paired bootstrap of `a - b` in ECE, NLL, Brier score and accuracy: both models see the same resamples.

    The rows must be of the same samples in the same order. Either side may be several runs, such as seeds, of which
    the mean metric counts; the interval is then that of the samples alone. See [`measure`] for the other arguments.

    Example:

    ```python
    >>> import torch
    >>> labels = torch.arange(400) % 4
    >>> right = 5.0 * torch.nn.functional.one_hot(labels, 4)
    >>> good, poor = SampleRows.from_logits(right, labels), SampleRows.from_logits(0 * right, labels)
    >>> compare(good, poor)["nll"].verdict
    'win'

    ```
    """
    check_resamples(n_resamples)
    sides = [[side] if isinstance(side, SampleRows) else list(side) for side in (a, b)]
    runs = [rows for side in sides for rows in side]
    for rows in runs:
        if not isinstance(rows, SampleRows):
            raise TypeError(f"compare takes SampleRows, such as load_run(folder).rows, got {rows!r:.80}")
    if not all(sides):
        raise ValueError("compare needs at least one run on each side")
    for rows in runs[1:]:
        if len(rows) != len(runs[0]) or not np.array_equal(rows.label, runs[0].label):
            raise ValueError(
                f"the labels differ ({len(runs[0])} and {len(rows)} rows): compare needs the same samples in one order"
            )
    group = random_groups(len(runs[0]), 4 * n_bins * len(runs), seed)
    columns = np.concatenate([_columns(rows, group, n_bins) for rows in runs], axis=1)

    def means(sums: np.ndarray) -> list[dict[str, np.ndarray]]:
        """The metrics of both sides for each row of sums."""
        scores = [_scores(part, n_bins) for part in np.split(sums, len(runs), axis=1)]
        parts = scores[: len(sides[0])], scores[len(sides[0]) :]
        return [{name: np.mean([score[name] for score in part], axis=0) for name in part[0]} for part in parts]

    values = means(columns.sum(axis=0, keepdims=True))
    resamples = [means(sums) for sums in resampled_sums(columns, n_resamples, seed)]
    floor = max(float(noise_scores(rows.confidence, n_bins=n_bins, seed=seed).mean()) for rows in runs)
    comparisons = {}
    for name in ("accuracy", "nll", "ece", "brier"):
        of_a, of_b = (float(value[name][0]) for value in values)
        differences = np.concatenate([scores_a[name] - scores_b[name] for scores_a, scores_b in resamples])
        low, high = interval(of_a - of_b, differences, level)
        tied_below = floor if name == "ece" else 0.0
        better = (of_a > of_b) == (name == "accuracy")
        tie = low <= 0 <= high or abs(of_a - of_b) < tied_below
        verdict = "tie" if tie else "win" if better else "loss"
        comparisons[name] = Comparison(of_a, of_b, of_a - of_b, low, high, verdict, tied_below)
    return comparisons


def _columns(rows: SampleRows, group: np.ndarray, n_bins: int) -> np.ndarray:
    """Sums per group: count, confidence and hits of each bin, then those of nll, brier and margin."""
    confidence = rows.confidence.astype(np.float64)
    bins = group_sums(group, bin_index(confidence, n_bins), n_bins, np.ones_like(confidence), confidence, rows.correct)
    means = group_sums(group, np.zeros_like(group), 1, rows.nll, rows.brier, rows.margin)
    return np.concatenate([bins, means], axis=1)


def _scores(sums: np.ndarray, n_bins: int) -> dict[str, np.ndarray]:
    """The metrics of each resample from its sums `(resamples, columns)`."""
    count, confidence, correct = sums[:, : 3 * n_bins].reshape(-1, 3, n_bins).swapaxes(0, 1)
    n = count.sum(axis=1)
    nll, brier, margin = sums[:, 3 * n_bins :].T
    return {
        "accuracy": correct.sum(axis=1) / n,
        "nll": nll / n,
        "ece": bin_score(count, confidence, correct),
        "brier": brier / n,
        "logit_margin": margin / n,
    }
