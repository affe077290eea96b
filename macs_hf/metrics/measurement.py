"""Every metric of one model with its interval, from per-sample rows.

The metrics are functions of sums over samples, so a resample is a vector of counts and all resamples are one matrix
product; see `bootstrap.py`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ..report.evaluation import Interval, Measurement, ReliabilityTable
from ..report.rows import SampleRows
from .bootstrap import group_sums, interval, noise_scores, random_groups, resampled_sums
from .ece import bin_index, bin_score, reliability_bins
from .score_options import ScoreOptions, check_bins, check_level, check_resamples


def measure(
    rows: SampleRows, *, n_bins: int = 15, n_resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Measurement:
    """
    All metrics of one model with their intervals, the noise floor of the ECE, and its bins.

    The interval of the accuracy is Wilson's, which has a width even if all or none are right; the others are
    bootstrapped.

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
    check_bins(n_bins)
    check_resamples(n_resamples)
    check_level(level)
    confidence = rows.confidence.astype(np.float64)
    noise = noise_scores(confidence, ScoreOptions(n_bins), seed=seed)
    columns = _columns(rows, random_groups(len(rows), 4 * n_bins, seed), n_bins)
    values = _scores(columns.sum(axis=0, keepdims=True), n_bins)
    resamples = [_scores(sums, n_bins) for sums in resampled_sums(columns, n_resamples, seed)]
    metrics = {}
    for name, score in values.items():
        value, scores = float(score[0]), np.concatenate([block[name] for block in resamples])
        if name == "accuracy":
            low, high = wilson(int(rows.correct.sum()), len(rows), level)
        elif name == "ece":
            low, high = interval(value, scores, level, noise)
        else:
            # Means are unbiased, so plain quantiles serve, and they never leave the range of the metric.
            low, high = (float(q) for q in np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]))
        metrics[name] = Interval(value, min(low, value), max(high, value))
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


def wilson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """
    Wilson's interval of a proportion.

    ```python
    >>> tuple(round(bound, 4) for bound in wilson(10, 10))
    (0.7225, 1.0)

    ```
    """
    check_level(level)
    if not 0 <= right <= n or n < 1:
        raise ValueError(f"right={right} of n={n} is not a proportion: n is at least 1, and right between 0 and n")
    z2 = float(ndtri((1 + level) / 2)) ** 2
    centre, half = right + z2 / 2, np.sqrt(z2 * (right * (n - right) / n + z2 / 4))
    # Rounding may put the end an ulp inside of a proportion of 0 or 1, which is where it lies exactly.
    low = 0.0 if right == 0 else float((centre - half) / (n + z2))
    return low, 1.0 if right == n else float((centre + half) / (n + z2))


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
