"""What a score is worth: every metric of one model with its interval, the bootstrap, and the noise floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest
from threadpoolctl import ThreadpoolController

from ..report.report import Interval, Measurement, ReliabilityTable
from ..report.rows import SampleRows
from .ece import (
    Norm,
    Variant,
    bin_index,
    bin_score,
    bin_sums,
    calibration_error,
    check_options,
    classwise_sums,
    confidences,
    fixed_point,
    integral,
    modes,
    reliability_bins,
    simulated_label_counts,
    smooth_calibration_error,
)
from .scores import as_array, check_settings, checked_chunks, warn_of_probabilities


# ---- All metrics of one model, from per-sample rows ----


def measure(
    rows: SampleRows, *, n_bins: int = 15, n_resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Measurement:
    """
    All metrics of one model with their intervals, the noise floor of the ECE, and its bins.

    The interval of the accuracy is Wilson's, which has a width even if all or none are right; the others are
    bootstrapped.

    Args:
        rows ([`SampleRows`]): One row per sample.
        n_bins (`int`, *optional*, defaults to `15`): Number of equal-width bins.
        n_resamples (`int`, *optional*, defaults to `2000`): Number of bootstrap resamples.
        level (`float`, *optional*, defaults to `0.95`): Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`): Seed of all draws.
    """
    check_settings(n_bins=n_bins, n_resamples=n_resamples, level=level)
    confidence = rows.confidence.astype(np.float64)
    noise = noise_scores(confidence, n_bins, seed=seed)
    group = random_groups(len(rows), 4 * n_bins, seed)
    # Sums per group: count, confidence and hits of each bin, then those of nll, brier and margin.
    bins = _group_sums(group, bin_index(confidence, n_bins), n_bins, None, confidence, rows.correct)
    means = _group_sums(group, np.zeros_like(group), 1, rows.nll, rows.brier, rows.margin)
    columns = np.concatenate([bins, means], axis=1)

    def scores(sums: np.ndarray) -> dict[str, np.ndarray]:
        count, confidence, correct = sums[:, : 3 * n_bins].reshape(-1, 3, n_bins).swapaxes(0, 1)
        means = [correct.sum(axis=1), *sums[:, 3 * n_bins :].T] / count.sum(axis=1)
        found = dict(zip(("accuracy", "nll", "brier", "logit_margin"), means, strict=True))
        return found | {"ece": bin_score(count, confidence, correct)}

    whole = scores(columns.sum(axis=0, keepdims=True))
    resamples = [scores(sums) for sums in resampled_sums(columns, n_resamples, seed)]
    metrics = {}
    for name in ("accuracy", "nll", "ece", "brier", "logit_margin"):
        value, resampled = float(whole[name][0]), np.concatenate([block[name] for block in resamples])
        if name == "accuracy":
            bounds = wilson(int(rows.correct.sum()), len(rows), level)
        elif name == "ece":
            bounds = interval(value, resampled, level, noise)
        else:  # means are unbiased, so plain quantiles serve
            bounds = percentiles(value, resampled, level)
        metrics[name] = Interval(value, *bounds)
    bins = reliability_bins(confidence, rows.correct, n_bins)
    filled = np.maximum(bins.count, 1)
    table = ReliabilityTable(
        lower=tuple(bins.lower.tolist()),
        upper=tuple(bins.upper.tolist()),
        count=tuple(bins.count.astype(int).tolist()),
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
    check_settings(level=level)
    if not 0 <= right <= n or n < 1:
        raise ValueError(f"right={right} of n={n} is not a proportion: n is at least 1, and right between 0 and n")
    low, high = binomtest(right, n).proportion_ci(level, method="wilson")
    return float(low), float(high)


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


class CalibrationEstimate(NamedTuple):
    """
    Args:
        ece (`float`): The score.
        low, high (`float`): Its bootstrap interval.
        noise_floor (`float`): The mean score at this n of a perfectly calibrated model with the same confidences.
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
        n_resamples (`int`, *optional*, defaults to `2000`): Number of bootstrap resamples.
        level (`float`, *optional*, defaults to `0.95`): Probability that the interval is meant to cover.
        seed (`int`, *optional*, defaults to `0`): Seed of all draws.
    """
    check_options(n_bins, variant, norm, debiased)
    check_settings(n_resamples=n_resamples, level=level)
    if not probabilities:
        warn_of_probabilities(predictions)
    if variant != "classwise":
        confidence, correct = confidences(predictions, references, probabilities)
        noise = noise_scores(confidence, n_bins, variant, norm, debiased, seed=seed)
        if variant == "smooth":
            ece = smooth_calibration_error(confidence, correct)
            scores = _smooth_scores(confidence, correct, ece, n_resamples, seed)
            return CalibrationEstimate(ece, *interval(ece, scores, level, noise), float(noise.mean()))
        group = random_groups(len(confidence), 3 * n_bins, seed)
        columns = _group_sums(group, bin_index(confidence, n_bins, variant), n_bins, None, confidence, correct)
    else:
        next(checked_chunks(predictions, references, probabilities))  # shapes and class ids
        n, classes = as_array(predictions).shape
        group = random_groups(n, 3 * classes * n_bins, seed)
        sums = classwise_sums(predictions, references, probabilities, n_bins, group)
        columns = sums.swapaxes(0, 1).reshape(sums.shape[1], -1)
        simulations, rng = min(n_simulations(n), 100), np.random.default_rng(seed)
        drawn = simulated_label_counts(predictions, references, probabilities, n_bins, simulations, rng)
        noise = bin_score(*sums.sum(axis=1)[:2], drawn, norm, debiased).mean(axis=-1)

    def score(sums: np.ndarray) -> np.ndarray:  # the mean over classes, of which there is one if bins are of all
        return bin_score(*sums.reshape(len(sums), 3, -1, n_bins).swapaxes(0, 1), norm, debiased).mean(axis=-1)

    [ece] = score(columns.sum(axis=0, keepdims=True)).tolist()
    scores = np.concatenate([score(sums) for sums in resampled_sums(columns, n_resamples, seed)])
    return CalibrationEstimate(ece, *interval(ece, scores, level, noise), float(noise.mean()))


def noise_scores(
    confidence: np.ndarray,
    n_bins: int = 15,
    variant: Variant = "equal_width",
    norm: Norm = "l1",
    debiased: bool = False,
    *,
    seed: int = 0,
) -> np.ndarray:
    """Scores of simulations in which each prediction is right with exactly the probability it claims.

    Their mean is the noise floor: what a perfectly calibrated model with these confidences scores at this n.
    """
    confidence = np.clip(np.asarray(confidence, dtype=np.float64), 0, 1)
    rng, n = np.random.default_rng(seed), len(confidence)
    if variant == "smooth":
        count = np.bincount(np.rint(confidence * NODES).astype(np.int64), minlength=NODES + 1)
        right = rng.binomial(count, _NODE / NODES, size=(100, NODES + 1))
        series = _series_at_nodes(right - count * _NODE / NODES, n)
        return fixed_point(series, SMALLEST_BANDWIDTH, 1.0, tolerance=1e-5)
    confidence = np.sort(confidence)  # both kinds of bins are then consecutive
    index = bin_index(confidence, n_bins, variant)
    starts = np.flatnonzero(np.diff(index, prepend=-1))  # of the bins that are filled
    count = np.diff(starts, append=n).astype(np.float64)
    total = np.add.reduceat(confidence, starts)
    threshold, scores = confidence.astype(np.float32), []
    for resamples in _blocks(n_simulations(n), 2**18 // n):
        draws = rng.random((resamples, n), dtype=np.float32)
        correct = np.add.reduceat(draws < threshold, starts, axis=1, dtype=np.float64)
        scores.append(bin_score(count, total, correct, norm, debiased))
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


def _group_sums(group: np.ndarray, index: np.ndarray, width: int, *weights: np.ndarray | None) -> np.ndarray:
    """Sums of each weight per group and bin, side by side: `(groups, len(weights) * width)`."""
    groups = int(group.max()) + 1
    sums = bin_sums(group * width + index, groups * width, *weights)
    return sums.reshape(-1, groups, width).swapaxes(0, 1).reshape(groups, -1)


def _blocks(number: int, size: int) -> Iterator[int]:
    """`number` as a sum of sizes, so that not all resamples are in memory at a time."""
    size = max(1, size)
    yield from (min(size, number - start) for start in range(0, number, size))


def resample_counts(sizes: Sequence[int], n_resamples: int, block: int, seed: int = 0) -> Iterator[list[np.ndarray]]:
    """
    How often each sample is drawn, with replacement: for each set of so many samples blocks `(resamples, samples)` of
    at most `block` resamples.
    """
    rng = np.random.default_rng(seed)
    for resamples in _blocks(n_resamples, block):
        yield [_drawn(rng, resamples, n) for n in sizes]


def _drawn(rng: np.random.Generator, resamples: int, n: int) -> np.ndarray:
    drawn = rng.integers(0, n, size=(resamples, n), dtype=np.int32)
    drawn += np.arange(0, resamples * n, n, dtype=np.int32)[:, None]
    return np.bincount(drawn.reshape(-1), minlength=resamples * n).reshape(resamples, n)


def resampled_sums(columns: np.ndarray, n_resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Yields blocks `(resamples, columns)` of column sums over rows drawn with replacement."""
    libraries = ThreadpoolController()
    for [counts] in resample_counts([len(columns)], n_resamples, 2**19 // max(columns.shape), seed):
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
    for resamples in _blocks(n_resamples, 100):
        drawn = np.zeros((resamples, len(count)))
        drawn[:, filled] = rng.multinomial(len(confidence), count[filled] / len(confidence), size=resamples)
        wrong, right = drawn[:, : NODES + 1], drawn[:, NODES + 1 :]
        series = _series_at_nodes(right - (right + wrong) * _NODE / NODES, len(confidence))
        scores.append(integral(series, np.full(resamples, max(bandwidth, SMALLEST_BANDWIDTH))))
    return np.concatenate(scores)


def _series_at_nodes(residual: np.ndarray, n: int) -> np.ndarray:
    return np.fft.rfft(residual, 2 * NODES, axis=1)[:, : modes(SMALLEST_BANDWIDTH)].real / n
