"""How much noise adds to a plug-in calibration error, and how well that is known.

With d[b] the sum over the images of bin b of (confidence - hit) / n, the error is the sum of |d[b]|. Noise makes each
of these too large, the more so the smaller the true one is. The measured ones are noisy, so to take them for the true
ones would say that too little is added; shrunk by

    t^2 = (sum of d^2 - sum of their variances) / (sum of d^2),    at least 0

they have on average the size of the true ones. A calibrated model has t = 0, and noise is all it shows.
"""

from __future__ import annotations

import numpy as np

from .ece import bin_index, folded_mean


def noise_inflation(confidence: np.ndarray, correct: np.ndarray, n_bins: int = 15) -> np.ndarray:
    """
    By how much the error of these bins exceeds the true one on average: at least, about, and at most, shape `(3,)`.

    The ends are what t^2 gives one standard error above and below its estimate.

    ```python
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1, 1000)
    >>> noise_inflation(confidence, rng.random(1000) < confidence).round(3).tolist()  # calibrated
    [0.015, 0.028, 0.028]
    >>> noise_inflation(confidence, rng.random(1000) < confidence - 0.3).round(3).tolist()  # not at all
    [0.0, 0.0, 0.0]

    ```
    """
    n, index = len(confidence), bin_index(confidence, n_bins)
    error = confidence - correct
    gap = np.bincount(index, weights=error, minlength=n_bins) / n
    # An image is in one bin only, so products of two bins are those of the means.
    covariance = np.diag(np.bincount(index, weights=error**2, minlength=n_bins) / n) - np.outer(gap, gap)
    covariance /= max(n - 1, 1)
    size = gap @ gap
    if size == 0:
        return np.zeros(3)
    excess = size - covariance.trace()
    deviation = np.sqrt(2 * (covariance**2).sum() + 4 * max(excess, 0) / size * gap @ covariance @ gap)
    shrunk = np.sqrt(np.clip((excess + np.array([1, 0, -1]) * deviation) / size, 0, 1))[:, None] * np.abs(gap)
    return (folded_mean(shrunk, np.sqrt(covariance.diagonal().clip(0))) - shrunk).sum(axis=1)
