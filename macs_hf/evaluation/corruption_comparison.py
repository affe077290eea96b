"""Two classifiers under the same corruptions of the same images, compared image by image.

With r[i] the share of an image's corrupted versions that a model gets right, the difference is the mean over images of
r_a[i] - r_b[i], and its 95 % interval is that mean ± 1.96 standard errors. Most of what makes an image hard is the
same for both models and cancels, so the interval is far narrower than that of two unrelated means.
"""

from collections.abc import Sequence

import numpy as np

from ..metrics import Comparison
from ..report.corruption_table import SEVERITIES, STANDARD_15, CorruptionTable


def compare_corruptions(
    a: CorruptionTable | Sequence[CorruptionTable],
    b: CorruptionTable | Sequence[CorruptionTable],
    groups: Sequence[Sequence[str]] = (STANDARD_15,),
) -> Comparison:
    """
    Accuracy under corruption of `a` minus that of `b`, with a paired interval.

    Args:
        a, b (`CorruptionTable` or sequence of them): Of the same dataset, images and corruptions. Of several, such as
            seeds, the mean counts; the interval is then that of the images alone.
        groups (sequence of sequences of `str`, *optional*): Corruptions; all groups count alike. By default one group,
            the standard 15.

    Example:

    ```python
    >>> from dataclasses import replace
    >>> table = CorruptionTable("cifar", "generated", 4, {"fog": dict.fromkeys(range(1, 6))}, seed=0)
    >>> good, poor = replace(table, hits={"fog": "5545"}), replace(table, hits={"fog": "4434"})
    >>> found = compare_corruptions(good, poor, [["fog"]])
    >>> round(found.difference, 2), found.verdict
    (0.2, 'better')

    ```
    """
    sides = [[side] if isinstance(side, CorruptionTable) else list(side) for side in (a, b)]
    if not all(sides):
        raise ValueError("a comparison needs at least one table on each side")
    first, *others = (table for side in sides for table in side)
    for table in others:
        _check_alike(first, table)
    of_a, of_b = (np.mean([_shares(table, groups) for table in side], axis=0) for side in sides)
    differences = of_a - of_b
    value = float(differences.mean())
    half = float(1.96 * differences.std(ddof=1) / len(differences) ** 0.5) if len(differences) > 1 else float("inf")
    tie = value - half <= 0 <= value + half
    verdict = "undecided" if tie else "better" if value > 0 else "worse"
    return Comparison(float(of_a.mean()), float(of_b.mean()), value, value - half, value + half, verdict)


def _check_alike(a: CorruptionTable, b: CorruptionTable) -> None:
    for name in ("params", "source", "n", "seed", "when", "size", "frost"):
        of_a, of_b = getattr(a, name), getattr(b, name)
        unknown = name == "size" and None in (of_a, of_b)  # older tables do not tell
        if of_a != of_b and not unknown:
            raise ValueError(
                f"the tables differ in {name} ({of_a!r} and {of_b!r}): a comparison needs the same images under the "
                f"same corruptions"
            )


def _shares(table: CorruptionTable, groups: Sequence[Sequence[str]]) -> np.ndarray:
    """For each image, the mean over groups of the share of its corrupted versions that were right."""
    if table.hits is None:
        raise ValueError("the table has no hits, the results image by image: measure the model again to compare it")
    missing = [name for group in groups for name in group if tuple(table.cells.get(name, ())) != SEVERITIES]
    if missing:
        raise ValueError(f"{missing[0]!r} was not measured at all of the severities {SEVERITIES}")
    means = [np.mean([_digits(table.hits[name]) for name in group], axis=0) for group in groups]
    return np.mean(means, axis=0) / len(SEVERITIES)


def _digits(hits: str) -> np.ndarray:
    return np.frombuffer(hits.encode("ascii"), dtype=np.uint8) - ord("0")
