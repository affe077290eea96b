"""Where the mean hides trouble: measures of each class, or of any other group of images, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from ..report.report import ConfusionMatrix, GroupMeasures, GroupTable, Interval
from ..report.rows import SampleRows
from .ece import calibration_error
from .intervals import noise_scores, wilson


MAX_GROUPS = 1000
FEW = 30
ALPHA = 0.05  # chance that any group is said to differ though none does


def group_measures(
    rows: SampleRows,
    groups: Any = None,
    *,
    column: str = "label",
    names: Sequence[str] | None = None,
    covered: np.ndarray | None = None,
    guaranteed_coverage: float | None = None,
) -> GroupTable:
    """
    Accuracy, calibration and coverage of each group, worst first, corrected for looking at many.

    Whether a group's accuracy or coverage differs from that of all other images is tested exactly (hypergeometric),
    and so is its gap against perfect calibration (Poisson binomial); each at 5 % with Holm's correction over all
    groups.

    By default images are grouped by their label. Read the calibration of such groups with care: the label is not known
    when a model answers, so even a perfectly calibrated one is overconfident on the images of rare or hard classes.
    Grouped by `rows.prediction`, the gaps say whether the answers of each class are calibrated.

    Args:
        rows ([`SampleRows`]): One row per sample.
        groups (array of shape `(n,)`, *optional*, defaults to `rows.label`): The group of each sample, whole numbers
            or text.
        column (`str`, *optional*, defaults to `"label"`): How the grouping is called.
        names (sequence of `str`, *optional*): Names of the groups 0, 1, …, such as those of the classes.
        covered (`np.ndarray` of shape `(n,)` and type `bool`, *optional*): Whether the prediction set of each sample
            holds its class.
        guaranteed_coverage (`float`, *optional*): The share of them that was guaranteed; only kept in the table.

    Example:

    ```python
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> table = group_measures(SampleRows.from_logits(logits, torch.tensor([0, 0, 1, 1])), names=["cat", "dog"])
    >>> [(group.name, group.n, group.accuracy.value) for group in table.groups]
    [('dog', 2, 0.5), ('cat', 2, 1.0)]

    ```
    """
    values, index = _groups(rows, rows.label if groups is None else groups, column)
    if names is not None:
        if values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= len(names):
            raise ValueError(f"names has {len(names)} entries, but {column} holds {values.min()} to {values.max()}")
        values = [names[value] for value in values]
    confidence, n = rows.confidence.astype(np.float64), np.bincount(index)
    right, shares, significant = _shares(rows.correct, index)
    gap_significant = holm(_calibration_p_values(confidence, index, right))
    if covered is not None:
        _, coverage, coverage_significant = _shares(covered, index)
    claimed = np.bincount(index, weights=confidence) / n
    measures = []
    for i, (name, accuracy) in enumerate(zip(values, shares, strict=True)):
        members = index == i
        found = GroupMeasures(
            name=str(name),
            n=int(n[i]),
            few=bool(n[i] < FEW),
            accuracy=accuracy,
            ece=calibration_error(confidence[members], rows.correct[members]),
            noise_floor=float(noise_scores(confidence[members]).mean()),
            gap=Interval(*(float(claimed[i] - x) for x in (accuracy.value, accuracy.high, accuracy.low))),
            significant=bool(significant[i]),
            gap_significant=bool(gap_significant[i]),
            coverage=None if covered is None else coverage[i],
            coverage_significant=covered is not None and bool(coverage_significant[i]),
        )
        measures.append(found)
    measures.sort(key=lambda group: (group.accuracy.high, group.accuracy.value, group.name))
    return GroupTable(column, tuple(measures), guaranteed_coverage)


def confusion_matrix(rows: SampleRows, n_classes: int | None = None, names: Sequence[str] = ()) -> ConfusionMatrix:
    """
    How often each label got each prediction; `names` are those of the classes, if they are known.

    ```python
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> confusion_matrix(SampleRows.from_logits(logits, torch.tensor([0, 0, 1, 1]))).to_array().tolist()
    [[2, 0], [1, 1]]

    ```
    """
    largest = int(max(rows.label.max(), rows.prediction.max()))
    n_classes = largest + 1 if n_classes is None else n_classes
    if n_classes <= largest:
        raise ValueError(f"n_classes={n_classes}, but the rows hold class {largest}")
    pairs, count = np.unique(rows.label.astype(np.int64) * n_classes + rows.prediction, return_counts=True)
    label, prediction = np.divmod(pairs, n_classes)
    columns = (tuple(column.tolist()) for column in (label, prediction, count))
    return ConfusionMatrix(n_classes, *columns, tuple(names))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Which hypotheses Holm's step-down procedure rejects, with a chance of at most 5 % to reject a true one."""
    order = np.argsort(p_values)
    passed = p_values[order] <= ALPHA / np.arange(len(p_values), 0, -1)
    rejected = np.zeros(len(p_values), dtype=bool)
    rejected[order] = np.logical_and.accumulate(passed)
    return rejected


def _shares(hits: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, list[Interval], np.ndarray]:
    """
    Of each group how many hits it has, their share, and whether that differs from what it is in all other images
    beyond chance: two-sided, exact, as many of the hits as if the group were drawn at random from all images.
    """
    n, right = np.bincount(index), np.bincount(index, weights=hits).astype(np.int64)
    law = hypergeom(n.sum(), right.sum(), n)
    p_values = np.minimum(1.0, 2 * np.minimum(law.cdf(right), law.sf(right - 1)))
    shares = [Interval(k / m, *wilson(k, m)) for k, m in zip(right.tolist(), n.tolist(), strict=True)]
    return right, shares, holm(p_values)


def _calibration_p_values(confidence: np.ndarray, index: np.ndarray, right: np.ndarray) -> np.ndarray:
    """
    Two-sided, exact: that many right ones in each group if every answer is right with its confidence.

    Where confidences are close to 1, a few errors are expected, and a normal law would call three in place of one
    beyond chance.
    """
    order = np.argsort(index, kind="stable")
    found = []
    for chances, count in zip(np.split(confidence[order], np.cumsum(np.bincount(index))[:-1]), right, strict=True):
        law = _sum_of_chances(np.clip(chances, 0, 1))
        found.append(min(1.0, 2 * min(law[: count + 1].sum(), law[count:].sum())))
    return np.array(found)


def _sum_of_chances(chances: np.ndarray) -> np.ndarray:
    """The probability of each number of successes, if each trial has its own chance: halves, then their sum."""
    if len(chances) <= 32:
        law = np.ones(1)
        for chance in chances:
            law = np.convolve(law, [1 - chance, chance])
        return law
    middle = len(chances) // 2
    return np.convolve(_sum_of_chances(chances[:middle]), _sum_of_chances(chances[middle:]))


def _groups(rows: SampleRows, groups: Any, column: str) -> tuple[np.ndarray, np.ndarray]:
    """The groups present in ascending order, and the position of each sample's group among them."""
    missing, groups = np.ma.getmaskarray(groups), np.asarray(groups)
    if groups.shape != (len(rows),):
        raise ValueError(f"{column} must name a group for each of the {len(rows)} rows, got the shape {groups.shape}")
    missing = missing | [value is None or value != value for value in groups.tolist()]
    if missing.any():
        raise ValueError(
            f"{column} has no value for {int(missing.sum())} of {len(rows)} samples, first for number "
            f"{int(missing.argmax())}: fill them in, or leave these samples out"
        )
    if groups.dtype.kind == "f" and (groups % 1 == 0).all():
        groups = groups.astype(np.int64)
    if groups.dtype == object and all(isinstance(value, str) for value in groups):
        groups = groups.astype(str)
    if groups.dtype.kind not in "iubU":
        raise ValueError(f"{column} must hold whole numbers or text, one group per sample, got {groups.dtype}")
    values, index = np.unique(groups, return_inverse=True)
    if len(values) > MAX_GROUPS:
        raise ValueError(f"{column} has {len(values)} different values; at most {MAX_GROUPS} groups can be measured")
    return values, index
