"""How well a score tells known images, of the model's classes, from unknown ones, of none: AUROC, and FPR at 95 % TPR.

Known images are the positive class, and higher scores mean known. With `t` the highest threshold that accepts at least
95 % of the known images (accepted is a score of at least `t`):

    AUROC = P(known > unknown) + P(known = unknown) / 2
    FPR at 95 % TPR = share of the unknown images that `t` accepts
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from ..report.report import Detection, Interval, ScoreName
from .ece import check_level, check_resamples
from .intervals import percentiles, resample_counts, wilson


TPR = 0.95
MAX_CELLS = 2**19  # resamples x images at a time


def detection(
    known: Any,
    unknown: Any,
    score: ScoreName = "max_probability",
    *,
    n_resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Detection:
    """
    AUROC and FPR at 95 % TPR of one score, with bootstrap intervals over both sets of images.

    Args:
        known, unknown (array of shape `(n,)` and `(m,)`):
            The score of each image; higher means known.
        score (`str`, *optional*, defaults to `"max_probability"`):
            What the score is called.
        n_resamples (`int`, *optional*, defaults to `500`):
            Number of bootstrap resamples, of known and of unknown images apart.
        level (`float`, *optional*, defaults to `0.95`):
            Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the resamples.

    Example:

    ```python
    >>> found = detection([3.0, 2.0, 2.0, 1.0], [2.0, 0.0])
    >>> found.auroc.value, found.fpr95.value  # 1 + 3/4 of the pairs; 95 % of four are all four
    (0.75, 0.5)

    ```
    """
    check_resamples(n_resamples)
    check_level(level)
    if score not in get_args(ScoreName):
        raise ValueError(f"score={score!r} is not one of {', '.join(get_args(ScoreName))}")
    known, unknown = (_checked(name, values) for name, values in (("known", known), ("unknown", unknown)))
    places = _places(known, unknown)
    [auroc], [fpr] = _scores(np.ones((1, len(known))), np.ones((1, len(unknown))), *places)
    resamples = [_scores(*counts, *places) for counts in _resampled(len(known), len(unknown), n_resamples, seed)]
    aurocs, fprs = (np.concatenate(part) for part in zip(*resamples, strict=True))
    auroc, fpr = float(auroc), float(fpr)
    low, high = percentiles(auroc, aurocs, level)
    if auroc in (0.0, 1.0):
        # Nothing varies in resamples of sets that do not overlap: as if each image of the smaller one were a trial.
        smaller = min(len(known), len(unknown))
        low, high = wilson(int(auroc) * smaller, smaller, level)
    # At least the interval of a share of the unknown images at a fixed threshold.
    shares = percentiles(fpr, fprs, level), wilson(round(fpr * len(unknown)), len(unknown), level)
    fprs_low, fprs_high = zip(*shares, strict=True)
    return Detection(score, Interval(auroc, low, high), Interval(fpr, min(fprs_low), max(fprs_high)))


def _checked(name: str, values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"{name} must hold one score for each of one or more images, got the shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds {np.count_nonzero(~np.isfinite(values))} scores that are not finite")
    return np.sort(values)[::-1]


def _places(known: np.ndarray, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Of scores in descending order: for each unknown image how many known ones score higher, and how many at least as
    high; for each known image how many unknown ones its score, as a threshold, would accept.
    """
    above = np.searchsorted(-known, -unknown, side="left")
    not_below = np.searchsorted(-known, -unknown, side="right")
    return above, not_below, np.searchsorted(-unknown, -known, side="right")


def _scores(
    known: np.ndarray, unknown: np.ndarray, above: np.ndarray, not_below: np.ndarray, accepted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """AUROC and FPR of resamples, given how often each has each image `(resamples, images)`, highest score first."""
    n, m = known.sum(axis=1), unknown.sum(axis=1)
    first = np.zeros((len(known), 1))
    passed = np.concatenate([first, known.cumsum(axis=1)], axis=1)
    auroc = (unknown * (passed[:, above] + passed[:, not_below])).sum(axis=1) / (2 * n * m)
    threshold = (passed[:, 1:] >= (TPR * n - 1e-9)[:, None]).argmax(axis=1)
    taken = np.concatenate([first, unknown.cumsum(axis=1)], axis=1)
    return auroc, taken[np.arange(len(taken)), accepted[threshold]] / m


def _resampled(n: int, m: int, n_resamples: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Blocks of how often each image is drawn, with replacement."""
    rng = np.random.default_rng(seed)
    block = max(1, MAX_CELLS // max(n, m))
    for start in range(0, n_resamples, block):
        resamples = min(block, n_resamples - start)
        yield tuple(resample_counts(rng, resamples, size).astype(np.float64) for size in (n, m))
