"""Rerun the paper, a study or a part of it, and see your numbers beside those of the paper.

python examples/reproduce.py --table main --dry_run              # which cells there are, and which are finished
python examples/reproduce.py --table main                        # run them; start again to continue
python examples/reproduce.py --table main --render               # tables and figures of what is there
python examples/reproduce.py --shard 3/8                         # every 8th cell of the whole grid, from the 3rd on
python examples/reproduce.py --study examples/configs/study.yaml # another grid
python examples/reproduce.py --docs write                        # README.md and docs/ from the committed results
"""

import argparse
import signal
import sys
from pathlib import Path

import torch
from reproduction.docs import render_pages
from reproduction.grid import cells_of, load_grid, shard_of
from reproduction.results import collect, runs_of_grid
from reproduction.runner import is_finished, run_cells
from reproduction.tables import NO_PAPER, load_paper, render

from macs_hf.cli.process import plain_errors


PAPER = Path(__file__).parent / "reproduction" / "grid.yaml"


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=PAPER, help="A grid file; the paper's, if not given.")
    parser.add_argument("--table", nargs="+", metavar="NAME", help="Tables; all, if not given.")
    parser.add_argument("--seeds", nargs="+", type=int, help="Only these of the grid's seeds.")
    parser.add_argument("--shard", metavar="I/N", help="Every N-th cell from the I-th on.")
    parser.add_argument("--output_dir", type=Path, help="Where the cells are; runs/<grid>, if not given.")
    parser.add_argument(
        "--processes", type=int, default=max(torch.cuda.device_count(), 1), help="Per cell; one per GPU, if not given."
    )
    parser.add_argument("--dry_run", action="store_true", help="Print the cells, and stop.")
    parser.add_argument("--results", type=Path, help="A folder of results; <output_dir>/results, if not given.")
    parser.add_argument("--collect", action="store_true", help="Append finished cells, without models, to --results.")
    parser.add_argument("--render", action="store_true", help="The same, then write tables and figures there.")
    parser.add_argument("--docs", choices=("write", "check"), help="Write README.md and docs/, or check them.")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    args = parse(argv)
    if args.docs:
        stale = render_pages(write=args.docs == "write")
        print("written:" if args.docs == "write" else "not current:", *(stale or ["none"]))
        return int(args.docs == "check" and bool(stale))
    grid = load_grid(args.study)
    root = (args.output_dir or Path("runs", grid.name)).absolute()
    cells = shard_of(cells_of(grid, args.table, args.seeds), args.shard)
    if args.dry_run:
        finished = {cell.name: is_finished(cell, root) for cell in cells}
        print("\n".join(name + ": finished" * done for name, done in finished.items()))
        print(f"\n{len(cells)} cells, {len(cells) - sum(finished.values())} to run")
        return 0
    if not (args.render or args.collect):
        # As Ctrl-C does, so that a scheduler's signal also ends the run that is going on.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        failures = run_cells(cells, root, args.processes)
        if failures:
            print(f"\n{len(failures)} cells failed; the next start tries them again:")
            for failure in failures:
                print(f"  {failure.cell.name}: {failure.reason}, log: {failure.log}")
        return 1 if failures else 0
    results = args.results or root / "results"
    for name in collect(cells, root, results, grid):
        print(f"collected {name}")
    if args.render:
        paper = load_paper(PAPER.with_name("paper.yaml")) if args.study == PAPER else NO_PAPER
        for path in render(grid, runs_of_grid(results, cells), results, paper):
            print(path)
    return 0


if __name__ == "__main__":
    with plain_errors("reproduce.py", ("study", "table", "seeds", "shard", "output_dir", "results")):
        sys.exit(main(sys.argv[1:]))
