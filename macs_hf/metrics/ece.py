"""Expected calibration error in its usual variants.

With bins B of confidences, accuracy acc(B), mean confidence conf(B) and n samples:

    ECE = sum over B of |B| / n * |acc(B) - conf(B)|

Bins are right-closed, `(a, b]`; a confidence of 0 falls into the first and one of 1 into the last.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import erf, softmax

from .classwise import classwise_sums
from .inputs import check_confidences, checked_chunks, warn_of_probabilities
from .score_options import Binning, Norm, ScoreOptions, Variant, check_bins
from .smooth import smooth_calibration_error


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
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`):
            Logits, or probabilities if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`):
            Class ids.
        probabilities (`bool`, *optional*, defaults to `False`):
            Whether `predictions` are probabilities. If they look so and this is `False`, a warning is given.
        n_bins (`int`, *optional*, defaults to `15`):
            Number of bins. The smooth variant has none and ignores it.
        variant (`str`, *optional*, defaults to `"equal_width"`):
            `"equal_width"` and `"equal_mass"` bin the confidence of the predicted class; `"classwise"` is the mean
            over classes of the equal-width error of each class's probability; `"smooth"` has a kernel instead of bins.
        norm (`str`, *optional*, defaults to `"l1"`):
            `"l1"` (ECE), `"l2"` (root mean square) or `"max"` (maximum calibration error, MCE).
        debiased (`bool`, *optional*, defaults to `False`):
            Whether to subtract the part of an L1 or L2 error that the sampling noise within bins explains.

    Example:

    ```python
    >>> probabilities = [[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]
    >>> expected_calibration_error(probabilities, [0, 0, 1, 1], probabilities=True)
    0.0625

    ```
    """
    options = ScoreOptions(n_bins, variant, norm, debiased)
    if not probabilities:
        warn_of_probabilities(predictions)
    if variant == "classwise":
        sums = classwise_sums(predictions, references, probabilities, n_bins)
        return float(bin_score(*sums, norm, debiased).mean())
    return _calibration_error(*confidences(predictions, references, probabilities), options)


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
    check_confidences(confidence, correct)
    return _calibration_error(confidence, correct, ScoreOptions(n_bins, variant, norm, debiased))


def _calibration_error(confidence: np.ndarray, correct: np.ndarray, options: ScoreOptions) -> float:
    if options.variant == "smooth":
        return smooth_calibration_error(confidence, correct)
    bins = reliability_bins(confidence, correct, options.n_bins, options.variant)
    return float(bin_score(bins.count, bins.confidence, bins.correct, options.norm, options.debiased))


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
    check_bins(n_bins)
    index = bin_index(confidence, n_bins, binning)
    count = np.bincount(index, minlength=n_bins).astype(np.float64)
    if binning == "equal_width":
        edges = np.linspace(0, 1, n_bins + 1)
        lower, upper = edges[:-1], edges[1:]
    else:
        parts = np.array_split(np.sort(confidence), n_bins)
        lower = np.array([part[0] if len(part) else 1.0 for part in parts])
        upper = np.array([part[-1] if len(part) else 1.0 for part in parts])
    return ReliabilityBins(
        lower,
        upper,
        count,
        np.bincount(index, weights=confidence, minlength=n_bins),
        np.bincount(index, weights=correct, minlength=n_bins),
    )


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
