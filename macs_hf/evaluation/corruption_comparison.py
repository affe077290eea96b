"""Two classifiers under the same corruptions of the same images, compared image by image.

Most of what makes an image hard is the same for both models and cancels, so the interval of a paired difference is far
narrower than that of two unrelated means.
"""

from collections.abc import Sequence

import numpy as np

from ..metrics import Comparison, paired_difference
from ..report.corruption_names import SEVERITIES, STANDARD_15
from ..report.corruption_rows import ImageScore
from ..report.corruption_table import CorruptionTable


ALIKE = ("design", "params", "source", "n", "seed", "when", "size", "frost")


def compare_corruptions(
    a: CorruptionTable | Sequence[CorruptionTable],
    b: CorruptionTable | Sequence[CorruptionTable],
    groups: Sequence[Sequence[str]] = (STANDARD_15,),
    score: ImageScore = "accuracy",
    *,
    same_seeds: bool = False,
    level: float = 0.95,
) -> Comparison:
    """
    A score under corruption of `a` minus that of `b`, with a paired interval.

    Args:
        a, b (`CorruptionTable` or sequence of them): Of the same dataset, images and corruptions, measured with the
            same design. Of several, such as seeds, the mean counts. The interval covers test images and, with several
            tables on a side, seeds.
        groups (sequence of sequences of `str`, *optional*): Corruptions; all groups count alike. By default one group,
            the standard 15.
        score (`str`, *optional*, defaults to `"accuracy"`): `"accuracy"`, `"nll"`, or `"scaled_nll"`, with each
            model's own temperature. A win is a higher accuracy or a lower NLL.
        same_seeds (`bool`, *optional*, defaults to `False`): See [`~macs_hf.metrics.paired_difference`].
        level (`float`, *optional*, defaults to 0.95): Probability that the interval is meant to cover.

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
    (0.2, 'better')

    ```
    """
    sides = [[side] if isinstance(side, CorruptionTable) else list(side) for side in (a, b)]
    if not all(sides):
        raise ValueError("a comparison needs at least one table on each side")
    first, *others = (table for side in sides for table in side)
    for table in others:
        _check_alike(first, table)
    weights: dict[str, float] = {}
    for group in groups:
        for name in group:
            weights[name] = weights.get(name, 0.0) + 1 / len(groups) / len(group)
    runs = [np.stack([_results(table, list(weights), score) for table in side]) for side in sides]
    return paired_difference(
        *runs,
        weights=np.array(list(weights.values())),
        same_seeds=same_seeds,
        level=level,
        higher_is_better=score == "accuracy",
    )


def _check_alike(a: CorruptionTable, b: CorruptionTable) -> None:
    for name in ALIKE:
        of_a, of_b = getattr(a, name), getattr(b, name)
        unknown = name == "size" and None in (of_a, of_b)  # older tables do not hold it
        if of_a != of_b and not unknown:
            raise ValueError(
                f"the tables differ in {name} ({of_a!r} and {of_b!r}): a comparison needs the same images under the "
                "same corruptions"
            )
    if a.rows is not None and b.rows is not None and not np.array_equal(a.rows.index, b.rows.index):
        raise ValueError("the tables hold other images of the test split: measure both on the same")


def _results(table: CorruptionTable, names: list[str], score: ImageScore) -> np.ndarray:
    """`(images, corruptions)`, NaN where an image was not seen under a corruption."""
    if table.rows is None:
        raise ValueError("the table has no rows, the results image by image: measure the model again to compare it")
    missing = [name for name in names if tuple(table.cells.get(name, ())) != SEVERITIES]
    if missing:
        raise ValueError(f"{missing[0]!r} was not measured at all of the severities {SEVERITIES}")
    return table.rows.scores(score, names)
