"""Smooth calibration error (Blasiok and Nakkiran 2023, https://huggingface.co/papers/2309.12236), without a grid.

With confidences f, residuals y - f and the Gaussian kernel K_s reflected at 0 and 1:

    smECE_s = integral over [0, 1] of |mean of (y - f) K_s(f, t)| dt,     smECE = the s with smECE_s = s

On [0, 1] the reflected kernel is the cosine series 1 + 2 sum of exp(-(pi k s)^2 / 2) cos(pi k f) cos(pi k t), so
confidences are never rounded to a grid, and mass at exactly 0 or 1 is reflected like any other.
"""

from __future__ import annotations

import math

import numpy as np

from .inputs import check_confidences


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
