"""The difference between two sides of one or several runs each, over test images and seeds together.

See `interval_width.py` for the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from .interval_width import half_width
from .score_options import check_level


Verdict = Literal["better", "worse", "undecided", "equal"]
Covers = Literal["images", "images and seeds"]


class Comparison(NamedTuple):
    """
    One metric of two sides on the same samples.

    Args:
        a, b (`float`):
            The metric of each side, the mean over its runs.
        difference, low, high (`float`):
            `a - b` and its interval.
        verdict (`str`):
            `"better"` or `"worse"` says how `a` is, if the interval excludes 0; else `"undecided"`, and `"equal"` if
            both sides have the same runs, as far as this metric of every image tells.
        covers (`str`):
            What the interval accounts for: `"images"` with one run on each side (another training run may give another
            answer), else `"images and seeds"`.
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    verdict: Verdict
    covers: Covers = "images"


def paired_difference(
    a: Any,
    b: Any,
    *,
    strata: Any = None,
    weights: Any = None,
    same_seeds: bool = False,
    level: float = 0.95,
    higher_is_better: bool = True,
) -> Comparison:
    """
    The difference in a mean over images, such as accuracy or NLL, between two sides of one or several runs each.

    Args:
        a, b (array of shape `(seeds, images)` or `(seeds, images, columns)`):
            What each run scored on each image; sides may have different numbers of seeds. With columns (such as
            corruptions), the metric of a run is the mean over columns of the mean over the images of the column. NaN
            marks what was not measured; it must be the same for all runs.
        strata (array of shape `(images,)`, *optional*):
            The stratum of each image, for arrays without columns: the metric is the mean over strata of the mean over
            the images of the stratum.
        weights (array of shape `(columns,)`, *optional*):
            Weights of the columns, or of the strata in ascending order, that replace the plain mean over them. They
            are scaled to sum to 1.
        same_seeds (`bool`, *optional*, defaults to `False`):
            Whether run i of `a` and run i of `b` share what the seed decides (training images, initial weights). Their
            difference then counts, which is much narrower where good seeds are good for both.
        level (`float`, *optional*, defaults to `0.95`):
            Probability that the interval is meant to cover.
        higher_is_better (`bool`, *optional*, defaults to `True`):
            Which sign of the difference is `"better"`.

    Example:

    ```python
    >>> found = paired_difference([[1, 1, 1, 1], [1, 1, 0, 1]], [[0, 0, 1, 0], [0, 1, 0, 0]])
    >>> found.difference, found.verdict, found.covers
    (0.625, 'undecided', 'images and seeds')

    ```
    """
    a, b = (np.asarray(side, dtype=np.float64) for side in (a, b))
    if a.ndim not in (2, 3) or a.shape[1:] != b.shape[1:] or 0 in (*a.shape, *b.shape):
        raise ValueError(
            f"a and b must have the shape (seeds, images) or (seeds, images, columns) with the same images, "
            f"got {a.shape} and {b.shape}"
        )
    runs = np.concatenate([a, b])
    if runs.ndim == 2:
        runs = _split(runs, strata)
    elif strata is not None:
        raise ValueError("strata are for arrays (seeds, images); with columns, put NaN where nothing was measured")
    values, influence = _means(runs, weights)
    return difference_of_runs(
        values[: len(a)],
        values[len(a) :],
        covariance(influence),
        same_seeds=same_seeds,
        level=level,
        higher_is_better=higher_is_better,
    )


def difference_of_runs(
    a: Sequence[float],
    b: Sequence[float],
    image_covariance: np.ndarray,
    *,
    bias: tuple[float, float] = (0.0, 0.0),
    same_seeds: bool = False,
    level: float = 0.95,
    higher_is_better: bool = True,
) -> Comparison:
    """
    The comparison of the metrics of the runs of two sides.

    Args:
        a, b (sequence of `float`):
            The metric of each run.
        image_covariance (`np.ndarray` of shape `(runs, runs)`):
            Covariance of these metrics over the draw of test images, first the runs of `a`, then those of `b`. If only
            the standard error of each side is known, a block filled with its square for each side, and 0 elsewhere,
            takes the sides as unrelated. Zeros leave the interval of the seeds.
        bias (`tuple[float, float]`, *optional*, defaults to `(0.0, 0.0)`):
            By how much `a - b` is too large on average, at least and at most. The interval is that of the true
            difference, and is widened if need be to hold `a - b`.
        same_seeds, level, higher_is_better:
            See [`paired_difference`].
    """
    check_level(level)
    a, b, image_covariance = (np.asarray(part, dtype=np.float64) for part in (a, b, image_covariance))
    value = float(a.mean() - b.mean())
    half = half_width(a, b, image_covariance, same_seeds, level)
    low, high = min(value - bias[1] - half, value), max(value - bias[0] + half, value)
    if _same_runs(a, b, image_covariance):
        value, low, high, verdict = 0.0, 0.0, 0.0, "equal"
    elif low > 0 or high < 0:
        verdict = "better" if (value > 0) == higher_is_better else "worse"
    else:
        verdict = "undecided"
    covers = "images" if len(a) == len(b) == 1 else "images and seeds"
    return Comparison(float(a.mean()), float(b.mean()), value, low, high, verdict, covers)


def _same_runs(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray) -> bool:
    """Whether the runs of `b` are those of `a`, in any order: the same values, and no image that tells them apart."""
    values, variance = np.concatenate([a, b]), image_covariance.diagonal()
    if not variance.any():  # nothing is known of the images
        return bool((values == values[0]).all())
    of_differences = variance[:, None] + variance - 2 * image_covariance
    same = (values[:, None] == values) & (of_differences <= 1e-12 * variance.sum())  # below is rounding
    return bool((same[: len(a)].mean(axis=0) == same[len(a) :].mean(axis=0)).all())


def covariance(influence: np.ndarray) -> np.ndarray:
    """Covariance of metrics over the draw of images, from what each image adds to their deviation `(runs, images)`."""
    return influence @ influence.T


def mean_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over images of `(runs, images)`, and their covariance over the draw of images."""
    means, influence = _means(np.asarray(values, dtype=np.float64)[..., None], None)
    return means, covariance(influence)


def _split(runs: np.ndarray, strata: Any) -> np.ndarray:
    """`(runs, images)` as `(runs, images, strata)`, NaN outside of an image's stratum."""
    if strata is None:
        return runs[..., None]
    strata = np.asarray(strata)
    if strata.shape != runs.shape[1:]:
        raise ValueError(f"strata must name a stratum for each of the {runs.shape[1]} images, got {strata.shape}")
    return np.where(strata[:, None] == np.unique(strata), runs[..., None], np.nan)


def _means(runs: np.ndarray, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """The metric of each run from `(runs, images, columns)`, and what each image adds to its deviation."""
    columns = runs.shape[2]
    weights = np.ones(columns) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (columns,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ValueError(f"weights must be {columns} numbers of at least 0, one per column or stratum, got {weights}")
    runs, weights = runs[..., weights > 0], weights[weights > 0] / weights.sum()
    missing = np.isnan(runs)
    if (missing != missing[0]).any():
        raise ValueError("the runs were not measured on the same images: NaN must be in the same places in all runs")
    count = (~missing[0]).sum(axis=0)
    if count.min() < 2:
        raise ValueError(f"a comparison needs at least two images in each column or stratum, got {count.min()}")
    means = np.nansum(runs, axis=1) / count
    deviations = np.where(missing, 0.0, runs - means[:, None]) / np.sqrt(count * (count - 1))
    return means @ weights, deviations @ weights
