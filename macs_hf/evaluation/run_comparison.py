"""Finished runs on the same test images, compared image by image: `macs-hf compare`."""

import logging
from collections.abc import Sequence

import numpy as np

from ..metrics import Comparison, ComparisonTable, compare, paired_difference
from ..report.report import CorruptionTable, EvaluationReport, Run
from ..report.rows import MEANS, SEVERITIES, STANDARD_15, ImageScore


logger = logging.getLogger(__name__)

# What the names in the terminal's table stand for.
EXPLAINED = """\
undecided: the difference may be chance
nll: negative log-likelihood; ece: how far confidence is from accuracy
debiased_ece: less what chance adds; confidence_gap: mean confidence minus
  accuracy, best at 0
aurc: share of wrong answers among the surest, averaged over how many are
  answered; excess_aurc: what a better order could save
coverage_at_5%_risk: how many images can be answered, surest first, with 5 %
  wrong
accuracy under corruption, if measured: mean15 over the standard 15, mean19 over
  all 19"""


def compare_runs(a: Run | Sequence[Run], b: Run | Sequence[Run]) -> ComparisonTable:
    """
    `a - b` in every metric of the models as published and, if measured alike, in accuracy under corruption.

    Args:
        a, b ([`Run`] or sequence of them): The runs of each side, such as those of several seeds. With one run a side
            the intervals cover other test images only, with several also other training runs.
    """
    sides = [[side] if isinstance(side, Run) else list(side) for side in (a, b)]
    first = sides[0][0]
    for run in sides[0][1:] + sides[1]:
        _check_same_images(first, run)
    for side in sides:
        recipes = {f"{run.report.model}, {run.report.training_arguments.get('method')}" for run in side}
        if len(recipes) > 1:
            logger.warning(
                f"Different models or methods are on one side ({'; '.join(sorted(recipes))}): what differs between "
                "them is taken for what differs between seeds."
            )
    found = compare(*([run.rows for run in side] for side in sides))
    tables = [[run.report.corruptions for run in side] for side in sides]
    if all(table is not None for side in tables for table in side):
        try:
            for mean, names in MEANS.items():
                found[mean] = compare_corruptions(*tables, [names])
        except ValueError as error:
            logger.warning(f"No comparison under corruption: {error}.")
    return found


def comparison_table(a: Run | Sequence[Run], b: Run | Sequence[Run]) -> str:
    """For a terminal: what is compared, the table, and what its names stand for."""
    sides = [[side] if isinstance(side, Run) else list(side) for side in (a, b)]
    found, report = compare_runs(*sides), sides[0][0].report
    lines = [f"{report.dataset}, {report.split} (n = {report.n})"]
    for letter, runs in zip("ab", sides, strict=True):
        marks = [f"{letter} =", *["  +"] * (len(runs) - 1)]
        lines += [f"{mark} {run.name}, {_model(run.report)}" for mark, run in zip(marks, runs, strict=True)]
    return "\n".join([*lines, str(found), "", EXPLAINED])


def _check_same_images(a: Run, b: Run) -> None:
    for name in ("dataset", "dataset_config", "split"):
        of_a, of_b = (getattr(run.report, name) for run in (a, b))
        if of_a != of_b:
            raise ValueError(f"{a.name} was measured on {name} {of_a!r}, {b.name} on {of_b!r}: not comparable.")
    for column in ("name", "index"):
        of_a, of_b = (getattr(run.rows, column) for run in (a, b))
        if of_a is not None and of_b is not None and not np.array_equal(of_a, of_b):
            raise ValueError(
                f"{a.name} and {b.name} were measured on other images, or in another order: column {column!r} of "
                "their samples.parquet differs. Measure both on the same split."
            )


def _model(report: EvaluationReport) -> str:
    """What was measured: the size of its images, and whether it was given a temperature."""
    size = "" if report.image_size is None else "{} x {} pixels, ".format(*report.image_size)
    if report.temperature is None:
        return f"{size}no temperature was fitted"
    if not report.has_temperature:
        return f"{size}the temperature stayed 1"
    return f"{size}temperature {report.temperature.value:.3f}"


# ---- Under corruption ----
# Two classifiers under the same corruptions of the same images, compared image by image.
#
# Most of what makes an image hard is the same for both models and cancels, so the interval of a paired difference is
# far narrower than that of two unrelated means.


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
    >>> from macs_hf.report.report import Cell
    >>> from macs_hf.report.rows import CorruptionRows
    >>> cells = {"fog": dict.fromkeys(range(1, 6), Cell(4, 0.9, 0.5, 0.1))}
    >>> table = CorruptionTable("cifar", "generated", 4, cells, seed=0)
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
