"""Rerun the paper, or a part of it, and see your numbers beside its own.

python examples/reproduce.py --table main --dry_run              # which cells, and what they would cost
python examples/reproduce.py --table main                        # run them; start again to continue
python examples/reproduce.py --table main --render               # tables, figures and ledger of what is there
python examples/reproduce.py --shard 3/8                         # every 8th cell of the whole grid, from the 3rd on
python examples/reproduce.py --study examples/configs/study.yaml # another grid
"""

import argparse
import json
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from reproduction.aggregate import RECORD_FILE, by_setting, load_runs
from reproduction.cards import write_cards
from reproduction.cost import clock, passes, seconds, total
from reproduction.grid import Cell, Grid, Setting, cells_of, load_grid, shard_of
from reproduction.paper import load_paper
from reproduction.quantities import Run
from reproduction.render import render
from reproduction.runner import check_flags, is_finished, run_cells

from macs_hf.cli.errors import plain_errors
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.run import ROWS_FILE, load_run, save_run


PAPER = Path(__file__).parent / "reproduction" / "grid.yaml"


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=PAPER, help="A grid file; the paper's, if not given.")
    parser.add_argument("--table", nargs="+", metavar="NAME", help="Tables and figures; all, if not given.")
    parser.add_argument("--seeds", nargs="+", type=int, help="Only these of the grid's seeds.")
    parser.add_argument("--shard", metavar="I/N", help="Run every N-th cell from the I-th on.")
    parser.add_argument("--output_dir", type=Path, help="Where the cells are; runs/<grid>, if not given.")
    parser.add_argument(
        "--processes", type=int, default=max(torch.cuda.device_count(), 1), help="Per cell; one per GPU, if not given."
    )
    parser.add_argument("--dry_run", action="store_true", help="Print the cells and their cost, and stop.")
    parser.add_argument("--render", action="store_true", help="Write tables, figures and ledger; runs nothing.")
    parser.add_argument("--results", type=Path, help="Where to render to; <output_dir>/results, if not given.")
    parser.add_argument("--cards", type=Path, help="Copy the cards of the best checkpoints to this folder.")
    parser.add_argument("--collect", type=Path, help="Copy reports and samples, without models, to this folder.")
    return parser.parse_args(argv)


def print_plan(grid: Grid, cells: list[Cell], root: Path) -> None:
    """One line per cell, and the sum."""
    finished = {cell.name for cell in cells if is_finished(cell, root)}
    for cell in cells:
        state = "finished" if cell.name in finished else f"about {clock(seconds(cell, grid.cost))}"
        print(f"{cell.name}: {passes(cell):g} views, {state}")
    left = [cell for cell in cells if cell.name not in finished]
    cost = total(left, grid.cost) / 3600
    print(f"\n{len(cells)} cells, {len(left)} to run: about {cost:.1f} hours of one {grid.cost['device']}")


def collect(cells: list[Cell], root: Path, folder: Path, grid: Grid) -> None:
    """
    Copy what tables are made of, in few digits and without weights: with rows about 130 kilobytes per cell. Runs with
    other seeds than the grid's keep no rows, if not all do.
    """
    for cell in cells:
        record, copied = (parent / cell.name / RECORD_FILE for parent in (root, folder))
        if not is_finished(cell, root) or not (root / cell.name / ROWS_FILE).exists():
            continue
        # A run that was collected before, and perhaps copied back to go on from it, would lose digits once more.
        if copied.exists() and copied.read_text() == record.read_text():
            continue
        run = load_run(root / cell.name)
        rows = [run.rows] if run.rows_before is None else [run.rows_before, run.rows]
        report, samples = save_run(_compared(run.report), rows, folder / cell.name, compact=True)
        values = json.loads(report.read_text(), parse_float=_five_digits)
        report.write_text(json.dumps(values, separators=(",", ":")))
        if grid.keep_rows is not None and not (cell.setting.name in grid.keep_rows and cell.seed in grid.seeds):
            samples.unlink()
        shutil.copy(record, copied)


def _compared(report: EvaluationReport) -> EvaluationReport:
    """Without the scores of corrupted images before the temperature, which no claim is about."""
    table = report.corruptions
    if table is None or table.rows is None or table.rows.scaled_nll is None:
        return report
    return replace(report, corruptions=replace(table, rows=replace(table.rows, nll=None)))


def _five_digits(number: str) -> float:
    return float(f"{float(number):.5g}")


def _groups(folder: Path, cells: list[Cell]) -> dict[Setting, list[Run]]:
    """The finished runs in a folder that are cells of the grid, by setting."""
    wanted = {(cell.setting, cell.seed): cell for cell in cells}
    runs = [run for run in load_runs(folder) if (run.setting, run.seed) in wanted]
    for run in runs:
        check_flags(wanted[run.setting, run.seed], run.record, run.folder)
    return by_setting(runs)


def main(argv: list[str]) -> int:
    args = parse(argv)
    grid = load_grid(args.study)
    root = (args.output_dir or Path("runs", grid.name)).absolute()
    cells = shard_of(cells_of(grid, args.table, args.seeds), args.shard)
    if args.dry_run:
        print_plan(grid, cells, root)
        return 0
    if not (args.render or args.collect or args.cards):
        # As Ctrl-C does, so that a scheduler's signal also ends the run that is going on.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        failures = run_cells(cells, root, grid.cost, args.processes)
        if failures:
            print(f"\n{len(failures)} cells failed; the next start tries them again:")
            for failure in failures:
                print(f"  {failure.cell.name}: {failure.reason}, log: {failure.log}")
        return 1 if failures else 0
    shown = cells_of(grid, args.table, args.seeds)
    if args.collect:
        collect(cells, root, args.collect, grid)
    if args.cards:
        for path in write_cards(_groups(root, shown), args.cards):
            print(path)
    if args.render:
        groups = _groups(args.collect or root, shown)
        # Another study has other cells: the paper's ledger is of the paper's grid.
        numbers, notes = load_paper() if args.study == PAPER else ([], {})
        if args.table:
            tables = {grid.figures[name]["table"] if name in grid.figures else name for name in args.table}
            numbers = [number for number in numbers if number.table in tables]
        for path in render(grid, groups, numbers, notes, args.results or root / "results"):
            print(path)
    return 0


if __name__ == "__main__":
    with plain_errors("reproduce.py", ("study", "table", "seeds", "shard", "output_dir")):
        sys.exit(main(sys.argv[1:]))
