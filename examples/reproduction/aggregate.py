"""Reports of many runs -> a mean and a spread over seeds for each setting, and paired differences between settings.

The interval of a difference between two settings holds for both sources of chance, the test images and the seed:

    half^2 = (half-width over test images of the mean over seeds)^2 + (t(0.975, n - 1) * s / sqrt(n))^2

The first part is a paired one: all runs are tested on the same images, and an image counts with its mean over seeds.
Where runs have kept no results image by image, it is the mean over seeds of a width that takes runs as unrelated.
"""

import json
import math
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from scipy import stats

from macs_hf.evaluation.corruption_comparison import compare_corruptions
from macs_hf.metrics import Comparison, compare
from macs_hf.report.corruption_table import CORRUPTIONS, STANDARD_15
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.rows import SampleRows
from macs_hf.report.run import REPORT_FILE, ROWS_FILE, load_run

from .grid import Setting, shared
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
    """One setting minus another over the seeds both have; no interval if neither seeds nor images give one."""

    value: float
    low: float | None
    high: float | None
    n: int
    verdict: Literal["win", "tie", "loss", "undecided"]


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


def estimate(values: Sequence[float]) -> Estimate:
    return Estimate(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def estimated(groups: dict[Setting, list[Run]], key: Setting, metric: str) -> Estimate | None:
    """A metric of a setting over its seeds, in the units of the tables; `None` if it was not measured."""
    values = list(measured(groups, key, metric).values())
    return estimate(values) if values else None


def difference(groups: dict[Setting, list[Run]], a: Setting, b: Setting, metric: str) -> Difference | None:
    """`a - b` with a 95 % interval over seeds and test images; `None` unless they share a seed."""
    of_a, of_b = measured(groups, a, metric), measured(groups, b, metric)
    seeds = sorted(of_a.keys() & of_b.keys())
    if not seeds:
        return None
    spec = METRICS[metric]
    over_seeds = estimate([of_a[seed] - of_b[seed] for seed in seeds])
    runs = [{run.seed: run for run in groups[key]} for key in (a, b)]
    margins = _over_images([(runs[0][seed], runs[1][seed]) for seed in seeds], metric)
    if margins is None and over_seeds.half is None:
        return Difference(over_seeds.mean, None, None, 1, "undecided")
    below, above = (math.hypot(margin, over_seeds.half or 0.0) for margin in margins or (0.0, 0.0))
    low, high = over_seeds.mean - below, over_seeds.mean + above
    floor = max((_noise_floor(run, metric) for part in runs for run in part.values()), default=0.0)
    verdict = "tie"
    if spec.lower_is_better is None:
        verdict = "undecided"
    elif not low <= 0 <= high and abs(over_seeds.mean) >= floor:
        verdict = "win" if (over_seeds.mean < 0) == spec.lower_is_better else "loss"
    return Difference(over_seeds.mean, low, high, len(seeds), verdict)


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


def _over_images(pairs: list[tuple[Run, Run]], metric: str) -> tuple[float, float] | None:
    """How far the interval of the mean of `a - b` over test images reaches below and above it."""
    spec = METRICS[metric]
    found = _paired(pairs, spec)
    if found is not None:
        return spec.scale * (found.difference - found.low), spec.scale * (found.high - found.difference)
    if spec.compared is not None and not spec.before:
        return None
    intervals = [(_interval(a, metric), _interval(b, metric)) for a, b in pairs]
    if any(None in pair for pair in intervals):
        return None
    below = fmean(math.hypot(a[0] - a[1], b[2] - b[0]) for a, b in intervals)
    above = fmean(math.hypot(a[2] - a[0], b[0] - b[1]) for a, b in intervals)
    return spec.scale * below, spec.scale * above


def _paired(pairs: list[tuple[Run, Run]], spec: Metric) -> Comparison | None:
    """Image by image, if all runs have kept what that takes, and were measured alike."""
    sides = tuple(zip(*pairs, strict=True))
    runs = [run for side in sides for run in side]
    if spec.compared is not None and all(run.rows is not None for run in runs):
        rows = (tuple(run.rows_before if spec.before else run.rows for run in side) for side in sides)
        return _compared(*rows)[spec.compared]
    tables = [[run.report.corruptions for run in side] for side in sides]
    if spec.corruptions and all(table is not None and table.rows is not None for side in tables for table in side):
        try:
            return compare_corruptions(*tables, spec.corruptions)
        except ValueError as error:
            names = " and ".join(sorted({run.setting.label for run in runs}))
            warnings.warn(f"{names} are compared as unrelated runs: {error}", stacklevel=2)
    return None


def _interval(run: Run, metric: str) -> tuple[float, float, float] | None:
    """Value, low and high of the run's own interval over test images."""
    found = run.report.before.metrics.get({"margin": "logit_margin"}.get(metric, metric))
    if found is not None:
        return found.value, found.low, found.high
    table = run.report.corruptions
    if metric in ("mean15", "mean19") and table is not None and (interval := table.interval(metric)) is not None:
        return table.mean(STANDARD_15 if metric == "mean15" else CORRUPTIONS), *interval
    return None


def _noise_floor(run: Run, metric: str) -> float:
    """In percent, as the tables have it: a difference in ECE below it is a tie."""
    part = {"ece": run.report.before, "ece_after": run.report.after}.get(metric)
    return 0.0 if part is None else 100 * part.noise_floor


@cache
def _compared(a: tuple[SampleRows, ...], b: tuple[SampleRows, ...]) -> dict[str, Comparison]:
    """All metrics at once; rows are equal only to themselves, so they can be keys."""
    return compare(a, b)
