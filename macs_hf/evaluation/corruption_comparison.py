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
    >>> from macs_hf.report.corruption_rows import CorruptionRows
    >>> table = CorruptionTable("cifar", "generated", 4, {"fog": dict.fromkeys(range(1, 6))}, seed=0)
    >>> hits = np.array([[5], [5], [4], [5]], dtype=np.uint8)
    >>> rows = CorruptionRows(np.arange(4), ("fog",), hits)
    >>> good, poor = replace(table, rows=rows), replace(table, rows=replace(rows, hits=hits - 1))
    >>> found = compare_corruptions(good, poor, [["fog"]])
    >>> round(found.difference, 2), found.verdict
    (0.2, 'win')

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
    verdict = "tie" if tie else "win" if value > 0 else "loss"
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
    if table.rows is None:
        raise ValueError("the table has no rows, the results image by image: measure the model again to compare it")
    missing = [name for group in groups for name in group if tuple(table.cells.get(name, ())) != SEVERITIES]
    if missing:
        raise ValueError(f"{missing[0]!r} was not measured at all of the severities {SEVERITIES}")
    return np.mean([table.rows.accuracy(group).mean(axis=1) for group in groups], axis=0)
