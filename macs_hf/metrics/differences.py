"""The difference between two sides of one or several runs each, over test images and seeds together.

With the metric of run s of side a written `m[s]`, S runs on that side, and C the covariance of all these metrics over
the draw of test images (all runs see the same images, so most of what makes an image hard cancels):

    v_seed        = var(m of a) / S_a + var(m of b) / S_b,  with the degrees of freedom f of Welch and Satterthwaite
    v_image       = w' C w,                                 with w = 1 / S_a for runs of a and -1 / S_b for runs of b
    v_interaction = the part of v_image that differs from seed to seed; v_seed holds it already
    half-width^2  = t(f)^2 v_seed + z^2 max(v_image - v_interaction, 0)

Runs are not paired unless `same_seeds` says so: then v_seed and v_interaction are those of the differences of pairs,
with S - 1 degrees of freedom. A side with a single run takes the spread of the other side; with one run on each side
the interval covers test images only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from .ece import check_level


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
        weights (array of shape `(columns,)`, *optional*):
            Weights of the columns that replace the plain mean over them. They are scaled to sum to 1.
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
    values, covariance = mean_scores(np.concatenate([a, b]), weights)
    return difference_of_runs(
        values[: len(a)],
        values[len(a) :],
        covariance,
        same_seeds=same_seeds,
        level=level,
        higher_is_better=higher_is_better,
    )


def mean_scores(runs: np.ndarray, weights: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The metric of each run from `(runs, images)` or `(runs, images, columns)`, and their covariance over images."""
    runs = np.asarray(runs, dtype=np.float64)
    runs = runs[..., None] if runs.ndim == 2 else runs
    columns = runs.shape[2]
    weights = np.ones(columns) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (columns,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ValueError(f"weights must be {columns} numbers of at least 0, one per column, got {weights}")
    runs, weights = runs[..., weights > 0], weights[weights > 0] / weights.sum()
    missing = np.isnan(runs)
    if (missing != missing[0]).any():
        raise ValueError("the runs were not measured on the same images: NaN must be in the same places in all runs")
    count = (~missing[0]).sum(axis=0)
    if count.min() < 2:
        raise ValueError(f"a comparison needs at least two images in each column, got {count.min()}")
    means = np.nansum(runs, axis=1) / count
    # What each image adds to the deviation of a run's metric.
    influence = np.where(missing, 0.0, runs - means[:, None]) / np.sqrt(count * (count - 1)) @ weights
    return means @ weights, influence @ influence.T


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


def half_width(
    a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray, same_seeds: bool = False, level: float = 0.95
) -> float:
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
    spread, shared, freedom = (_paired if same_seeds else _unpaired)(a, b, image_covariance)
    if spread == 0:  # all runs of a side scored the same by chance
        return float(ndtri(upper) * np.sqrt(max(images, shared)))
    images = max(images - shared, 0.0)
    return float(np.sqrt(stdtrit(freedom, upper) ** 2 * spread + ndtri(upper) ** 2 * images))


def _paired(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray) -> tuple[float, float, float]:
    """Variance of the difference over seeds, the interaction in it, degrees of freedom; run i has the seed i."""
    n = len(a)
    if n != len(b):
        raise ValueError(f"same_seeds=True needs as many runs of a as of b, in the same order, got {n} and {len(b)}")
    differences = np.concatenate([np.eye(n), -np.eye(n)], axis=1)
    variance, interaction = _between_seeds(a - b, differences @ image_covariance @ differences.T)
    return variance / n, interaction / n, n - 1


def _unpaired(a: np.ndarray, b: np.ndarray, image_covariance: np.ndarray) -> tuple[float, float, float]:
    """The same of runs that have nothing in common but the images."""
    split = len(a)
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
    return spread, shared, freedom


def _between_seeds(values: np.ndarray, image_covariance: np.ndarray) -> tuple[float, float]:
    """Variance of the runs of one side, and the part of it that is seed x image interaction; 0 for a single run."""
    n = len(values)
    if n == 1:
        return 0.0, 0.0
    interaction = (np.trace(image_covariance) - image_covariance.mean() * n) / (n - 1)
    return float(values.var(ddof=1)), float(interaction)
