"""`macs-hf compare A B`: runs on the same test images, image by image; several seeds a side with `--versus`."""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from ..exceptions import ArgumentError
from ..report.report import Run, load_run
from ..report.run_folder import REPORT_FILE
from ..report.text import printable
from .process import plain_errors, refuse_empty


def main(argv: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.versus is None and len(options.runs) != 2:
        parser.error("name two runs, as in `A B`, or several seeds of both sides, as in `A0 A1 --versus B0 B1`")
    with plain_errors("macs-hf compare"):
        refuse_empty(vars(options))
        from ..evaluation.run_comparison import comparison_table

        a, b = (options.runs[:1], options.runs[1:]) if options.versus is None else (options.runs, options.versus)
        for side in (a, b):
            if len({Path(folder).resolve() for folder in side}) < len(side):
                raise ValueError(f"A run is named twice on one side ({' '.join(side)}): its seeds must differ.")
        runs = _runs([*a, *b])
        sides = runs[: len(a)], runs[len(a) :]
        print(printable(comparison_table(*sides)))
        if options.picture is not None:
            _draw(sides, options.picture)
    return 0


def _draw(sides: tuple[list[Run], list[Run]], path: Path) -> None:
    from ..rendering.pictures import plot_under_corruption, png

    shared = len(os.path.commonprefix([side[0].name for side in sides]).rpartition("-")[0])  # noqa: RUF071  (names, not paths)
    names = [side[0].name[shared:].strip("-") for side in sides]
    tables = {name: [run.report.corruptions for run in side] for name, side in zip(names, sides, strict=True)}
    tables = dict(reversed(tables.items()))
    if any(table is None or table.clean is None for side in tables.values() for table in side):
        raise ArgumentError("picture", "needs runs that were measured under corruption.", str(path))
    path.write_bytes(png(plot_under_corruption(tables)))
    print(f"\n{path} shows both under corruption.")


def _runs(folders: list[str]) -> list[Run]:
    """The runs by the names of their folders, with as much of their paths as tells them apart."""
    runs = [load_run(folder) for folder in folders]
    paths = [Path(folder).resolve() for folder in folders]
    paths = [path.parent if path.name == REPORT_FILE else path for path in paths]
    for depth in range(1, max(len(path.parts) for path in paths)):
        names = {path: "/".join(path.parts[-depth:]) for path in paths}
        if len(set(names.values())) == len(names):
            break
    return [replace(run, name=names[path]) for run, path in zip(runs, paths, strict=True)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf compare",
        description="Compare runs on the same test images: differences with paired 95 % intervals.",
        usage="macs-hf compare A B | macs-hf compare A0 A1 ... --versus B0 B1 ...",
    )
    parser.add_argument("runs", metavar="A", nargs="+", help="folder of a run, or its report; then another one")
    parser.add_argument(
        "--versus", metavar="B", nargs="+", help="the runs to compare with, if each side has several seeds"
    )
    parser.add_argument("--picture", metavar="FILE", type=Path, help="draw both under corruption, as PNG")
    return parser
