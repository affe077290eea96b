"""Stored runs, means, differences, claims and tables on synthetic reports whose values are known."""

import doctest
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reproduction import claims as claims_module
from reproduction.claims import verdicts
from reproduction.grid import Grid, Setting, Table, cells_of, load_grid
from reproduction.results import (
    Run,
    by_setting,
    collect,
    difference,
    estimated,
    halved,
    load_runs,
    of_table,
    runs_of_grid,
)
from reproduction.tables import Paper, main_table, render, stored_claims
from scipy import stats

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.metrics import SampleRows, compare, measure, summarize
from macs_hf.report.report import (
    Cell,
    CorruptionTable,
    EvaluationReport,
    Interval,
    Measurement,
    ReliabilityTable,
    Temperature,
    save_run,
)
from macs_hf.report.rows import STANDARD_15, CorruptionRows, rows_of_table

from .test_grid import grid_file


CE, MACS = Setting("cifar10", "resnet50", "ce"), Setting("cifar10", "resnet50", "macs")
CLAIM = {"claim": "c", "metric": "accuracy", "method": "macs", "range": [0, None]}
BINS = ReliabilityTable((0.0,), (1.0,), (10,), (0.5,), (0.5,))


def fake_run(key: Setting, seed: int, value: float, rows: SampleRows | None = None, rate: float = 0.0) -> Run:
    """`value` is its accuracy, NLL and so on, and its accuracy under every corruption."""
    metrics = {name: Interval(value, value, value) for name in ("accuracy", "nll", "brier", "ece")}
    part = Measurement(metrics, 0.01, BINS)
    cells = {name: {s: Cell(10, value, 1.0, 0.1) for s in SEVERITIES} for name in STANDARD_15}
    table = CorruptionTable("imagenet", "generated", 10, cells)
    report = EvaluationReport("m", "d", "test", 10, part, after=part, temperature=Temperature(1.0), corruptions=table)
    return Run(key, seed, report, {"train": {"train_steps_per_second": rate}}, rows, rows)


def fake_groups(ce: tuple[float, ...], macs: tuple[float, ...]) -> dict[Setting, list[Run]]:
    return by_setting(fake_run(key, s, v) for key, values in ((CE, ce), (MACS, macs)) for s, v in enumerate(values))


def fake_grid(**changes: object) -> Grid:
    block = {"dataset": "cifar10", "model": "resnet50", "method": ["ce", "macs"]}
    table = Table("Main", ("accuracy", "mean15"), (block,), "macs")
    grid = Grid("g", {"cifar10": {}}, {"resnet50": {}}, (0, 1, 2), {"main": table})
    return replace(grid, **changes)


def test_means_and_differences_over_seeds() -> None:
    groups = fake_groups((0.9, 0.9, 0.9), (0.6, 0.7, 0.8, 0.1))
    assert estimated(groups, MACS, "nll") == (pytest.approx(0.55), pytest.approx(np.std([6, 7, 8, 1], ddof=1) / 10), 4)
    found = difference(groups, MACS, CE, "nll")
    half = 4.302653 * 0.1 / math.sqrt(3)  # Student's t of two degrees of freedom: the seeds are paired
    assert (found.value, found.n) == (pytest.approx(-0.2), 3)  # a seed that only one has is left out
    assert (found.low, found.high) == (pytest.approx(-0.2 - half), pytest.approx(-0.2 + half))
    assert found.verdict == "undecided"
    assert difference(groups, MACS, CE, "nll", level=0.5).verdict == "better"
    one_seed = difference(fake_groups((0.4,), (0.5,)), MACS, CE, "mean15")
    assert one_seed == (pytest.approx(10), None, None, 1, "undecided")
    timed = by_setting([fake_run(CE, 0, 0.5, rate=10), fake_run(MACS, 0, 0.5, rate=5)])
    assert estimated(timed, MACS, "overhead").mean == 2


def test_differences_are_those_of_the_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (500,), generator=generator)
    logits = torch.randn(500, 4, generator=generator)
    runs = []
    for key, shift in ((CE, 1.0), (MACS, 2.0)):
        rows = SampleRows.from_logits(logits + shift * torch.nn.functional.one_hot(labels, 4), labels)
        runs.append(fake_run(key, 0, summarize(rows)["accuracy"], rows))
    expected = compare(runs[1].rows, runs[0].rows)["accuracy"]
    found = difference(by_setting(runs), MACS, CE, "accuracy")
    assert found.value == pytest.approx(100 * expected.difference)
    assert (found.low, found.high) == pytest.approx((100 * expected.low, 100 * expected.high), rel=1e-2)
    assert found.verdict == expected.verdict == "better"


def with_hits(run: Run, digits: str, nll: float = 1.0) -> Run:
    """At how many severities each image was right, under every corruption."""
    hits = np.array([[int(digit)] * len(CORRUPTIONS) for digit in digits], dtype=np.uint8)
    n, accuracy = len(digits), float(hits.mean() / 5)
    cells = {name: {s: Cell(n, accuracy, nll, 0.1, nll, 0.1) for s in SEVERITIES} for name in CORRUPTIONS}
    scores = np.full(hits.shape, nll, dtype=np.float32)
    rows = CorruptionRows(np.arange(n), CORRUPTIONS, hits, scores, scores)
    table = CorruptionTable("cifar", "generated", n, cells, seed=0, rows=rows)
    return run._replace(report=replace(run.report, corruptions=table))


def test_corruptions_are_compared_image_by_image() -> None:
    """Both seeds find the same mean, on other images: what differs between images decides, as with one seed."""
    scores = ((CE, 0, "4400", 2.0), (CE, 1, "0044", 2.0), (MACS, 0, "5500", 1.5), (MACS, 1, "0055", 1.5))
    half = 100 * 1.96 * np.std([0.2, 0.2, 0, 0], ddof=1) / 2
    for runs, metric in ((scores, "mean19"), (scores, "no_overlap"), (scores[::2], "mean19")):
        groups = by_setting(with_hits(fake_run(key, seed, 0.5), hits, nll) for key, seed, hits, nll in runs)
        found = difference(groups, MACS, CE, metric)
        assert found.value == pytest.approx(10) and found.verdict == "undecided"
        assert (found.low, found.high) == pytest.approx((10 - half, 10 + half), rel=1e-3)
        found = difference(groups, MACS, CE, "corrupted_nll")
        assert (found.value, found.low, found.high) == pytest.approx((-0.5, -0.5, -0.5))


@pytest.mark.parametrize(
    ("values", "limits", "metric", "outcome"),
    [
        ((0.60, 0.61), [0, None], "accuracy", "confirmed"),
        ((0.40, 0.41), [0, None], "accuracy", "refuted"),
        ((0.40, 0.61), [0, None], "accuracy", "undecided"),
        ((0.495, 0.495), [-1, None], "accuracy", "confirmed"),  # not inferior by a point
        ((0.60,), [0, None], "accuracy", "one seed"),
        ((), [0, None], "accuracy", "not run"),
        ((0.49, 0.49), [None, 0], "ece", "confirmed"),
    ],
)
def test_claims_are_confirmed_only_by_the_whole_interval(
    values: tuple[float, ...], limits: list[float | None], metric: str, outcome: str
) -> None:
    claim = CLAIM | {"metric": metric, "range": limits}
    (verdict,) = verdicts(fake_grid(claims=(claim,)), fake_groups((0.5,) * len(values), values))
    assert verdict.outcome == outcome


def test_claims_of_a_family_share_their_error_rate() -> None:
    """Three differences of about p = 0.03 each would hold alone, and do not together."""
    groups = fake_groups((0.5,) * 3, (0.59, 0.60, 0.65))
    claims = tuple(CLAIM | {"claim": str(i)} for i in range(3))
    alone = verdicts(fake_grid(claims=claims), groups)
    together = verdicts(fake_grid(claims=tuple(claim | {"family": "f"} for claim in claims)), groups)
    assert [verdict.outcome for verdict in alone] == ["confirmed"] * 3
    assert [verdict.outcome for verdict in together] == ["undecided"] * 3
    differences = np.array([9.0, 10.0, 15.0])
    exact = 2 * stats.t.sf(differences.mean() / (differences.std(ddof=1) / math.sqrt(3)), 2)
    assert alone[0].p_value == pytest.approx(exact, rel=5e-3)
    assert together[0].p_value == pytest.approx(3 * alone[0].p_value)
    assert doctest.testmod(claims_module).failed == 0


def test_claims_and_tables_have_their_own_seeds() -> None:
    groups = fake_groups((0.5,) * 4, (0.60, 0.62, 0.70, 0.90))
    block = {"dataset": "cifar10", "model": "resnet50", "method": "macs"}
    tables = {
        name: Table(name, ("accuracy",), (block | {"seed": seeds},), None)
        for name, seeds in (("usual", [0, 1]), ("more", [0, 1, 2]), ("fresh", [2, 3]))
    }
    grid = fake_grid(seeds=(0, 1), tables=tables, claims=(CLAIM, CLAIM | {"seeds": [0, 1, 2]}, CLAIM | {"seeds": [4]}))
    assert [verdict.found and verdict.found.n for verdict in verdicts(grid, groups)] == [2, 3, None]
    shown = {name: [run.seed for run in of_table(grid, name, groups)[MACS]] for name in tables}
    assert shown == {"usual": [0, 1], "more": [0, 1, 2], "fresh": [2, 3]}
    assert [run.seed for run in of_table(grid, "fresh", groups)[CE]] == [0, 1, 2, 3]  # to compare with


def test_claims_about_step_time_are_compared_with_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"a": (1.9, [1.8, 2.0]), "b": (1.5, [1.4, 1.6]), "c": (1.7, [1.6, 1.8])}
    models = {
        name: {"time_ratio": {"macs": value}, "time_ratio_interval": {"macs": interval}}
        for name, (value, interval) in times.items()
    }
    (tmp_path / "training.json").write_text(json.dumps({"models": models}))
    monkeypatch.setattr("reproduction.claims.STEP_TIMES", tmp_path / "training.json")
    claims = (CLAIM | {"metric": "overhead", "range": [1.74, 2.11]}, CLAIM | {"metric": "overhead", "method": "ce"})
    found = verdicts(fake_grid(claims=claims), {})
    assert {v.model: v.outcome for v in found} == {"a": "confirmed", "b": "refuted", "c": "undecided"}


def test_tables_show_means_the_papers_numbers_and_claims(tmp_path: Path) -> None:
    grid, groups = fake_grid(claims=(CLAIM,)), fake_groups((0.87, 0.88, 0.89), (0.90, 0.91))
    paper = Paper({("main", CE, "accuracy"): (87.63, 0.51)}, {})
    _, _, ce, macs = (
        main_table(grid, "main", groups, ("accuracy", "mean19"), paper).replace("\u00a0", " ").splitlines()
    )
    assert ce == "| cross-entropy | 3 | 88.00 ± 1.00; paper 87.63 ± 0.51 (+0.37) | - |"
    assert macs == "| MaCS (paper) | 2 | 90.50 ± 0.71 | - |"
    render(grid, groups, tmp_path)
    (record,) = stored_claims(tmp_path)
    assert (record["outcome"], record["difference"], record["n"]) == ("confirmed", pytest.approx(3), 2)
    assert "+3.00 [+3.00, +3.00] better" in (tmp_path / "tables.md").read_text()


def test_rows_of_few_bits_give_the_same_metrics() -> None:
    labels, generator = torch.arange(20_000) % 10, torch.Generator().manual_seed(1)
    rows = SampleRows.from_logits(2 * torch.randn(20_000, 10, generator=generator), labels)
    few, _, _ = rows_of_table(halved(rows.to_table()))
    assert summarize(few) == pytest.approx(summarize(rows), rel=5e-4)
    np.testing.assert_array_equal(np.ceil(few.confidence * 15), np.ceil(rows.confidence * 15))
    large = halved(replace(rows, nll=np.full(20_000, 1e5, np.float32)).to_table())  # more than 16 bits can hold
    assert (large["nll"].to_numpy() == 1e5).all()


def test_collecting_appends_and_leaves_what_is_there(tmp_path: Path) -> None:
    """A run with a temperature and corruptions, later one without: each is loaded as it was, to few digits."""
    labels = torch.arange(30) % 3
    rows = [SampleRows.from_logits(5 * torch.eye(3)[labels] / t, labels) for t in (1.0, 2.0)]
    grid, root, folder = load_grid(grid_file(tmp_path)), tmp_path / "runs", tmp_path / "results"
    cells = cells_of(grid)

    def finish(cell: object, report: EvaluationReport, rows: list[SampleRows]) -> None:
        save_run(report, rows, root / cell.name)
        (root / cell.name / "cell.json").write_text(json.dumps({"flags": cell.flags, "seconds": 1.5}))

    part = [measure(each, n_resamples=20) for each in rows]
    report = EvaluationReport("m", "d", "test", 30, part[0], after=part[1], temperature=Temperature(2.0))
    corrupted = with_hits(fake_run(CE, 0, 0.5), "45" * 15).report.corruptions
    finish(cells[0], replace(report, corruptions=replace(corrupted, n=30)), rows)
    assert collect(cells, root, folder, grid) == [cells[0].name]
    (first,) = load_runs(folder)
    assert (first.setting, first.seed, first.record["seconds"]) == (cells[0].setting, cells[0].seed, 1.5)
    for found, expected in ((first.rows, rows[1]), (first.rows_before, rows[0])):
        assert np.array_equal(found.prediction, expected.prediction)
        assert found.nll == pytest.approx(expected.nll, rel=0.03)
        assert found.margin == pytest.approx(expected.margin, rel=0.03)
    assert np.array_equal(first.report.corruptions.rows.hits, corrupted.rows.hits)

    before = [(folder / name).read_bytes() for name in ("runs.parquet", "samples.parquet")]
    finish(cells[0], replace(report, model="another"), rows)  # not the run that was collected
    assert collect(cells, root, folder, grid) == []
    assert before == [(folder / name).read_bytes() for name in ("runs.parquet", "samples.parquet")]
    finish(cells[1], replace(report, after=None, temperature=None, before=part[1]), rows[1:])
    assert collect(cells, root, folder, replace(grid, keep_rows=())) == [cells[1].name]
    one, two = load_runs(folder)
    assert one.report.to_json() == first.report.to_json() and summarize(one.rows) == summarize(first.rows)
    assert two.rows is None and two.report.after is None
    assert {key: len(runs) for key, runs in runs_of_grid(folder, cells[1:]).items()} == {cells[1].setting: 1}
    changed = [replace(cell, flags=cell.flags | {"max_steps": 3}) for cell in cells]
    with pytest.raises(ValueError, match="max_steps"):
        runs_of_grid(folder, changed)
