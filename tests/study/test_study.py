"""The committed study is what its grid asks for, and its tables follow from its reports."""

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest


sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from reproduction.aggregate import by_setting, load_runs
from reproduction.cards import best_runs
from reproduction.grid import Grid, cells_of, load_grid, settings_of
from reproduction.method_figure import _step_costs
from reproduction.render import render

from macs_hf.metrics import summarize
from macs_hf.report.corruption_table import CORRUPTIONS
from macs_hf.report.evaluation import EvaluationReport


ROOT = Path(__file__).parents[2]
STUDY, FEW_IMAGES = (ROOT / "model_cards" / name for name in ("study", "few_images"))
NUMBER = r"[-+]?\d+(?:\.\d+)?"
GRID, FEW_GRID = (load_grid(ROOT / "examples" / "configs" / f"{name}.yaml") for name in ("study", "few_images"))


@pytest.mark.parametrize(("grid", "folder"), [(GRID, STUDY), (FEW_GRID, FEW_IMAGES)])
def test_runs_are_cells_of_the_grid_with_its_flags(grid: Grid, folder: Path) -> None:
    cells = {cell.name: json.loads(json.dumps(cell.flags)) for cell in cells_of(grid)}
    records = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/cell.json")}
    assert records
    assert {name: record["flags"] for name, record in records.items()} == {name: cells[name] for name in records}


def test_rows_give_the_metrics_of_their_report() -> None:
    """To the precision that rows are stored with; corrupted images exactly."""
    runs = [run for run in load_runs(STUDY) if run.rows is not None]
    assert runs
    for run in runs:
        for rows, part in ((run.rows, run.report.after), (run.rows_before, run.report.before)):
            if part is not None:
                expected = {name: interval.value for name, interval in part.metrics.items()}
                assert summarize(rows) == pytest.approx(expected, rel=5e-3, abs=5e-4), run.folder.name
        table = run.report.corruptions
        if table is not None:
            assert table.rows.names == CORRUPTIONS
            shares = np.nanmean(table.rows.accuracy(CORRUPTIONS), axis=0)
            assert shares == pytest.approx(list(table.by_corruption().values()), abs=1e-5), run.folder.name


def test_no_report_tells_where_it_was_made() -> None:
    for path in (ROOT / "model_cards").rglob("*"):
        if path.suffix in {".json", ".md", ".csv"}:
            assert not any(part in path.read_text() for part in ("/home/", "/root/", "/tmp/", "/var/", "/work/")), path


def test_best_checkpoints_have_cards() -> None:
    groups = by_setting(load_runs(STUDY))
    repeated = {key: runs for key, runs in groups.items() if len(runs) >= 3}  # of one seed nothing is the best
    for run in best_runs(repeated):
        folder = ROOT / "model_cards" / run.folder.name
        assert f"{100 * run.report.after.metrics['accuracy'].value:.2f} %" in (folder / "README.md").read_text()
        carded, stored = EvaluationReport.load(folder / "evaluation.json").after.metrics, run.report.after.metrics
        values = [{name: interval.value for name, interval in part.items()} for part in (carded, stored)]
        assert values[0] == pytest.approx(values[1], rel=1e-4)  # stored in five digits


def test_the_picture_of_methods_has_the_cost_of_a_step_for_each() -> None:
    grid = load_grid(ROOT / "examples" / "configs" / "study.yaml")
    spec = grid.figures["methods"]
    assert _step_costs(spec["cost"]).keys() == {row.label for row in settings_of(grid, spec["table"])}


def test_the_results_are_small_enough_to_clone() -> None:
    assert sum(path.stat().st_size for path in (ROOT / "model_cards").rglob("*") if path.is_file()) < 12e6


@pytest.mark.slow
def test_tables_are_those_of_the_reports(tmp_path: Path) -> None:
    render(GRID, by_setting(load_runs(STUDY)), [], {}, tmp_path)
    fresh, committed = ((folder / "tables.md").read_text().splitlines() for folder in (tmp_path, STUDY))
    assert [re.sub(NUMBER, "", line) for line in fresh] == [re.sub(NUMBER, "", line) for line in committed]
    for line, old in zip(fresh, committed, strict=True):
        numbers = [[float(number) for number in re.findall(NUMBER, text)] for text in (line, old)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.011), (line, old)
    for name in ("tables.csv", "comparisons.csv", "claims.csv"):
        fresh, committed = (list(csv.reader((folder / name).open(newline=""))) for folder in (tmp_path, STUDY))
        assert len(fresh) == len(committed) > 1
        for line, old in zip(fresh, committed, strict=True):
            for cell, before in zip(line, old, strict=True):
                # Another machine may round the last digit differently.
                assert cell == before or float(cell) == pytest.approx(float(before)), (name, line, old)
