"""Results of a grid: stored runs, what is measured of them, means over seeds, and differences between settings.

A folder of results has `runs.parquet`, a row per run: its setting and seed, the metrics of the tables, the record of
the run and its report as JSON. `samples.parquet` has a row per test image of the runs whose rows are kept, a row group
per run. Both only grow: a run that was collected is never written again with other values.

The interval of a difference covers test images and seeds together, see `macs_hf.metrics.paired_difference`. Numbers
that no single image has, such as a temperature, and runs whose rows were not kept, have that of the seeds alone.
"""

import json
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from macs_hf.evaluation.run_comparison import compare_corruptions
from macs_hf.metrics import Comparison, compare, difference_of_runs, paired_difference
from macs_hf.metrics.ece import bin_score
from macs_hf.report.report import CorruptionTable, EvaluationReport, load_run, save_run
from macs_hf.report.rows import CORRUPTIONS, FAMILIES, STANDARD_15, SampleRows, rows_of_table

from .grid import Cell, Grid, Setting, cells_of, shared
from .runner import RECORD_FILE, check_flags, is_finished


RUNS_FILE, SAMPLES_FILE = "runs.parquet", "samples.parquet"
N_BINS = 15  # of the reported ECE


class Run(NamedTuple):
    """One finished cell: its report, the record of its run, and its rows if they were kept."""

    setting: Setting
    seed: int
    report: EvaluationReport
    record: dict[str, Any]
    rows: SampleRows | None = None
    rows_before: SampleRows | None = None


Groups = dict[Setting, list[Run]]


# ---- What is measured of a run ----


class Metric(NamedTuple):
    """How a number is called, shown, and found in a run.

    How two settings are compared in it: by `column`, a value per image of the rows; by `compared`, a name in
    `macs_hf.metrics.compare`; or by `corruptions` and `score`, which `compare_corruptions` takes. `before` stands for
    the rows before the temperature. A number with none of them has no images, only seeds.
    """

    title: str
    decimals: int
    lower_is_better: bool | None
    find: Callable[[Run], float | None]
    scale: float = 1.0
    column: str | None = None
    compared: str | None = None
    before: bool = False
    corruptions: tuple[tuple[str, ...], ...] = ()
    score: Literal["accuracy", "nll", "scaled_nll"] = "accuracy"


def _measured(name: str, part: str = "before") -> Callable[[Run], float | None]:
    def find(run: Run) -> float | None:
        measurement = getattr(run.report, part)
        found = None if measurement is None else measurement.metrics.get(name)
        return None if found is None else found.value

    return find


def _of(part: str, name: str) -> Callable[[Run], float | None]:
    """A number of a part of the report, or the value of an interval there."""

    def find(run: Run) -> float | None:
        found = getattr(getattr(run.report, part), name, None)
        return getattr(found, "value", found)

    return find


def _corrupted(title: str, *names: str, score: str = "accuracy") -> Metric:
    """Accuracy in percent, or NLL, as mean over groups of corruptions."""
    # Ours of frost is an approximation where the original textures are missing.
    no_frost = tuple(name for name in STANDARD_15 if name != "frost")
    groups = FAMILIES | {"mean15": STANDARD_15, "mean19": CORRUPTIONS, "no_frost": no_frost}
    wanted = tuple(groups[name] for name in names)

    def find(run: Run) -> float | None:
        means = [_mean(run.report.corruptions, group, score) for group in wanted]
        return None if None in means else fmean(means)

    if score == "accuracy":
        return Metric(title, 2, False, find, 100, corruptions=wanted)
    return Metric(title, 3, True, find, corruptions=wanted, score=score)


def _mean(table: CorruptionTable | None, names: tuple[str, ...], score: str) -> float | None:
    """A model without a temperature is used as it was trained."""
    if table is None:
        return None
    return table.mean(names, score if table.temperature is not None else score.removeprefix("scaled_"))


def _corrupted_ece(run: Run) -> float | None:
    """Mean ECE after the temperature over the cells of the standard 15: of small cells, so it is biased upwards."""
    return _mean(run.report.corruptions, STANDARD_15, "scaled_ece")


def _corrupted_gap(run: Run) -> float | None:
    """Mean confidence minus accuracy with the temperature; unlike an ECE it is not inflated by small cells."""
    gaps = None if run.report.corruptions is None else run.report.corruptions.confidence_gap
    return gaps["mean15"].value if gaps and "mean15" in gaps else None


def _confidence(run: Run) -> float:
    bins = run.report.before.bins
    return float(np.average(bins.confidence, weights=bins.count))


def _debiased_ece(run: Run) -> float | None:
    """From the bins of the reliability diagram, so of runs too whose rows were not kept."""
    if run.report.after is None:
        return None
    bins = run.report.after.bins
    count, confidence, accuracy = (np.array(part) for part in (bins.count, bins.confidence, bins.accuracy))
    return float(bin_score(count, count * confidence, count * accuracy, debiased=True))


def _step_time(run: Run) -> float | None:
    """Seconds per training step; a run that was stopped and continued has none."""
    rate = run.record.get("train", {}).get("train_steps_per_second")
    return None if not rate or run.record.get("continued") else 1 / rate


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy, %", 2, False, _measured("accuracy"), 100, column="correct"),
    "ece": Metric("ECE as trained, %", 2, True, _measured("ece"), 100, compared="ece", before=True),
    "nll": Metric("NLL as trained", 3, True, _measured("nll"), column="nll", before=True),
    "brier": Metric("Brier score as trained", 3, True, _measured("brier"), column="brier", before=True),
    "ece_after": Metric("ECE, %", 2, True, _measured("ece", "after"), 100, compared="ece"),
    "nll_after": Metric("NLL", 3, True, _measured("nll", "after"), column="nll"),
    "brier_after": Metric("Brier score", 3, True, _measured("brier", "after"), column="brier"),
    "debiased_ece_after": Metric("debiased ECE, %", 2, True, _debiased_ece, 100, compared="debiased_ece"),
    "aurc": Metric("AURC, %", 2, True, _of("risk_coverage", "aurc"), 100, compared="aurc"),
    "excess_aurc": Metric("excess AURC, %", 2, True, _of("risk_coverage", "excess_aurc"), 100, compared="excess_aurc"),
    "temperature": Metric("temperature", 2, None, _of("temperature", "value")),
    "validation_nll": Metric("NLL on validation as trained", 3, True, _of("temperature", "nll_before")),
    "validation_nll_after": Metric("NLL on validation", 3, True, _of("temperature", "nll_after")),
    "mean15": _corrupted("accuracy under corruption, %", "mean15"),
    "mean19": _corrupted("accuracy under 19 corruptions, %", "mean19"),
    "corrupted_nll": _corrupted("NLL under corruption", "mean15", score="scaled_nll"),
    "no_frost": _corrupted("the same without frost, %", "no_frost"),
    "corrupted_ece": Metric("ECE under corruption, %", 2, True, _corrupted_ece, 100),
    "corrupted_gap": Metric("overconfidence under corruption, points", 2, None, _corrupted_gap, 100),
    "confidence": Metric("mean confidence, %", 2, None, _confidence, 100, column="confidence", before=True),
    "noise": _corrupted("noise, %", "noise"),
    "blur": _corrupted("blur, %", "blur"),
    "weather": _corrupted("weather, %", "weather"),
    "digital": _corrupted("digital, %", "digital"),
    "family_mean": _corrupted("mean of families, %", "noise", "blur", "weather", "digital"),
    "no_overlap": _corrupted("weather and digital, %", "weather", "digital"),
    "logit_norm": Metric("norm of logits", 2, None, _of("margins", "logit_norm")),
    "max_logit": Metric("largest logit", 2, None, _of("margins", "max_logit")),
    "margin": Metric("margin", 2, False, _measured("logit_margin"), column="margin", before=True),
    "sensitivity": Metric("sensitivity", 3, True, _of("margins", "logit_sensitivity")),
    "ratio": Metric("margin / sensitivity", 2, False, _of("margins", "margin_to_sensitivity")),
    "step_time": Metric("seconds per step", 4, None, _step_time),
    "overhead": Metric("step time over CE", 2, None, lambda run: None),  # needs two runs: see `measured`
}


# ---- Stored runs ----


def collect(cells: Iterable[Cell], root: Path, folder: Path, grid: Grid) -> list[str]:
    """
    Append the finished cells below `root` that `folder` does not have yet; returns their names. Reports have five
    digits and scores of images 16 bits. Rows are kept of the settings that `keep_rows` names, or of all.
    """
    stored = _read_runs(folder)
    known = {row["name"] for row in stored}
    rows, samples = [], {}
    for cell in cells:
        if cell.name in known or not is_finished(cell, root):
            continue
        run = load_run(root / cell.name)
        parts = [run.rows] if run.rows_before is None else [run.rows_before, run.rows]
        with tempfile.TemporaryDirectory() as scratch:
            report, images = save_run(_compared(run.report), parts, scratch)
            values = json.loads(report.read_text(), parse_float=_five_digits)
            if grid.keep_rows is None or cell.setting.name in grid.keep_rows:
                samples[cell.name] = halved(pyarrow.parquet.read_table(images))
        record = json.loads((root / cell.name / RECORD_FILE).read_text())
        rows.append(row_of(cell.setting, cell.seed, record, json.dumps(values, separators=(",", ":"))))
    if rows:
        folder.mkdir(parents=True, exist_ok=True)
        write_samples(folder, samples)
        write_runs(folder, stored + rows)
    return [row["name"] for row in rows]


def halved(table: pyarrow.Table) -> pyarrow.Table:
    """
    With scores in 16 bits and rounded to 5 binary digits (7 of a confidence), since zeros take no space on disk; as
    they are where they are too large. Each confidence stays in the bin where it was, or the ECE would change.
    """
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        scores = column.to_numpy()
        if not pyarrow.types.is_floating(column.type) or np.nanmax(np.abs(scores)) > np.finfo(np.float16).max:
            continue
        digits = 2.0 ** (7 if name.endswith("confidence") else 5)
        mantissa, exponent = np.frexp(scores)
        rounded = np.ldexp(np.round(mantissa * digits) / digits, exponent).astype(np.float16)
        if name.endswith("confidence"):
            ends = np.arange(N_BINS + 1) / N_BINS
            last = ends.astype(np.float16)  # the largest of each bin, and the smallest of the next
            last = np.where(last > ends, np.nextafter(last, np.float16(0)), last)
            upper = np.ceil(scores.astype(np.float64) * N_BINS).astype(int).clip(1)
            rounded = rounded.clip(np.nextafter(last, np.float16(2))[upper - 1], last[upper])
        table = table.set_column(place, name, pyarrow.array(rounded, from_pandas=True))
    return table


def row_of(key: Setting, seed: int, record: dict[str, Any], report: str) -> dict[str, Any]:
    """A row of `runs.parquet`: metrics in the units of the report, such as 0.81 for an accuracy of 81 %."""
    run = Run(key, seed, EvaluationReport.from_json(report), record)
    row = {"name": f"{key.name}-seed{seed}", **key._asdict(), "changes": json.dumps(dict(key.changes)), "seed": seed}
    found = {name: metric.find(run) for name, metric in METRICS.items() if name != "overhead"}
    return row | found | {"record": json.dumps(record), "report": report}


def write_runs(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Metrics that no run has are columns without values, not missing ones."""
    kinds = {"seed": pyarrow.int64()} | {name: pyarrow.float64() for name in METRICS}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in rows[0]])
    scratch = folder / f"{RUNS_FILE}.part"
    table = pyarrow.Table.from_pylist(rows, schema)
    pyarrow.parquet.write_table(table, scratch, compression="brotli", compression_level=11)
    scratch.replace(folder / RUNS_FILE)


def write_samples(folder: Path, new: dict[str, pyarrow.Table]) -> None:
    """Append the rows of some runs; those that are there are copied as they are."""
    if not new:
        return
    tables = read_samples(folder) | new
    schema = pyarrow.unify_schemas([table.schema for table in tables.values()])
    names = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    schema = pyarrow.schema([("run", names), *(schema.field(name) for name in schema.names if name != "run")])
    scores = [field.name for field in schema if pyarrow.types.is_floating(field.type)]
    options = {"compression": "brotli", "compression_level": 11, "write_statistics": False}
    options |= {"use_dictionary": [name for name in schema.names if name not in scores]}
    options |= {"use_byte_stream_split": scores}
    scratch = folder / f"{SAMPLES_FILE}.part"
    with pyarrow.parquet.ParquetWriter(scratch, schema, **options) as writer:
        for name, table in tables.items():
            columns = {"run": pyarrow.array([name] * len(table)).dictionary_encode()}
            for field in list(schema)[1:]:
                here = field.name in table.column_names
                columns[field.name] = table[field.name] if here else pyarrow.nulls(len(table), field.type)
            writer.write_table(pyarrow.table(columns).cast(schema), row_group_size=len(table))
    scratch.replace(folder / SAMPLES_FILE)


def read_samples(folder: Path) -> dict[str, pyarrow.Table]:
    """The rows of each run that has them, without columns that have no values there."""
    if not (folder / SAMPLES_FILE).exists():
        return {}
    found = {}
    with pyarrow.parquet.ParquetFile(folder / SAMPLES_FILE) as file:
        for place in range(file.num_row_groups):
            table = file.read_row_group(place)
            name = table["run"][0].as_py()
            empty = [column for column in table.column_names if table[column].null_count == len(table)]
            found[name] = table.drop_columns(["run", *empty])
    return found


def load_runs(folder: Path) -> list[Run]:
    """All runs of a folder of results."""
    samples, runs = read_samples(folder), []
    for row in _read_runs(folder):
        changes = tuple(sorted(json.loads(row["changes"]).items()))
        key = Setting(row["dataset"], row["model"], row["method"], changes)
        run = Run(key, row["seed"], EvaluationReport.from_json(row["report"]), json.loads(row["record"]))
        runs.append(_with_rows(run, samples[row["name"]]) if row["name"] in samples else run)
    return runs


def runs_of_grid(folder: Path, cells: Iterable[Cell]) -> Groups:
    """The stored runs that are cells of a grid, by setting; one that was made with other flags is an error."""
    wanted = {(cell.setting, cell.seed): cell for cell in cells}
    runs = [run for run in load_runs(folder) if (run.setting, run.seed) in wanted]
    for run in runs:
        cell = wanted[run.setting, run.seed]
        check_flags(cell, run.record, folder / cell.name)
    return by_setting(runs)


def _read_runs(folder: Path) -> list[dict[str, Any]]:
    path = folder / RUNS_FILE
    return pyarrow.parquet.read_table(path).to_pylist() if path.exists() else []


def _with_rows(run: Run, table: pyarrow.Table) -> Run:
    report = run.report
    rows, before, corrupted = rows_of_table(table, None if report.after is None else report.temperature.value)
    if report.corruptions is not None:
        report = replace(report, corruptions=replace(report.corruptions, rows=corrupted))
    return run._replace(report=report, rows=rows, rows_before=before or rows)


def _compared(report: EvaluationReport) -> EvaluationReport:
    """Without the scores of corrupted images before the temperature, which no claim is about."""
    table = report.corruptions
    if table is None or table.rows is None or table.rows.scaled_nll is None:
        return report
    return replace(report, corruptions=replace(table, rows=replace(table.rows, nll=None)))


def _five_digits(number: str) -> float:
    return float(f"{float(number):.5g}")


# ---- Over seeds ----


class Estimate(NamedTuple):
    """Mean over seeds, sample standard deviation (`None` for one seed), number of seeds."""

    mean: float
    std: float | None
    n: int


class Difference(NamedTuple):
    """One setting minus another over `n` seeds; no interval if neither seeds nor images give one."""

    value: float
    low: float | None
    high: float | None
    n: int
    verdict: Literal["better", "worse", "undecided", "equal"]


def by_setting(runs: Iterable[Run]) -> Groups:
    groups: Groups = {}
    for run in sorted(runs, key=lambda run: run.seed):
        groups.setdefault(run.setting, []).append(run)
    return groups


def of_table(grid: Grid, name: str, groups: Groups) -> Groups:
    """
    The runs with seeds of the grid, and with those that the table names; but of a setting for which it names fresh
    seeds alone, only these.
    """
    own: dict[Setting, set[int]] = {}
    for cell in cells_of(grid, [name]):
        own.setdefault(cell.setting, set()).add(cell.seed)
    usual = set(grid.seeds)
    every = usual.union(*own.values())
    seeds = {key: found if found.isdisjoint(usual) else found | usual for key, found in own.items()}
    kept = {key: [run for run in runs if run.seed in seeds.get(key, every)] for key, runs in groups.items()}
    return {key: runs for key, runs in kept.items() if runs}


def measured(groups: Groups, key: Setting, metric: str) -> dict[int, float]:
    """A metric of a setting, seed by seed, in the units of the tables."""
    if metric == "overhead":  # step time over that of cross-entropy in the same setting
        base = measured(groups, Setting(key.dataset, key.model, "ce", shared(key)), "step_time")
        own = measured(groups, key, "step_time")
        return {seed: value / base[seed] for seed, value in own.items() if seed in base}
    spec = METRICS[metric]
    found = {run.seed: spec.find(run) for run in groups.get(key, [])}
    return {seed: spec.scale * value for seed, value in found.items() if value is not None}


def estimated(groups: Groups, key: Setting, metric: str) -> Estimate | None:
    """A metric of a setting over its seeds, in the units of the tables; `None` if it was not measured."""
    values = list(measured(groups, key, metric).values())
    if not values:
        return None
    return Estimate(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def difference(groups: Groups, a: Setting, b: Setting, metric: str, level: float = 0.95) -> Difference | None:
    """`a - b` over the seeds both have, with its interval over seeds and test images; `None` if they share none.

    Runs of one seed share their training images and initial weights, so they are compared seed by seed.
    """
    spec = METRICS[metric]
    of_a, of_b = (measured(groups, key, metric) for key in (a, b))
    seeds = sorted(of_a.keys() & of_b.keys())
    if not seeds:
        return None
    by_seed = [{run.seed: run for run in groups[key]} for key in (a, b)]
    found = _over_images([[runs[seed] for seed in seeds] for runs in by_seed], spec, level)
    values = [[side[seed] for seed in seeds] for side in (of_a, of_b)]
    if found is None and len(seeds) == 1:
        return Difference(values[0][0] - values[1][0], None, None, 1, "undecided")
    scale = spec.scale
    if found is None:
        no_images, scale = np.zeros((2 * len(seeds),) * 2), 1.0
        better = not spec.lower_is_better
        found = difference_of_runs(*values, no_images, same_seeds=True, level=level, higher_is_better=better)
    verdict = "undecided" if spec.lower_is_better is None else found.verdict
    return Difference(scale * found.difference, scale * found.low, scale * found.high, len(seeds), verdict)


def _over_images(sides: list[list[Run]], spec: Metric, level: float) -> Comparison | None:
    """Image by image, if all runs have kept what that takes, and were measured alike."""
    rows = [[run.rows_before if spec.before else run.rows for run in side] for side in sides]
    if all(part is not None for side in rows for part in side):
        if spec.column is not None:
            values = (np.stack([getattr(part, spec.column) for part in side]) for side in rows)
            better = not spec.lower_is_better
            return paired_difference(*values, same_seeds=True, level=level, higher_is_better=better)
        if spec.compared is not None:
            return _all_compared(*map(tuple, rows), level)[spec.compared]
    tables = [[run.report.corruptions for run in side] for side in sides]
    if spec.corruptions and all(table is not None and table.rows is not None for side in tables for table in side):
        try:
            return compare_corruptions(*tables, spec.corruptions, spec.score, same_seeds=True, level=level)
        except ValueError as error:
            names = " and ".join(sorted({run.setting.label for side in sides for run in side}))
            warnings.warn(f"{names} are compared over seeds alone: {error}", stacklevel=2)
    return None


@cache
def _all_compared(a: tuple[SampleRows, ...], b: tuple[SampleRows, ...], level: float) -> dict[str, Comparison]:
    """All metrics at once; rows are equal only to themselves, so they can be keys."""
    return compare(a, b, same_seeds=True, level=level)
