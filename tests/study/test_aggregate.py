"""Aggregation, ledger, claims and rendering on synthetic reports whose means, spreads and intervals are known."""

import csv
import doctest
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats


sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from reproduction import claims as claims_module
from reproduction import power as power_module
from reproduction.aggregate import by_setting, difference, estimate, estimated, load_runs
from reproduction.cards import best_runs, write_cards
from reproduction.claims import verdicts
from reproduction.digest import claims_table, main_table
from reproduction.grid import Grid, Setting, Table, cells_of, load_grid, setting
from reproduction.ledger import entry, ledger
from reproduction.method_figure import plot_methods
from reproduction.paper import Number, load_paper
from reproduction.power import seeds_needed
from reproduction.quantities import METRICS, Run
from reproduction.records import table_records
from reproduction.render import render, table_markdown

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.metrics import compare, measure, summarize
from macs_hf.report.corruption_rows import CorruptionRows
from macs_hf.report.corruption_table import STANDARD_15, Cell, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from macs_hf.report.rows import SampleRows
from macs_hf.report.run import save_run


PAPER_GRID = Path(__file__).parents[2] / "examples" / "reproduction" / "grid.yaml"
CE, MACS = Setting("cifar10", "resnet50", "ce"), Setting("cifar10", "resnet50", "macs")
BINS = ReliabilityTable((0.0,), (1.0,), (10,), (0.5,), (0.5,))


def fake_run(
    key: Setting,
    seed: int,
    accuracy: float,
    *,
    half: float = 0.0,
    ece: float = 0.1,
    floor: float = 0.01,
    mean15: float | None = None,
    steps_per_second: float | None = None,
    folder: Path = Path("nowhere"),
    rows: SampleRows | None = None,
    rows_before: SampleRows | None = None,
) -> Run:
    metrics = {name: Interval(accuracy, accuracy - half, accuracy + half) for name in ("accuracy", "nll", "brier")}
    metrics["ece"] = Interval(ece, ece - half, ece + half)
    part = Measurement(metrics, floor, BINS)
    corruptions = None
    if mean15 is not None:
        cells = {name: {s: Cell(10, mean15, 1.0, 0.1) for s in SEVERITIES} for name in STANDARD_15}
        error = {"mean15": half / 1.96}
        corruptions = CorruptionTable("imagenet", "generated", 10, cells, standard_error=error)
    report = EvaluationReport(
        "m", "d", "test", 10, before=part, after=part, temperature=Temperature(1.0), corruptions=corruptions
    )
    record = {"train": {"train_steps_per_second": steps_per_second}} if steps_per_second else {}
    return Run(key, seed, report, record, folder, rows, rows_before)


def save_cell(run: Run, folder: Path) -> None:
    """A cell of which only the report was kept."""
    folder.mkdir(parents=True)
    run.report.save(folder / "evaluation.json")
    setting = run.setting._asdict() | {"changes": dict(run.setting.changes)}
    (folder / "cell.json").write_text(json.dumps({"setting": setting, "seed": run.seed}))


def fake_grid(**changes: object) -> Grid:
    block = {"dataset": "cifar10", "model": "resnet50", "method": ["ce", "macs"]}
    table = Table("Main", ("accuracy", "mean15"), (block,), "macs")
    grid = Grid("g", {}, {"cifar10": {}}, {"resnet50": {}}, (0, 1, 2), {"main": table}, {}, {}, (), {})
    return replace(grid, **changes)


def test_mean_sample_std_and_interval_over_seeds() -> None:
    found = estimate([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.std == pytest.approx(math.sqrt(7 / 3))  # divided by n - 1
    assert found.n == 3
    assert found.half == pytest.approx(4.302653 * math.sqrt(7 / 3) / math.sqrt(3))
    assert estimate([5.0]) == (5.0, None, 1)


def test_without_rows_a_difference_has_the_interval_of_its_seeds() -> None:
    runs = [fake_run(CE, seed, 0.9) for seed in (0, 1, 2)]
    runs += [fake_run(MACS, seed, value) for seed, value in ((0, 0.6), (1, 0.7), (2, 0.8), (3, 0.1))]
    found = difference(by_setting(runs), MACS, CE, "nll")
    half = 4.302653 * 0.1 / math.sqrt(3)  # Student's t of two degrees of freedom: the seeds are paired
    assert found.n == 3  # a seed that only one has is left out
    assert found.value == pytest.approx(-0.2)
    assert (found.low, found.high) == (pytest.approx(-0.2 - half), pytest.approx(-0.2 + half))
    assert found.verdict == "undecided"
    assert difference(by_setting(runs), MACS, CE, "nll", level=0.5).verdict == "better"
    sure = [fake_run(key, seed, value) for key, value in ((CE, 1.0), (MACS, 0.5)) for seed in (0, 1)]
    assert difference(by_setting(sure), MACS, CE, "nll").verdict == "better"


def test_one_seed_without_rows_has_no_interval() -> None:
    groups = by_setting([fake_run(CE, 0, 0.5, mean15=0.40), fake_run(MACS, 0, 0.5, mean15=0.50)])
    assert difference(groups, MACS, CE, "mean15") == (pytest.approx(10), None, None, 1, "undecided")
    assert difference(groups, MACS, CE, "margin") is None


def test_paired_difference_is_that_of_the_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (500,), generator=generator)
    logits = torch.randn(500, 4, generator=generator)
    runs = []
    for key, shift in ((CE, 1.0), (MACS, 2.0)):
        rows = SampleRows.from_logits(logits + shift * torch.nn.functional.one_hot(labels, 4), labels)
        runs.append(fake_run(key, 0, summarize(rows)["accuracy"], rows=rows))
    expected = compare(runs[1].rows, runs[0].rows)["accuracy"]
    found = difference(by_setting(runs), MACS, CE, "accuracy")
    assert found.value == pytest.approx(100 * expected.difference)
    assert (found.low, found.high) == pytest.approx((100 * expected.low, 100 * expected.high), rel=1e-2)
    assert found.verdict == expected.verdict == "better"


def test_what_was_measured_before_the_temperature_is_paired_too() -> None:
    labels = torch.arange(300) % 4
    logits = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    runs, before = [], {}
    for key, scale in ((CE, 2.0), (MACS, 1.0)):
        before[key] = SampleRows.from_logits(scale * logits, labels)
        run = fake_run(key, 0, 0.5, rows=SampleRows.from_logits(logits, labels), rows_before=before[key])
        metrics = {name: Interval(value, value, value) for name, value in summarize(before[key]).items()}
        runs.append(run._replace(report=replace(run.report, before=Measurement(metrics, 0.0, BINS))))
    groups = by_setting(runs)
    expected = compare(before[MACS], before[CE])["nll"]
    found = difference(groups, MACS, CE, "nll")
    assert (found.value, found.low, found.high) == pytest.approx(expected[2:5])
    assert difference(groups, MACS, CE, "nll_after").high == pytest.approx(0)  # the same rows after it
    margins = before[MACS].margin - before[CE].margin
    half = 1.959964 * margins.std(ddof=1) / math.sqrt(300)
    found = difference(groups, MACS, CE, "margin")
    assert (found.value, found.high) == (pytest.approx(margins.mean()), pytest.approx(margins.mean() + half, rel=1e-5))


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
    scores = ((CE, 0, "4400"), (CE, 1, "0044"), (MACS, 0, "5500"), (MACS, 1, "0055"))
    half = 100 * 1.96 * np.std([0.2, 0.2, 0, 0], ddof=1) / 2
    for runs, metric in ((scores, "mean19"), (scores, "no_overlap"), (scores[::2], "mean19")):
        groups = by_setting(with_hits(fake_run(key, seed, 0.5), hits) for key, seed, hits in runs)
        found = difference(groups, MACS, CE, metric)
        assert found.value == pytest.approx(10) and found.verdict == "undecided"
        assert (found.low, found.high) == pytest.approx((10 - half, 10 + half), rel=1e-3)


def test_nll_under_corruption_is_compared_too() -> None:
    groups = by_setting(
        with_hits(fake_run(key, s, 0.5), "4455", nll) for key, nll in ((CE, 2.0), (MACS, 1.5)) for s in (0, 1)
    )
    found = difference(groups, MACS, CE, "corrupted_nll")
    assert (found.value, found.low, found.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert found.verdict == "better"


def test_overhead_is_the_ratio_to_cross_entropy_of_the_same_seed() -> None:
    runs = [fake_run(CE, 0, 0.5, steps_per_second=10), fake_run(CE, 1, 0.5, steps_per_second=8)]
    runs += [fake_run(MACS, 0, 0.5, steps_per_second=5), fake_run(MACS, 1, 0.5, steps_per_second=5)]
    found = estimated(by_setting(runs), MACS, "overhead")
    assert found.mean == pytest.approx((2.0 + 1.6) / 2)
    stopped = runs[0]._replace(record=runs[0].record | {"continued": True})
    assert estimated(by_setting([stopped, *runs[2:]]), MACS, "overhead") is None


@pytest.mark.parametrize(
    ("values", "std", "status"),
    [
        ((0.91, 0.912), None, "reproduced"),  # within the tolerance of 1
        ((0.92, 0.94), 0.5, "not reproduced"),  # off by 2, but the interval is far too wide to tell
        ((0.925, 0.9251, 0.9252), 0.9, "reproduced"),  # off by 1.5, which the paper's own spread allows
        ((0.80, 0.802), None, "not reproduced"),
        ((0.91,), None, "not run"),
        ((), None, "not run"),
    ],
)
def test_ledger_status(values: tuple[float, ...], std: float | None, status: str) -> None:
    number = Number("main", "Table", "value", "accuracy", MACS, 91.0, std, 1.0)
    groups = by_setting(fake_run(MACS, seed, value) for seed, value in enumerate(values))
    found = entry(number, groups, fake_grid())
    assert found.status == status
    assert found.reason


def test_ledger_derives_differences_changes_and_what_cannot_be() -> None:
    scores = ((CE, 0.80, 0.2), (MACS, 0.85, 0.05))
    groups = by_setting(fake_run(key, seed, value, ece=ece) for key, value, ece in scores for seed in (0, 1))
    numbers = [
        Number("main", "text", "difference", "accuracy", MACS, 5.0, None, 1.0, "ce"),
        Number("main", "text", "relative", "ece", MACS, -73.0, None, 5.0, "ce"),
        Number("main", "text", "ratio", "ece", MACS, 0.5, None, 0.1, "ce"),
        Number("main", "text", "mean", "accuracy", Setting("*", "*", "macs"), 85.0, None, 1.0),
        Number("main", "text", "count", "accuracy", MACS, 27, None, 1.0, cannot="not said"),
    ]
    entries = ledger(numbers, groups, fake_grid())
    assert [e.ours.mean if e.ours else None for e in entries] == pytest.approx([5.0, -75.0, 0.25, 85.0, None])
    assert [e.status for e in entries] == ["reproduced"] * 2 + ["not reproduced", "reproduced", "cannot be"]


def test_claims_are_held_only_with_the_whole_interval() -> None:
    def outcome(values: list[float], bounds: list[float | None], metric: str = "accuracy") -> str:
        runs = [fake_run(CE, s, 0.5, ece=0.5) for s in range(len(values))]
        runs += [fake_run(MACS, s, value, ece=value) for s, value in enumerate(values)]
        claim = {"claim": "c", "metric": metric, "method": "macs", "range": bounds}
        (verdict,) = verdicts(fake_grid(claims=(claim,)), by_setting(runs))
        return verdict.outcome

    assert outcome([0.60, 0.61], [0, None]) == "held"
    assert outcome([0.40, 0.41], [0, None]) == "not held"
    assert outcome([0.40, 0.61], [0, None]) == "not decided"
    assert outcome([0.505, 0.505], [-1, 1]) == "held"
    assert outcome([0.495, 0.495], [-1, None]) == "held"  # not inferior by a point
    assert outcome([0.60], [0, None]) == "one seed"
    assert outcome([], [0, None]) == "not run"
    assert outcome([0.51, 0.51], [None, 0], "ece") == "not held"
    assert outcome([0.49, 0.49], [None, 0], "ece") == "held"


def test_seeds_that_would_decide_a_claim() -> None:
    """Without rows the interval is t * sd / sqrt(S): the first number of seeds that makes it shorter than the mean."""
    values = (0.49, 0.52, 0.53)
    runs = [fake_run(CE, s, 0.5) for s in range(3)] + [fake_run(MACS, s, value) for s, value in enumerate(values)]
    claim = {"claim": "c", "metric": "accuracy", "method": "macs", "range": [0, None]}
    (verdict,) = verdicts(fake_grid(claims=(claim,)), by_setting(runs))
    differences = 100 * (np.array(values) - 0.5)
    spread, mean = differences.std(ddof=1), differences.mean()
    expected = next(s for s in range(4, 100) if stats.t.ppf(0.975, s - 1) * spread / math.sqrt(s) < mean)
    assert (verdict.outcome, verdict.seeds_needed) == ("not decided", expected)
    # What only test images could shrink is not shrunk by seeds.
    assert seeds_needed(differences, half_width=20.0, distance=1.0) is None
    assert doctest.testmod(power_module).failed == 0


def test_claims_of_a_family_share_their_error_rate() -> None:
    """Three differences of about p = 0.03 each would hold alone, and do not together."""
    runs = [fake_run(CE, s, 0.5) for s in range(3)] + [fake_run(MACS, s, v) for s, v in enumerate((0.59, 0.60, 0.65))]
    claims = [
        {"claim": str(i), "metric": m, "method": "macs", "range": [0, None]} for i, m in enumerate(("accuracy",) * 3)
    ]
    alone = verdicts(fake_grid(claims=tuple(claims)), by_setting(runs))
    together = verdicts(fake_grid(claims=tuple(c | {"family": "f"} for c in claims)), by_setting(runs))
    assert [verdict.outcome for verdict in alone] == ["held"] * 3
    assert [(v.outcome, v.seeds_needed) for v in together] == [("not decided", 3)] * 3  # enough for one of them alone
    p = alone[0].p_value
    differences = np.array([9.0, 10.0, 15.0])
    exact = 2 * stats.t.sf(differences.mean() / (differences.std(ddof=1) / math.sqrt(3)), 2)
    assert p == pytest.approx(exact, rel=5e-3) and 0.02 < p < 0.05
    assert together[0].p_value == pytest.approx(3 * p)
    assert doctest.testmod(claims_module).failed == 0


def test_a_claim_is_about_its_own_seeds_and_a_table_shows_its_own() -> None:
    """Two seeds of the grid and a third that only one claim and one table name."""
    runs = [fake_run(CE, s, 0.5) for s in range(3)] + [fake_run(MACS, s, v) for s, v in enumerate((0.60, 0.62, 0.70))]
    claim = {"claim": "c", "metric": "accuracy", "method": "macs", "range": [0, None]}
    block = {"dataset": "cifar10", "model": "resnet50", "method": "macs"}
    tables = {
        "two": Table("Two", ("accuracy",), (block,)),
        "all": Table("All", ("accuracy",), (block | {"seed": [0, 1, 2]},)),
    }
    grid = fake_grid(claims=(claim, claim | {"seeds": [0, 1, 2]}), seeds=(0, 1), tables=tables)
    groups = by_setting(runs)
    assert [verdict.found.value for verdict in verdicts(grid, groups)] == pytest.approx([11.0, 14.0])
    assert [verdict.found.n for verdict in verdicts(grid, groups)] == [2, 3]
    assert [verdict.outcome for verdict in verdicts(grid, by_setting(runs[:-1]))] == ["not decided", "not run"]
    shown = {
        record["table"]: (record["mean"], record["n"]) for record in table_records(grid, ["two", "all"], groups, [])
    }
    assert shown == {"two": (pytest.approx(61.0), 2), "all": (pytest.approx(64.0), 3)}
    assert "61.00 ± 1.41 (2)" in table_markdown(grid, "two", groups, [], {})


def test_claims_about_step_time_are_held_against_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"a": (1.9, [1.8, 2.0]), "b": (1.5, [1.4, 1.6]), "c": (1.7, [1.6, 1.8])}
    models = {
        name: {"time_ratio": {"macs": value}, "time_ratio_interval": {"macs": interval}}
        for name, (value, interval) in times.items()
    }
    models["without"] = {"time_ratio": {"ce": 1.0}, "time_ratio_interval": {"ce": [0.9, 1.1]}}
    (tmp_path / "training.json").write_text(json.dumps({"models": models}))
    monkeypatch.setattr("reproduction.claims.STEP_TIMES", tmp_path / "training.json")
    claim = {"claim": "c", "metric": "overhead", "method": "macs", "range": [1.74, 2.11]}
    found = verdicts(fake_grid(claims=(claim,)), {})
    assert {v.model: v.outcome for v in found} == {"a": "held", "b": "not held", "c": "not decided"}
    assert [v.found.value for v in found] == [1.9, 1.5, 1.7]


def test_cards_are_those_of_the_method_with_the_lowest_mean_nll(tmp_path: Path) -> None:
    small = setting("cifar10", "resnet50", "macs", max_train_samples=10)
    nll = {CE: {0: 0.5, 1: 0.9}, MACS: {0: 0.6, 1: 0.7}, small: {0: 0.1}}
    runs = []
    for key, values in nll.items():
        for seed, value in values.items():
            folder = tmp_path / "runs" / f"{key.name}-{seed}"
            folder.mkdir(parents=True)
            (folder / "README.md").write_text(f"card of {key.label} {seed}")
            for name in ("card.json", "evaluation.json", "samples.parquet", "reliability.png", "cell.json"):
                (folder / name).write_text(name)
            runs.append(fake_run(key, seed, value, folder=folder))
    (card,) = write_cards(by_setting(runs), tmp_path / "cards")
    assert card.read_text() == "card of macs 0"  # 0.65 on average, though one run of ce is better
    assert card.parent == tmp_path / "cards" / runs[2].folder.name
    copied = {path.name for path in card.parent.iterdir()}
    assert copied == {"README.md", "card.json", "evaluation.json", "reliability.png"}
    (runs[2].folder / "README.md").unlink()
    with pytest.raises(ValueError, match="has no card: --cards needs"):
        write_cards(by_setting(runs), tmp_path / "cards")


def test_cards_are_chosen_by_the_nll_under_corruption_where_it_was_measured() -> None:
    def run(key: Setting, clean: float, corrupted: float, temperature: float | None) -> Run:
        made = fake_run(key, 0, clean, mean15=0.5)
        cells = {
            name: {
                s: replace(cell, nll=corrupted, scaled_nll=temperature and corrupted, scaled_ece=temperature and 0.1)
                for s, cell in row.items()
            }
            for name, row in made.report.corruptions.cells.items()
        }
        table = replace(made.report.corruptions, cells=cells, temperature=temperature)
        return made._replace(report=replace(made.report, corruptions=table))

    better, worse = run(MACS, 0.9, 0.7, None), run(CE, 0.8, 1.2, 1.5)
    unmeasured = fake_run(setting("cifar10", "resnet50", "mixup"), 0, 0.1)
    assert best_runs(by_setting([worse, better, unmeasured])) == [better]


def test_a_digest_shows_the_means_and_the_claims(tmp_path: Path) -> None:
    for key, values in ((CE, (0.5, 0.6)), (MACS, (0.7,))):
        for seed, value in enumerate(values):
            save_cell(fake_run(key, seed, value, mean15=value), tmp_path / f"{key.name}-seed{seed}")
    claim = {"claim": "better", "metric": "accuracy", "method": "macs", "range": [0, None]}
    grid = fake_grid(claims=(claim,))
    lines = main_table(grid, "main", by_setting(load_runs(tmp_path))).replace("\u00a0", " ").splitlines()
    assert lines[2].startswith("| `ce` | 2 | 55.00 ± 7.07 | 10.00 ± 0.00 | 0.550 ± 0.071 |")
    assert lines[3].startswith("| `macs` | 1 | 70.00 | 10.00 | 0.700 |")
    assert lines[3].endswith("| 70.00 |")
    assert main_table(grid, "main", by_setting(load_runs(tmp_path)), ("mean19",)).endswith(
        "| - |"
    )  # not in these reports
    render(grid, by_setting(load_runs(tmp_path)), [], {}, tmp_path / "results")
    summary, _, _, _, row = claims_table(tmp_path / "results").splitlines()[1:6]
    assert summary == "<summary>Each claim where it was tested: 1 one seed</summary>"
    assert row == "| better | cifar10, resnet50 | accuracy, %: `macs` minus `ce` +20.00 [-, -] | **one seed** |"
    save_cell(fake_run(MACS, 1, 0.4), tmp_path / f"{MACS.name}-seed1")
    render(grid, by_setting(load_runs(tmp_path)), [], {}, tmp_path / "results")
    row = claims_table(tmp_path / "results").splitlines()[5]
    assert row.endswith("| **not decided**, would need more than 100 seeds |")
    table = (tmp_path / "results" / "claims.csv").read_text()
    (tmp_path / "results" / "claims.csv").write_text(table.replace("not decided,,", "not decided,2,"))
    row = claims_table(tmp_path / "results").splitlines()[5]
    assert row.endswith("| **not decided** after the correction; held as the only claim |")


def test_the_figure_of_methods_shows_every_seed_and_the_mean() -> None:
    runs = [fake_run(CE, s, v, ece=0.1 * s) for s, v in enumerate((0.5, 0.6, 0.7))] + [fake_run(MACS, 0, 0.9)]
    figure = plot_methods([CE, MACS], by_setting(runs), {"metrics": ["accuracy", "ece"]})
    accuracy, ece = figure.axes
    seeds, mean = (line.get_xdata() for line in accuracy.lines[1:3])  # below macs, which comes first from below
    assert list(seeds) == pytest.approx([50, 60, 70])
    assert list(mean) == pytest.approx([60])
    assert ece.get_title() == "ECE, %\nlower is better"
    assert [label.get_text() for label in accuracy.get_yticklabels()] == ["macs", "ce"]


def test_the_figure_of_methods_shows_intervals_and_the_cost_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {CE: (0.5, 0.6, 0.7), MACS: (0.6, 0.75, 0.78)}
    groups = by_setting(fake_run(key, s, v) for key, seeds in values.items() for s, v in enumerate(seeds))
    times = {"time_ratio": {"macs": 1.8}, "time_ratio_interval": {"macs": [1.7, 1.9]}}
    (tmp_path / "training.json").write_text(json.dumps({"models": {"net": times}}))
    monkeypatch.setattr("reproduction.method_figure.STEP_TIMES", tmp_path / "training.json")
    cost = {"model": "net", "methods": {"macs": "macs", "mixup": "mixup"}}
    accuracy, step = plot_methods([CE, MACS], groups, {"metrics": ["accuracy"], "cost": cost}).axes
    found = difference(groups, MACS, CE, "accuracy")
    shift = 100 * np.mean(values[MACS]) - found.value
    assert list(accuracy.lines[0].get_xdata()) == pytest.approx([shift + found.low, shift + found.high])
    assert [list(line.get_xdata()) for line in step.lines[:2]] == [[1.7, 1.9], [1.8]]
    assert (
        len(plot_methods([CE, MACS], groups, {"metrics": ["accuracy"], "cost": cost | {"model": "other"}}).axes) == 1
    )


def test_tables_show_bold_paper_difference_and_counts(tmp_path: Path) -> None:
    runs = [fake_run(CE, s, v, mean15=0.40) for s, v in enumerate((0.87, 0.88, 0.89))]
    runs += [fake_run(MACS, s, v, mean15=0.45) for s, v in enumerate((0.90, 0.91, 0.92))]
    groups = by_setting(runs)
    numbers = [Number("main", "Table", "value", "accuracy", CE, 87.63, 0.51, 1.0)]
    text = table_markdown(fake_grid(), "main", groups, numbers, {"main": "A note."})
    assert "88.00 ± 1.00 (3); paper 87.63 ± 0.51 (+0.37)" in text
    assert "**91.00 ± 1.00 (3)**" in text
    assert "+3.00 [+3.00, +3.00] better" in text
    assert "1 / 0 / 0" in text
    assert "A note." in text
    written = render(fake_grid(), groups, numbers, {}, tmp_path)
    assert {path.name for path in written} == {"tables.md", "tables.csv", "comparisons.csv", "ledger.md", "ledger.csv"}
    with (tmp_path / "tables.csv").open() as file:
        rows = {(row["setting"], row["metric"]): row for row in csv.DictReader(file)}
    assert float(rows["ce", "accuracy"]["std"]) == pytest.approx(1.0)
    assert float(rows["ce", "accuracy"]["difference"]) == pytest.approx(0.37)
    assert rows["macs", "accuracy"]["paper"] == ""
    assert "**reproduced**" in (tmp_path / "ledger.md").read_text()


def test_runs_are_found_with_the_rows_that_were_kept(tmp_path: Path) -> None:
    run = fake_run(setting("cifar10", "resnet50", "macs", margin=2.0), 4, 0.9)
    save_cell(run, tmp_path / "study" / "x")
    (found,) = load_runs(tmp_path)
    assert (found.setting, found.seed, found.report) == (run.setting, 4, run.report)
    assert (found.folder, found.rows, found.rows_before) == (tmp_path / "study" / "x", None, None)
    labels = torch.arange(30) % 3
    rows = [SampleRows.from_logits(5 * torch.eye(3)[labels] / t, labels) for t in (1.0, 2.0)]
    report = replace(run.report, n=30, before=measure(rows[0]), after=measure(rows[1]), temperature=Temperature(2.0))
    save_run(report, rows, tmp_path / "study" / "x")
    (found,) = load_runs(tmp_path)
    assert summarize(found.rows) == pytest.approx(summarize(rows[1]))
    assert summarize(found.rows_before) == pytest.approx(summarize(rows[0]))
    save_run(replace(report, after=None, temperature=None, before=report.after), rows[1:], tmp_path / "study" / "x")
    (found,) = load_runs(tmp_path)
    assert found.rows_before is found.rows  # a model without a temperature was measured once


def test_every_number_of_the_paper_has_cells_that_could_give_it() -> None:
    """The committed numbers and the committed grid name the same settings, so none can be missed by a typing error."""
    grid = load_grid(PAPER_GRID)
    numbers, notes = load_paper()
    assert len(numbers) > 170
    assert set(notes) <= set(grid.tables)
    known = {name: {cell.setting for cell in cells_of(grid, [name])} for name in grid.tables}
    for number in numbers:
        assert number.metric in METRICS
        if number.of in ("mean", "count"):
            assert any(key.method == number.setting.method for key in known[number.table])
            continue
        wanted = {number.setting} | ({number.setting._replace(method=number.baseline)} if number.baseline else set())
        assert wanted <= known[number.table], number
        assert number.metric in grid.tables[number.table].columns
    # Spot checks against the print.
    values = {(n.table, n.setting, n.metric): (n.value, n.std) for n in numbers if n.of == "value" and not n.cannot}
    assert values["main", MACS, "accuracy"] == (91.10, 0.55)
    assert values["robustness", setting("cifar100", "convnext_tiny", "macs"), "mean19"] == (33.3, 0.7)
    assert values["perturbation", setting("cifar100", "resnet50", "macs", perturbation="blur"), "ece"] == (3.89, None)
    assert values["data_efficiency", setting("cifar10", "resnet50", "ce", data_fraction=0.1), "accuracy"][0] == 73.1
