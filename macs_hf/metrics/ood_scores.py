"""How well a score tells known images, of the model's classes, from unknown ones, of none: AUROC, and FPR at 95 % TPR.

Known images are the positive class, and higher scores mean known. With `t` the highest threshold that accepts at least
95 % of the known images (accepted is a score of at least `t`):

    AUROC = P(known > unknown) + P(known = unknown) / 2
    FPR at 95 % TPR = share of the unknown images that `t` accepts
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..report.report import Detection, Interval, ScoreName
from .intervals import percentiles, resample_counts, wilson
from .scores import check_settings


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
        known, unknown (array of shape `(n,)` and `(m,)`): The score of each image; higher means known.
        score (`str`, *optional*, defaults to `"max_probability"`): What the score is called.
        n_resamples (`int`, *optional*, defaults to `500`): Number of bootstrap resamples, of known and of unknown
            images apart.
        level (`float`, *optional*, defaults to `0.95`): Probability that the intervals are meant to cover.
        seed (`int`, *optional*, defaults to `0`): Seed of the resamples.

    Example:

    ```python
    >>> found = detection([3.0, 2.0, 2.0, 1.0], [2.0, 0.0])
    >>> found.auroc.value, found.fpr95.value  # 1 + 3/4 of the pairs; 95 % of four are all four
    (0.75, 0.5)

    ```
    """
    check_settings(n_resamples=n_resamples, level=level)
    known, unknown = _descending("known", known), _descending("unknown", unknown)
    n, m = len(known), len(unknown)
    [auroc], [fpr] = _scores(known, unknown, np.ones((1, n)), np.ones((1, m)))
    blocks = resample_counts([n, m], n_resamples, MAX_CELLS // max(n, m), seed)
    aurocs, fprs = np.concatenate([_scores(known, unknown, *counts) for counts in blocks], axis=1)
    auroc, fpr = float(auroc), float(fpr)
    low, high = percentiles(auroc, aurocs, level)
    if auroc in (0.0, 1.0):
        # Nothing varies in resamples of sets that do not overlap: as if each image of the smaller one were a trial.
        low, high = wilson(int(auroc) * min(n, m), min(n, m), level)
    # At least the interval of a share of the unknown images at a fixed threshold.
    lows, highs = zip(percentiles(fpr, fprs, level), wilson(round(fpr * m), m, level), strict=True)
    return Detection(score, Interval(auroc, low, high), Interval(fpr, min(lows), max(highs)))


def _descending(name: str, values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{name} must hold one finite score for each image, got {values} of the shape {values.shape}")
    return np.sort(values)[::-1]


def _scores(known: np.ndarray, unknown: np.ndarray, drawn: np.ndarray, drawn_unknown: np.ndarray) -> np.ndarray:
    """
    AUROC and FPR `(2, resamples)` of scores in descending order, drawn so often each `(resamples, images)`.
    """
    n, m, first = drawn.sum(axis=1), drawn_unknown.sum(axis=1), np.zeros((len(drawn), 1))
    passed, taken = (np.concatenate([first, x.cumsum(axis=1)], axis=1) for x in (drawn, drawn_unknown))
    # For each unknown image how many known ones score higher, and how many at least as high.
    above, not_below = (passed[:, np.searchsorted(-known, -unknown, side=side)] for side in ("left", "right"))
    auroc = (drawn_unknown * (above + not_below)).sum(axis=1) / (2 * n * m)
    threshold = (passed[:, 1:] >= (TPR * n - 1e-9)[:, None]).argmax(axis=1)
    accepted = np.searchsorted(-unknown, -known[threshold], side="right")
    return np.stack([auroc, taken[np.arange(len(taken)), accepted] / m])
