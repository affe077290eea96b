"""What a study could have seen, and how many more runs would decide what it left open.

The interval of a difference has a part that shrinks with more seeds, and one that only more test images shrink:

    half-width^2 = t(S - 1)^2 v / S + z^2 w

with S seeds, v the variance of the difference between seeds, and w the variance over test images, which is what is
left of the half-width that was found. The estimates of v and of the difference itself come from the same few runs, so
the number of seeds is a rough one.
"""

from collections.abc import Sequence
from statistics import variance

from scipy import stats


MOST = 100


def seeds_needed(differences: Sequence[float], half_width: float, distance: float) -> int | None:
    """
    With how many seeds the interval would be shorter than the distance from the difference to the end of the range.

    Args:
        differences (`Sequence[float]`): The difference of each seed, two at least.
        half_width (`float`): Half of the 95 % interval that was found.
        distance (`float`): How far the mean difference is from the nearest end of the claimed range.

    Returns:
        `int`, or `None` if it would take more than 100 seeds, or more test images.

    ```python
    >>> seeds_needed([-1.0, 3.0], half_width=25.4, distance=1.0)
    34
    >>> seeds_needed([0.9, 1.1], half_width=5.0, distance=1.0) is None
    True

    ```
    """
    spread = variance(differences)
    images = max(half_width**2 - _seed_part(spread, len(differences)), 0.0)
    for seeds in range(len(differences) + 1, MOST + 1):
        if _seed_part(spread, seeds) + images < distance**2:
            return seeds
    return None


def _seed_part(spread: float, seeds: int) -> float:
    return float(stats.t.ppf(0.975, seeds - 1)) ** 2 * spread / seeds
