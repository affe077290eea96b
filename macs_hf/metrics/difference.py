"""The difference between two sides of one or several runs each, over test images and seeds together.

With the metric of run s of side a written `m[s]`, S runs on that side, and C the covariance of all these metrics over
the draw of test images (all runs see the same images, so most of what makes an image hard cancels):

    v_seed        = var(m of a) / S_a + var(m of b) / S_b,  with the degrees of freedom f of Welch and Satterthwaite
    v_image       = w' C w,                                 with w = 1 / S_a for runs of a and -1 / S_b for runs of b
    v_interaction = the part of v_image that differs from seed to seed; v_seed holds it already
    half-width^2  = t(f)^2 v_seed + z^2 max(v_image - v_interaction, 0)

Runs are not paired by seed. A side with a single run takes the spread of the other side; with one run on each side
the interval covers test images only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from .options import check_level


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
            the two sides agree on every image.
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
    return judged(
        values[: len(a)], values[len(a) :], covariance(influence), level=level, higher_is_better=higher_is_better
    )


def judged(
    a: Sequence[float],
    b: Sequence[float],
    image_covariance: np.ndarray,
    *,
    bias: float = 0.0,
    level: float = 0.95,
    higher_is_better: bool = True,
) -> Comparison:
    """
    The comparison of the metrics of the runs of two sides, see the equations of this module.

    Args:
        a, b (sequence of `float`):
            The metric of each run.
        image_covariance (`np.ndarray` of shape `(runs, runs)`):
            Covariance of these metrics over the draw of test images, first the runs of `a`, then those of `b`. Zeros
            if there are none: the interval is then that of the seeds. A diagonal matrix takes runs as unrelated.
        bias (`float`, *optional*, defaults to 0.0):
            An estimate of how much too large `a - b` is on average. The interval is shifted by it (the "basic"
            interval of a bootstrap); the verdict must hold for the interval shifted the other way as well.
    """
    check_level(level)
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    value = float(a.mean() - b.mean())
    half = half_width(a, b, image_covariance, level)
    low, high = value - bias - half, value - bias + half
    if half == bias == value == 0:
        verdict = "equal"
    elif abs(value) - abs(bias) > half:
        verdict = "better" if (value > 0) == higher_is_better else "worse"
    else:
        verdict = "undecided"
    covers = "images" if len(a) == len(b) == 1 else "images and seeds"
    return Comparison(float(a.mean()), float(b.mean()), value, min(low, value), max(high, value), verdict, covers)


def half_width(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray, level: float = 0.95) -> float:
    """Half of the interval of the difference between the means of `a` and `b`; see the equations of this module."""
    split = len(a)
    image_covariance = np.asarray(image_covariance, dtype=np.float64)
    if image_covariance.shape != (split + len(b),) * 2:
        raise ValueError(f"image_covariance must be {(split + len(b),) * 2}, got {image_covariance.shape}")
    weights = np.concatenate([np.full(split, 1 / split), np.full(len(b), -1 / len(b))])
    images = weights @ image_covariance @ weights
    images = images if images > 1e-12 * np.trace(image_covariance) else 0.0  # below is rounding
    upper = (1 + level) / 2
    if len(a) == len(b) == 1:
        return float(ndtri(upper) * np.sqrt(images))
    sides = [(a, image_covariance[:split, :split]), (b, image_covariance[split:, split:])]
    sides = [_between_seeds(values, part) for values, part in sides]
    freedoms = np.array([len(a), len(b)]) - 1
    pooled = sum(f * np.array(side) for f, side in zip(freedoms, sides, strict=True) if f) / freedoms.sum()
    # The side with one run borrows the spread of the other.
    (var_a, inter_a), (var_b, inter_b) = (side if f else pooled for f, side in zip(freedoms, sides, strict=True))
    spread, shared = var_a / len(a) + var_b / len(b), inter_a / len(a) + inter_b / len(b)
    # Two runs say little about which side spreads more: half-way to the pooled variance, the degrees of freedom vary
    # less, and the simulated coverage of 2 against 2 runs is 96 to 98 % in place of 98 to 99 %.
    shares = np.array([(var_a + pooled[0]) / len(a), (var_b + pooled[0]) / len(b)]) / 2
    freedom = freedoms.sum()
    if freedoms.all() and spread > 0:
        freedom = shares.sum() ** 2 / (shares**2 / freedoms).sum()
    images = max(images - shared, 0.0)
    return float(np.sqrt(stdtrit(freedom, upper) ** 2 * spread + ndtri(upper) ** 2 * images))


def covariance(influence: np.ndarray) -> np.ndarray:
    """Covariance of metrics over the draw of images, from what each image adds to their deviation `(runs, images)`."""
    return influence @ influence.T


def mean_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over images of `(runs, images)`, and their covariance over the draw of images."""
    means, influence = _means(np.asarray(values, dtype=np.float64)[..., None], None)
    return means, covariance(influence)


def _between_seeds(values: np.ndarray, image_covariance: np.ndarray) -> tuple[float, float]:
    """Variance of the runs of one side, and the part of it that is seed x image interaction; 0 for a single run."""
    n = len(values)
    if n == 1:
        return 0.0, 0.0
    interaction = (np.trace(image_covariance) - image_covariance.mean() * n) / (n - 1)
    return float(values.var(ddof=1)), float(interaction)


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
