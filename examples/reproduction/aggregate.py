"""Reports of many runs -> a mean and a spread over seeds for each setting, and paired differences between settings.

The interval of a difference covers test images and seeds together, see `macs_hf.metrics.paired_difference`. Numbers
that no single image has, such as a temperature, and runs whose rows were not kept, have that of the seeds alone.
"""

import json
import math
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from macs_hf.evaluation.corruption_comparison import compare_corruptions
from macs_hf.metrics import Comparison, compare, difference_of_runs, paired_difference
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.rows import SampleRows
from macs_hf.report.run import REPORT_FILE, ROWS_FILE, load_run

from .grid import Grid, Setting, cells_of, shared
from .quantities import METRICS, Metric, Run


RECORD_FILE = "cell.json"  # what was asked for, and how long it took


class Estimate(NamedTuple):
    """Mean over seeds, sample standard deviation (`None` for one seed), number of seeds."""

    mean: float
    std: float | None
    n: int

    @property
    def half(self) -> float | None:
        """Half-width of the 95 % interval of the mean over seeds."""
        return None if self.std is None else student(self.n - 1) * self.std / math.sqrt(self.n)


class Difference(NamedTuple):
    """One setting minus another over `n` seeds; no interval if neither seeds nor images give one."""

    value: float
    low: float | None
    high: float | None
    n: int
    verdict: Literal["better", "worse", "undecided", "equal"]


def load_runs(root: str | Path) -> list[Run]:
    """Every finished cell below `root`; of some only the report may have been kept."""
    runs = []
    for path in sorted(Path(root).rglob(RECORD_FILE)):
        folder, record = path.parent, json.loads(path.read_text())
        if not (folder / REPORT_FILE).exists():
            warnings.warn(f"{path} has no report beside it and is left out", stacklevel=2)
            continue
        asked = record["setting"]
        key = Setting(asked["dataset"], asked["model"], asked["method"], tuple(sorted(asked["changes"].items())))
        if (folder / ROWS_FILE).exists():
            found = load_run(folder)
            # Without a temperature the model was measured only once.
            before = found.rows if found.rows_before is None else found.rows_before
            runs.append(Run(key, record["seed"], found.report, record, folder, found.rows, before))
        else:
            runs.append(Run(key, record["seed"], EvaluationReport.load(folder / REPORT_FILE), record, folder))
    return runs


def by_setting(runs: Iterable[Run]) -> dict[Setting, list[Run]]:
    groups: dict[Setting, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        groups.setdefault(run.setting, []).append(run)
    return groups


def of_table(grid: Grid, name: str, groups: dict[Setting, list[Run]]) -> dict[Setting, list[Run]]:
    """The runs with seeds of the grid, and those with seeds that only this table names."""
    own = {(cell.setting, cell.seed) for cell in cells_of(grid, [name])}
    return {
        key: kept
        for key, runs in groups.items()
        if (kept := [run for run in runs if run.seed in grid.seeds or (key, run.seed) in own])
    }


def estimate(values: Sequence[float]) -> Estimate:
    return Estimate(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def estimated(groups: dict[Setting, list[Run]], key: Setting, metric: str) -> Estimate | None:
    """A metric of a setting over its seeds, in the units of the tables; `None` if it was not measured."""
    values = list(measured(groups, key, metric).values())
    return estimate(values) if values else None


def difference(
    groups: dict[Setting, list[Run]], a: Setting, b: Setting, metric: str, level: float = 0.95
) -> Difference | None:
    """`a - b` over the seeds both have, with its interval over seeds and test images; `None` if they share none.

    Runs of one seed share their training images and initial weights, so they are compared seed by seed.
    """
    spec = METRICS[metric]
    of_a, of_b = (measured(groups, key, metric) for key in (a, b))
    seeds = sorted(of_a.keys() & of_b.keys())
    if not seeds:
        return None
    found = _over_images([[_of_seed(groups[key], seed) for seed in seeds] for key in (a, b)], spec, level)
    values = [[side[seed] for seed in seeds] for side in (of_a, of_b)]
    if found is None and len(seeds) == 1:
        return Difference(values[0][0] - values[1][0], None, None, 1, "undecided")
    if found is None:
        no_images, better = np.zeros((2 * len(seeds),) * 2), not spec.lower_is_better
        found = difference_of_runs(*values, no_images, same_seeds=True, level=level, higher_is_better=better)
    else:
        scaled = (spec.scale * part for part in (found.difference, found.low, found.high))
        found = found._replace(**dict(zip(("difference", "low", "high"), scaled, strict=True)))
    verdict = "undecided" if spec.lower_is_better is None else found.verdict
    return Difference(found.difference, found.low, found.high, len(seeds), verdict)


def _of_seed(runs: list[Run], seed: int) -> Run:
    return next(run for run in runs if run.seed == seed)


def student(degrees: int) -> float:
    """The quantile 0.975 of Student's t."""
    return float(stats.t.ppf(0.975, degrees))


def measured(groups: dict[Setting, list[Run]], key: Setting, metric: str) -> dict[int, float]:
    """A metric of a setting, seed by seed, in the units of the tables."""
    spec = METRICS[metric]
    runs = groups.get(key, [])
    if metric == "overhead":
        return overheads(groups, key)
    found = {run.seed: spec.find(run) for run in runs}
    return {seed: spec.scale * value for seed, value in found.items() if value is not None}


def overheads(groups: dict[Setting, list[Run]], key: Setting) -> dict[int, float]:
    """Step time over that of cross-entropy in the same setting, seed by seed."""
    base = measured(groups, Setting(key.dataset, key.model, "ce", shared(key)), "step_time")
    own = measured(groups, key, "step_time")
    return {seed: value / base[seed] for seed, value in own.items() if seed in base}


def _over_images(sides: list[list[Run]], spec: Metric, level: float) -> Comparison | None:
    """Image by image, if all runs have kept what that takes, and were measured alike."""
    runs = [run for side in sides for run in side]
    rows = [[run.rows_before if spec.before else run.rows for run in side] for side in sides]
    if all(part is not None for side in rows for part in side):
        if spec.column is not None:
            values = (np.stack([getattr(part, spec.column) for part in side]) for side in rows)
            better = not spec.lower_is_better
            return paired_difference(*values, same_seeds=True, level=level, higher_is_better=better)
        if spec.compared is not None:
            return _compared(*map(tuple, rows), level)[spec.compared]
    tables = [[run.report.corruptions for run in side] for side in sides]
    if spec.corruptions and all(table is not None and table.rows is not None for side in tables for table in side):
        try:
            return compare_corruptions(*tables, spec.corruptions, spec.score, same_seeds=True, level=level)
        except ValueError as error:
            names = " and ".join(sorted({run.setting.label for run in runs}))
            warnings.warn(f"{names} are compared over seeds alone: {error}", stacklevel=2)
    return None


@cache
def _compared(a: tuple[SampleRows, ...], b: tuple[SampleRows, ...], level: float) -> dict[str, Comparison]:
    """All metrics at once; rows are equal only to themselves, so they can be keys."""
    return compare(a, b, same_seeds=True, level=level)
