"""Expected calibration error in its usual variants: binned, by class or smooth, in any norm, debiased or not."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import erf, softmax

from .scores import check_confidences, check_settings, checked_chunks, probability_chunks, warn_of_probabilities


Binning = Literal["equal_width", "equal_mass"]
Norm = Literal["l1", "l2", "max"]
Variant = Literal["equal_width", "equal_mass", "classwise", "smooth"]


def check_options(n_bins: int, variant: Variant, norm: Norm, debiased: bool) -> None:
    """Refuse options of [`expected_calibration_error`] that do not exist, or not together."""
    check_settings(n_bins=n_bins)
    for name, value, known in (("variant", variant, get_args(Variant)), ("norm", norm, get_args(Norm))):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    if debiased and norm == "max":
        raise ValueError("debiased=True is defined for norm='l1' and norm='l2' only")
    if variant == "smooth" and (norm != "l1" or debiased):
        raise ValueError("variant='smooth' has neither norm nor debiased: leave them at their defaults")


# ---- Binned calibration errors ----
# With bins B of confidences, accuracy acc(B), mean confidence conf(B) and n samples:
#
#     ECE = sum over B of |B| / n * |acc(B) - conf(B)|
#
# Bins are right-closed, `(a, b]`; a confidence of 0 falls into the first and one of 1 into the last.


class ReliabilityBins(NamedTuple):
    """Per bin: edges, number of samples, sum of their confidences, number of correct predictions."""

    lower: np.ndarray
    upper: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray


def expected_calibration_error(
    predictions: Any,
    references: Any,
    *,
    probabilities: bool = False,
    n_bins: int = 15,
    variant: Variant = "equal_width",
    norm: Norm = "l1",
    debiased: bool = False,
) -> float:
    """
    Expected calibration error, in [0, 1]; 0 is perfect.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`): Logits, or probabilities
            if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`): Class ids.
        probabilities (`bool`, *optional*, defaults to `False`): Whether `predictions` are probabilities. If they look
            so and this is `False`, a warning is given.
        n_bins (`int`, *optional*, defaults to `15`): Number of bins. The smooth variant has none and ignores it.
        variant (`str`, *optional*, defaults to `"equal_width"`): `"equal_width"` and `"equal_mass"` bin the confidence
            of the predicted class; `"classwise"` is the mean over classes of the equal-width error of each class's
            probability; `"smooth"` has a kernel instead of bins.
        norm (`str`, *optional*, defaults to `"l1"`): `"l1"` (ECE), `"l2"` (root mean square) or `"max"` (maximum
            calibration error, MCE).
        debiased (`bool`, *optional*, defaults to `False`): Whether to subtract the part of an L1 or L2 error that the
            sampling noise within bins explains.

    Example:

    ```python
    >>> probabilities = [[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]
    >>> expected_calibration_error(probabilities, [0, 0, 1, 1], probabilities=True)
    0.0625

    ```
    """
    check_options(n_bins, variant, norm, debiased)
    if not probabilities:
        warn_of_probabilities(predictions)
    if variant == "classwise":
        [sums] = classwise_sums(predictions, references, probabilities, n_bins).swapaxes(0, 1)
        return float(bin_score(*sums, norm, debiased).mean())
    found = confidences(predictions, references, probabilities)
    return calibration_error(*found, n_bins=n_bins, variant=variant, norm=norm, debiased=debiased)


def calibration_error(
    confidence: np.ndarray,
    correct: np.ndarray,
    *,
    n_bins: int = 15,
    variant: Literal["equal_width", "equal_mass", "smooth"] = "equal_width",
    norm: Norm = "l1",
    debiased: bool = False,
) -> float:
    """The same from per-sample confidences and correctness, shape `(n,)` each.

    ```python
    >>> calibration_error(np.array([0.5, 0.5, 1.0, 1.0]), np.array([True, False, True, True]))
    0.0

    ```
    """
    check_options(n_bins, variant, norm, debiased)
    if variant == "smooth":
        return smooth_calibration_error(confidence, correct)
    bins = reliability_bins(confidence, correct, n_bins, variant)
    return float(bin_score(bins.count, bins.confidence, bins.correct, norm, debiased))


def confidences(predictions: Any, references: Any, probabilities: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Probability of the predicted class (the first of equals), and whether that class is right; shape `(n,)` each."""
    parts = []
    for values, labels in checked_chunks(predictions, references, probabilities):
        predicted = values.argmax(axis=1)  # of the logits: rounding in the softmax may create ties
        probs = values if probabilities else softmax(values, axis=1)
        parts.append((probs[np.arange(len(probs)), predicted], predicted == labels))
    confidence, correct = zip(*parts, strict=True)
    return np.concatenate(confidence), np.concatenate(correct)


def reliability_bins(
    confidence: np.ndarray, correct: np.ndarray, n_bins: int = 15, binning: Binning = "equal_width"
) -> ReliabilityBins:
    """Sums per bin. Equal-mass bins are `numpy.array_split` of the stably sorted confidences; their edges are the
    extremes of what they hold."""
    check_confidences(confidence, correct)
    check_settings(n_bins=n_bins)
    sums = bin_sums(bin_index(confidence, n_bins, binning), n_bins, None, confidence, correct)
    if binning == "equal_width":
        edges = np.linspace(0, 1, n_bins + 1)
        return ReliabilityBins(edges[:-1], edges[1:], *sums)
    ends = [part[[0, -1]] if len(part) else (1.0, 1.0) for part in np.array_split(np.sort(confidence), n_bins)]
    return ReliabilityBins(*np.array(ends).T, *sums)


def bin_index(confidence: np.ndarray, n_bins: int = 15, binning: Binning = "equal_width") -> np.ndarray:
    """The bin of each confidence: `(a, b]` for equal width, by stable rank for equal mass."""
    if binning == "equal_width":
        edges = np.linspace(0, 1, n_bins + 1)
        index = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
        # The product may be rounded across an edge, so the edges themselves decide; quicker than a binary search.
        index += confidence > edges[index + 1]
        index -= confidence <= edges[index]
        return np.clip(index, 0, n_bins - 1)
    index = np.empty(len(confidence), dtype=np.int64)
    for i, members in enumerate(np.array_split(np.argsort(confidence, kind="stable"), n_bins)):
        index[members] = i
    return index


def bin_sums(index: np.ndarray, n_bins: int, *weights: np.ndarray | None) -> np.ndarray:
    """The sum of each weight in each bin, `(weights, n_bins)`; `None` counts."""
    return np.stack([np.bincount(index, weights=w, minlength=n_bins).astype(np.float64) for w in weights])


def bin_score(
    count: np.ndarray, confidence: np.ndarray, correct: np.ndarray, norm: Norm = "l1", debiased: bool = False
) -> np.ndarray:
    """The norm of the gaps from sums per bin, over the last axis; empty bins do not count."""
    terms = bin_terms(count, confidence, correct, norm, debiased)
    if norm == "max":
        return terms.max(axis=-1)
    score = (count / count.sum(axis=-1, keepdims=True) * terms).sum(axis=-1)
    score = np.clip(score, 0, None) if debiased else score
    return np.sqrt(score) if norm == "l2" else score


def bin_terms(
    count: np.ndarray, confidence: np.ndarray, correct: np.ndarray, norm: Norm = "l1", debiased: bool = False
) -> np.ndarray:
    """What a sample of each bin adds to the mean: the gap, for L2 its square, less what noise explains if debiased."""
    filled = np.maximum(count, 1e-300)  # 0 / 0 := 0; resampled counts are whole numbers or zero
    gap = np.abs(correct - confidence) / filled
    if not debiased:
        return gap**2 if norm == "l2" else gap
    accuracy = correct / filled
    variance = np.clip(accuracy * (1 - accuracy), 0, None) / np.maximum(count - 1, 1)
    if norm == "l2":  # Kumar et al. 2019: each squared gap is too large by the variance of the bin's accuracy
        return gap**2 - variance
    return 2 * gap - folded_mean(gap, np.sqrt(variance))  # by how much noise would inflate a gap of this size


def folded_mean(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The mean of |x| for normal x, `mean` being at least 0."""
    deviation = np.maximum(deviation, 1e-150)
    folded = deviation * math.sqrt(2 / math.pi) * np.exp(-((mean / deviation) ** 2) / 2)
    return folded + mean * erf(mean / (deviation * math.sqrt(2)))


# ---- Class by class ----
# Sums per class and bin for the class-wise calibration error: each class's probability against "the label is k".


def classwise_sums(
    predictions: Any, references: Any, probabilities: bool = False, n_bins: int = 15, group: np.ndarray | None = None
) -> np.ndarray:
    """
    Counts, sums of probabilities and numbers of labels, stacked: `(3, groups, classes, n_bins)`, chunk by chunk.

    `group` is the group of each sample, from 0; by default all are in one.
    """
    edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    groups = 1 if group is None else int(group.max()) + 1
    sums, start = None, 0
    for probs, labels in probability_chunks(predictions, references, probabilities):
        rows, classes = probs.shape
        sums = np.zeros((3, groups * classes * n_bins)) if sums is None else sums
        own = np.zeros(rows, dtype=np.int64) if group is None else group[start : start + rows]
        cell = (own[:, None] * classes + np.arange(classes)) * n_bins + np.searchsorted(edges, probs, side="left")
        np.add.at(sums[0], cell, 1.0)
        np.add.at(sums[1], cell, probs)
        np.add.at(sums[2], cell[np.arange(rows), labels], 1.0)
        start += rows
    return sums.reshape(3, groups, classes, n_bins)


def simulated_label_counts(
    predictions: Any, references: Any, probabilities: bool, n_bins: int, n_simulations: int, rng: np.random.Generator
) -> np.ndarray:
    """Labels per class and bin, `(n_simulations, classes, n_bins)`, if they were drawn from the probabilities."""
    edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    counts = None
    for probs, _ in probability_chunks(predictions, references, probabilities):
        rows, classes = probs.shape
        counts = np.zeros((n_simulations, classes * n_bins)) if counts is None else counts
        # One sorted list for all rows, row i in (i, i + 1]: a single search draws a label for every row.
        steps = np.cumsum(probs, axis=1)
        steps = (steps / steps[:, -1:] + np.arange(rows)[:, None]).reshape(-1)
        index = np.searchsorted(edges, probs, side="left").reshape(-1)
        first = np.arange(rows) * classes
        for simulated in counts:
            drawn = np.searchsorted(steps, np.arange(rows) + rng.random(rows), side="right")
            drawn = np.clip(drawn, first, first + classes - 1)
            np.add.at(simulated, (drawn - first) * n_bins + index[drawn], 1.0)
    return counts.reshape(n_simulations, classes, n_bins)


# ---- Smooth calibration error ----
# Smooth calibration error (Blasiok and Nakkiran 2023, https://huggingface.co/papers/2309.12236), without a grid.
#
# With confidences f, residuals y - f and the Gaussian kernel K_s reflected at 0 and 1:
#
#     smECE_s = integral over [0, 1] of |mean of (y - f) K_s(f, t)| dt,     smECE = the s with smECE_s = s
#
# On [0, 1] the reflected kernel is the cosine series 1 + 2 sum of exp(-(pi k s)^2 / 2) cos(pi k f) cos(pi k t), so
# confidences are never rounded to a grid, and mass at exactly 0 or 1 is reflected like any other.


SMALLEST_BANDWIDTH = 2.0**-10  # scores below this (0.1 %) are given at this bandwidth


def smooth_calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """
    Smooth calibration error of per-sample confidences and correctness, shape `(n,)` each; in [0, 1], 0 is perfect.

    ```python
    >>> round(smooth_calibration_error(np.ones(10), np.arange(10) < 9), 6)
    0.1

    ```
    """
    check_confidences(confidence, correct)
    confidence = np.asarray(confidence, dtype=np.float64)
    residual = (np.asarray(correct, dtype=np.float64) - confidence) / len(confidence)
    bandwidth = 1.0
    while True:  # halve until the score exceeds the bandwidth: the fixed point is then between it and its double
        series = cosine_sums(confidence, residual, modes(bandwidth))[None]
        if bandwidth <= SMALLEST_BANDWIDTH or integral(series, np.array([bandwidth]))[0] >= bandwidth:
            return float(fixed_point(series, bandwidth, min(1.0, 2 * bandwidth))[0])
        bandwidth /= 2


def modes(bandwidth: float) -> int:
    """How many cosines have weights above the rounding error of float64."""
    return math.ceil(8.6 / (math.pi * bandwidth)) + 1


def cosine_sums(confidence: np.ndarray, residual: np.ndarray, n_modes: int) -> np.ndarray:
    """
    Sum of `residual * cos(pi k confidence)` for k below `n_modes`, to rounding error.

    Confidences are split into the nearest of many nodes and a remainder; cosines at the nodes come from an FFT, the
    remainder from nine terms of the Taylor series: O(n + modes log modes) instead of O(n modes).
    """
    nodes = 16 << (n_modes - 1).bit_length()
    node = np.rint(confidence * nodes).astype(np.int64)
    remainder = confidence * nodes - node  # at most 1/2, so the angle pi k remainder / nodes is below 0.1
    factor = 1j * np.pi * np.arange(n_modes) / nodes
    sums, moment = np.zeros(n_modes, dtype=np.complex128), residual
    for order in range(9):
        at_nodes = np.bincount(node, weights=moment, minlength=2 * nodes)
        sums += factor**order / math.factorial(order) * np.fft.rfft(at_nodes)[:n_modes].conj()
        moment = moment * remainder
    return sums.real


def fixed_point(series: np.ndarray, low: float, high: float, tolerance: float = 1e-9) -> np.ndarray:
    """The bandwidth equal to its own score in `[low, high]` for each row of cosine sums `(m, modes)`, by bisection.

    The score falls as the bandwidth grows. A row whose score at `low` is below `low` gets that score.
    """
    lower, upper = np.full(len(series), low), np.full(len(series), high)
    at_lowest = integral(series, lower)
    for _ in range(math.ceil(math.log2(max(high - low, tolerance) / tolerance))):
        middle = (lower + upper) / 2
        above = integral(series, middle) >= middle
        lower, upper = np.where(above, middle, lower), np.where(above, upper, middle)
    return np.where(at_lowest < low, at_lowest, (lower + upper) / 2)


def integral(series: np.ndarray, bandwidth: np.ndarray) -> np.ndarray:
    """Integral of the absolute smoothed residual, `(m,)`, for cosine sums `(m, modes)` and bandwidths `(m,)`."""
    k = np.arange(series.shape[1])
    weights = np.exp(-((np.pi * k * bandwidth[:, None]) ** 2) / 2) * np.where(k == 0, 1.0, 2.0) * series
    cells = 1 << (4 * series.shape[1] - 1).bit_length()
    # Values of the series and of its antiderivative at the ends of the cells, one inverse FFT each.
    spectrum = weights * np.where(k == 0, 2 * cells, cells)
    value = np.fft.irfft(spectrum, 2 * cells, axis=1)[:, : cells + 1]
    spectrum = -1j * cells * weights / (np.pi * np.maximum(k, 1)) * (k > 0)
    antiderivative = np.fft.irfft(spectrum, 2 * cells, axis=1)[:, : cells + 1]
    antiderivative += weights[:, :1] * np.linspace(0, 1, cells + 1)
    left, right = value[:, :-1], value[:, 1:]
    # A cell without a change of sign is integrated exactly, one with it as the two triangles of a straight line.
    triangles = (left**2 + right**2) / np.maximum(2 * cells * (np.abs(left) + np.abs(right)), 1e-300)
    return np.where(left * right < 0, triangles, np.abs(np.diff(antiderivative, axis=1))).sum(axis=1)
