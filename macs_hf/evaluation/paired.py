"""The difference between two sides of one or several runs each, over test images and training seeds together.

With m[s] the mean of run s, S runs on a side, and u[s, i] what image i adds to the deviation of m[s]:

    v_seed        = pooled variance of m within the sides * (1 / S_a + 1 / S_b)
    v_image       = sum over images of (mean over the runs of a of u - mean over the runs of b of u)^2
    v_interaction = the part of v_image that differs from seed to seed; v_seed holds it already
    half-width^2  = t(S_a + S_b - 2)^2 v_seed + 1.96^2 max(v_image - v_interaction, 0)
"""

import numpy as np
from scipy.special import stdtrit

from ..metrics import Comparison


def paired_difference(
    a: np.ndarray, b: np.ndarray, *, weights: np.ndarray, higher_is_better: bool = True
) -> Comparison:
    """
    `a - b` in a weighted mean over columns of the mean over the images of the column, with its 95 % interval.

    Args:
        a, b (`np.ndarray` of shape `(runs, images, columns)`): NaN where an image was not measured, which is the same
            for all runs. With one run on each side the interval covers test images only.
        weights (`np.ndarray` of shape `(columns,)`): They add up to 1.
        higher_is_better (`bool`, *optional*, defaults to `True`): Which sign of the difference is a win.
    """
    runs, split = np.concatenate([a, b]), len(a)
    missing = np.isnan(runs)
    if (missing != missing[0]).any():
        raise ValueError("the runs were not measured on the same images under the same corruptions")
    count = (~missing[0]).sum(axis=0)
    if count.min() < 2:
        raise ValueError(f"a comparison needs at least two images under each corruption, there are {count.min()}")
    means = np.nansum(runs, axis=1) / count
    added = (np.where(missing, 0.0, runs - means[:, None]) / np.sqrt(count * (count - 1.0))) @ weights
    values = means @ weights
    sides = values[:split], values[split:]
    value = float(sides[0].mean() - sides[1].mean())
    half = _half_width(sides, (added[:split], added[split:]))
    tie = abs(value) <= half
    verdict = "tie" if tie else "win" if (value > 0) == higher_is_better else "loss"
    return Comparison(float(sides[0].mean()), float(sides[1].mean()), value, value - half, value + half, verdict)


def _half_width(values: tuple[np.ndarray, np.ndarray], added: tuple[np.ndarray, np.ndarray]) -> float:
    images = ((added[0].mean(axis=0) - added[1].mean(axis=0)) ** 2).sum()
    freedom = sum(len(side) - 1 for side in values)
    if not freedom:
        return float(1.96 * images**0.5)
    scale = sum(1 / len(side) for side in values)
    seeds = scale * sum(((side - side.mean()) ** 2).sum() for side in values) / freedom
    interaction = scale * sum(((side - side.mean(axis=0)) ** 2).sum() for side in added) / freedom
    return float((stdtrit(freedom, 0.975) ** 2 * seeds + 1.96**2 * max(images - interaction, 0.0)) ** 0.5)
