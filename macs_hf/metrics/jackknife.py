"""What each image adds to the calibration error of a run: the jackknife, leaving out one image at a time.

`influence @ influence.T` of several runs on the same images is the covariance of their scores over the draw of images.
"""

from __future__ import annotations

import numpy as np

from .ece import bin_index, bin_terms
from .score_options import Norm


def score_without_each(
    confidence: np.ndarray, correct: np.ndarray, n_bins: int = 15, norm: Norm = "l1", debiased: bool = False
) -> tuple[float, np.ndarray]:
    """
    The mean over samples of the terms of their bins (before the root of an L2 error, and not cut at 0), and the same
    without each sample in turn, shape `(n,)`.
    """
    n, index = len(confidence), bin_index(confidence, n_bins)
    sums = [np.bincount(index, weights=w, minlength=n_bins) for w in (None, confidence, correct)]
    totals = sums[0] * bin_terms(*sums, norm, debiased)
    less = [column[index] - own for column, own in zip(sums, (1.0, confidence, correct), strict=True)]
    without = totals.sum() - totals[index] + less[0] * bin_terms(*less, norm, debiased)
    return float(totals.sum() / n), without / (n - 1)


def jackknife(without: np.ndarray) -> np.ndarray:
    """What each sample adds to the deviation of a score, from the scores without each sample `(..., n)`."""
    n = without.shape[-1]
    return (without.mean(axis=-1, keepdims=True) - without) * np.sqrt((n - 1) / n)
