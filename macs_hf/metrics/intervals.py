"""What a score is worth: every metric of one model with its interval, the bootstrap, and the noise floor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest
from threadpoolctl import ThreadpoolController

from ..report.report import Interval, Measurement, ReliabilityTable
from ..report.rows import SampleRows
from .ece import (
    Norm,
    ScoreOptions,
    Variant,
    bin_index,
    bin_score,
    calibration_error,
    check_bins,
    check_level,
    check_resamples,
    classwise_sums,
    confidences,
    fixed_point,
    integral,
    modes,
    reliability_bins,
    simulated_label_counts,
    smooth_calibration_error,
)
from .scores import as_array, checked_chunks, warn_of_probabilities


# ---- All metrics of one model, from per-sample rows ----


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
            bounds = wilson(int(rows.correct.sum()), len(rows), level)
        elif name == "ece":
            bounds = interval(value, scores, level, noise)
        else:  # means are unbiased, so plain quantiles serve
            bounds = percentiles(value, scores, level)
        metrics[name] = Interval(value, *bounds)
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
    low, high = binomtest(right, n).proportion_ci(level, method="wilson")
    return float(low), float(high)


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


def summarize(rows: SampleRows, n_bins: int = 15) -> dict[str, float]:
    """
    Mean accuracy, NLL, Brier score and logit margin, and the ECE, without intervals.

    ```python
    >>> import torch
    >>> rows = SampleRows.from_logits(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    >>> {name: round(value, 4) for name, value in summarize(rows).items()}
    {'accuracy': 0.5, 'nll': 0.41, 'ece': 0.3096, 'brier': 0.2642, 'logit_margin': 1.0}

    ```
    """
    return {
        "accuracy": float(rows.correct.mean()),
        "nll": float(rows.nll.mean(dtype=np.float64)),
        "ece": calibration_error(rows.confidence.astype(np.float64), rows.correct, n_bins=n_bins),
        "brier": float(rows.brier.mean(dtype=np.float64)),
        "logit_margin": float(rows.margin.mean(dtype=np.float64)),
    }


# ---- Bootstrap and noise floor of a calibration error ----
#
# Every score here is a function of sums over samples (per bin, or of cosines). A resample is a vector of multinomial
# counts, so all resamples are one matrix product: sums = counts @ columns.


MAX_GROUPS = 20_000  # beyond this many samples, random groups of them are resampled instead of single ones
MAX_CELLS = 2**22  # groups x columns: 32 MB
SMALLEST_BANDWIDTH = 2.0**-8  # of the smooth score of a resample
NODES = 2**12  # for resamples of the smooth score, confidences are rounded to 1/16 of that bandwidth

_NODE = np.arange(NODES + 1)
DEFAULT = ScoreOptions()


class CalibrationEstimate(NamedTuple):
    """
    Args:
        ece (`float`):
            The score.
        low, high (`float`):
            Its bootstrap interval.
        noise_floor (`float`):
            The mean score at this n of a perfectly calibrated model with the same confidences.
    """

    ece: float
    low: float
    high: float
    noise_floor: float


def estimate_calibration_error(
    predictions: Any,
    references: Any,
    *,
    probabilities: bool = False,
    n_bins: int = 15,
    variant: Variant = "equal_width",
    norm: Norm = "l1",
    debiased: bool = False,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> CalibrationEstimate:
    """[`expected_calibration_error`] with its interval and noise floor; see there for the other arguments.

    Args:
        n_resamples (`int`, *optional*, defaults to `2000`):
            Number of bootstrap resamples.
        level (`float`, *optional*, defaults to `0.95`):
            Probability that the interval is meant to cover.
        seed (`int`, *optional*, defaults to `0`):
            Seed of all draws.
    """
    options = ScoreOptions(n_bins, variant, norm, debiased)
    check_resamples(n_resamples)
    check_level(level)
    if not probabilities:
        warn_of_probabilities(predictions)
    if variant != "classwise":
        found = confidences(predictions, references, probabilities)
        return estimate_from_confidences(*found, options, n_resamples, level, seed)
    next(checked_chunks(predictions, references, probabilities))  # shapes and class ids
    n, classes = as_array(predictions).shape
    group = random_groups(n, 3 * classes * n_bins, seed)
    columns = classwise_sums(predictions, references, probabilities, n_bins, group)

    def score(count: np.ndarray, confidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return bin_score(count, confidence, labels, norm, debiased).mean(axis=-1)

    ece = float(score(*columns.sum(axis=1)))
    flat = columns.transpose(1, 0, 2, 3).reshape(columns.shape[1], -1)
    blocks = resampled_sums(flat, n_resamples, seed)
    scores = np.concatenate([score(*sums.reshape(-1, 3, classes, n_bins).swapaxes(0, 1)) for sums in blocks])
    simulations, rng = min(n_simulations(n), 100), np.random.default_rng(seed)
    drawn = simulated_label_counts(predictions, references, probabilities, n_bins, simulations, rng)
    count, confidence, _ = columns.sum(axis=1)
    noise = score(count, confidence, drawn)
    return CalibrationEstimate(ece, *interval(ece, scores, level, noise), float(noise.mean()))


def estimate_from_confidences(
    confidence: np.ndarray,
    correct: np.ndarray,
    options: ScoreOptions = DEFAULT,
    n_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> CalibrationEstimate:
    if options.variant == "smooth":
        ece = smooth_calibration_error(confidence, correct)
        scores = _smooth_scores(confidence, correct, ece, n_resamples, seed)
    else:
        n_bins = options.n_bins
        group = random_groups(len(confidence), 3 * n_bins, seed)
        index = bin_index(confidence, n_bins, options.variant)
        columns = group_sums(group, index, n_bins, np.ones_like(confidence), confidence, correct)

        def score(sums: np.ndarray) -> np.ndarray:
            return bin_score(*sums.reshape(-1, 3, n_bins).swapaxes(0, 1), options.norm, options.debiased)

        ece = float(score(columns.sum(axis=0))[0])
        scores = np.concatenate([score(sums) for sums in resampled_sums(columns, n_resamples, seed)])
    noise = noise_scores(confidence, options, seed=seed)
    return CalibrationEstimate(ece, *interval(ece, scores, level, noise), float(noise.mean()))


def noise_scores(confidence: np.ndarray, options: ScoreOptions = DEFAULT, *, seed: int = 0) -> np.ndarray:
    """Scores of simulations in which each prediction is right with exactly the probability it claims.

    Their mean is the noise floor: what a perfectly calibrated model with these confidences scores at this n.
    """
    confidence = np.clip(np.asarray(confidence, dtype=np.float64), 0, 1)
    rng, n = np.random.default_rng(seed), len(confidence)
    if options.variant == "smooth":
        return _smooth_noise_scores(confidence, rng)
    confidence = np.sort(confidence)  # both kinds of bins are then consecutive
    index = bin_index(confidence, options.n_bins, options.variant)
    starts = np.flatnonzero(np.diff(index, prepend=-1))  # of the bins that are filled
    count = np.diff(starts, append=n).astype(np.float64)
    total = np.add.reduceat(confidence, starts)
    threshold, scores = confidence.astype(np.float32), []
    block = max(1, 2**18 // n)
    for start in range(0, n_simulations(n), block):
        draws = rng.random((min(block, n_simulations(n) - start), n), dtype=np.float32)
        correct = np.add.reduceat(draws < threshold, starts, axis=1, dtype=np.float64)
        scores.append(bin_score(count, total, correct, options.norm, options.debiased))
    return np.concatenate(scores)


def n_simulations(n: int) -> int:
    """Enough for a mean within about 1 %: large n is steadier, so it needs fewer."""
    return int(np.clip(20_000_000 // n, 100, 1000))


def random_groups(n: int, n_columns: int, seed: int = 0) -> np.ndarray:
    """
    The group of each sample, from 0: single samples while they are few, else random groups of equal size.

    Sums over resampled random groups have the mean and covariance of sums over resampled samples, at a cost which does
    not grow with n.
    """
    groups = min(n, MAX_GROUPS, max(100, MAX_CELLS // n_columns))
    if groups == n:
        return np.arange(n)
    return np.random.default_rng(seed).permutation(n) % groups


def group_sums(group: np.ndarray, index: np.ndarray, width: int, *weights: np.ndarray) -> np.ndarray:
    """Sums of each weight per group and bin, side by side: `(groups, len(weights) * width)`."""
    groups = int(group.max()) + 1
    cell = group * width + index
    sums = [np.bincount(cell, weights=w, minlength=groups * width).reshape(groups, width) for w in weights]
    return np.concatenate(sums, axis=1)


def resample_counts(rng: np.random.Generator, resamples: int, n: int) -> np.ndarray:
    """How often each of `n` samples is drawn, with replacement, in each resample: `(resamples, n)`."""
    drawn = rng.integers(0, n, size=(resamples, n), dtype=np.int32)
    drawn += np.arange(0, resamples * n, n, dtype=np.int32)[:, None]
    return np.bincount(drawn.reshape(-1), minlength=resamples * n).reshape(resamples, n)


def resampled_sums(columns: np.ndarray, n_resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Yields blocks `(resamples, columns)` of column sums over rows drawn with replacement."""
    rng, n = np.random.default_rng(seed), len(columns)
    libraries = ThreadpoolController()
    block = max(1, 2**19 // max(columns.shape))
    for start in range(0, n_resamples, block):
        counts = resample_counts(rng, min(block, n_resamples - start), n)
        with libraries.limit(limits=1, user_api="blas"):  # on a busy machine, threads only wait for each other here
            sums = counts.astype(np.float64) @ columns
        yield sums


def interval(
    value: float, scores: np.ndarray, level: float = 0.95, noise: np.ndarray | None = None
) -> tuple[float, float]:
    """
    The basic bootstrap interval, `2 value - quantile`, widened if need be to hold the value.

    Resampling inflates an absolute error once more, so plain quantiles lie too high; reflecting them takes that out.
    With `noise` (the scores of perfect calibration), the interval is cut at 0 and begins there if noise alone reaches
    the value often enough.
    """
    low, high = (float(x) for x in 2 * value - np.quantile(scores, [(1 + level) / 2, (1 - level) / 2]))
    if noise is not None:
        low = 0.0 if value <= np.quantile(noise, level) else max(low, 0.0)
    return min(low, value), max(high, value)


def percentiles(value: float, scores: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The interval between two quantiles of resamples, widened if need be to hold the value. It never leaves the range
    of a score."""
    low, high = (float(q) for q in np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]))
    return min(low, value), max(high, value)


def _smooth_scores(
    confidence: np.ndarray, correct: np.ndarray, bandwidth: float, n_resamples: int, seed: int
) -> np.ndarray:
    # A sample is its node and whether it is right: one multinomial draw over these is a resample, whatever n is. The
    # bandwidth is held, as the bins of the other variants are.
    node = np.rint(confidence * NODES).astype(np.int64)
    count = np.bincount(node + (NODES + 1) * correct, minlength=2 * (NODES + 1))
    filled = np.flatnonzero(count)
    rng, scores = np.random.default_rng(seed), []
    for start in range(0, n_resamples, 100):
        drawn = np.zeros((min(100, n_resamples - start), len(count)))
        drawn[:, filled] = rng.multinomial(len(confidence), count[filled] / len(confidence), size=len(drawn))
        wrong, right = drawn[:, : NODES + 1], drawn[:, NODES + 1 :]
        series = _series_at_nodes(right - (right + wrong) * _NODE / NODES, len(confidence))
        scores.append(integral(series, np.full(len(series), max(bandwidth, SMALLEST_BANDWIDTH))))
    return np.concatenate(scores)


def _smooth_noise_scores(confidence: np.ndarray, rng: np.random.Generator, simulations: int = 100) -> np.ndarray:
    count = np.bincount(np.rint(confidence * NODES).astype(np.int64), minlength=NODES + 1)
    right = rng.binomial(count, _NODE / NODES, size=(simulations, NODES + 1))
    series = _series_at_nodes(right - count * _NODE / NODES, len(confidence))
    return fixed_point(series, SMALLEST_BANDWIDTH, 1.0, tolerance=1e-5)


def _series_at_nodes(residual: np.ndarray, n: int) -> np.ndarray:
    return np.fft.rfft(residual, 2 * NODES, axis=1)[:, : modes(SMALLEST_BANDWIDTH)].real / n
