"""A grid as data: tables of cells, each cell one run of `examples/train.py`.

A grid file (YAML) has `settings` (flags of every run), `datasets` and `models` (a name each, with the flags it stands
for), `seeds`, and `tables`: the columns a table shows and the `cells` it needs, as products of lists. A cell that two
tables need is one cell. `keep_rows` names the settings whose rows `--collect` keeps; all, if it is not there.
"""

import dataclasses
import itertools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from macs_hf import METHODS
from macs_hf.objective.objective import Objective


AXES = ("dataset", "model", "method")
DEFAULTS = {f.name: f.default for f in dataclasses.fields(Objective)} | {"data_fraction": 1.0}
# Changes that two settings share when they are compared: they are about the data, not about the method.
SHARED = ("data_fraction", "max_train_samples", "num_train_epochs", "variant", "corrupted")
# A cell with this change is a trained cell that is measured again: see `original_size.py`.
MEASURED_AGAIN = ("corrupted", "at_original_size")
NO_FLAGS = ("variant", MEASURED_AGAIN[0])
FIELDS = {"title", "columns", "cells", "versus"}


class Setting(NamedTuple):
    """What the seeds of a cell have in common; `changes` is what it sets besides the method, sorted."""

    dataset: str
    model: str
    method: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        return ", ".join([self.method, *(f"{name}={value}" for name, value in self.changes)])

    @property
    def name(self) -> str:
        changes = (f"{name}_{value}" for name, value in self.changes)
        return "-".join(re.sub(r"[^\w.]+", "_", part) for part in (*self[:3], *changes))


def shared(key: Setting) -> tuple[tuple[str, Any], ...]:
    """The changes that a setting has in common with those it is compared with."""
    return tuple(change for change in key.changes if change[0] in SHARED)


def setting(dataset: str, model: str, method: str, **changes: Any) -> Setting:
    """A setting without what the method sets anyway, so that equal runs are equal cells."""
    usual = DEFAULTS | METHODS.get(method, {})
    unusual = {name: value for name, value in changes.items() if name not in usual or usual[name] != value}
    return Setting(dataset, model, method, tuple(sorted(unusual.items())))


@dataclass(frozen=True)
class Cell:
    """One run: what it is, and the flags of `examples/train.py` that make it."""

    setting: Setting
    seed: int
    flags: dict[str, Any] = field(compare=False)

    @property
    def name(self) -> str:
        return f"{self.setting.name}-seed{self.seed}"

    @property
    def trained(self) -> "Cell":
        """The cell whose weights this one has: itself, unless it is measured again."""
        changes = tuple(change for change in self.setting.changes if change != MEASURED_AGAIN)
        return dataclasses.replace(self, setting=self.setting._replace(changes=changes))


@dataclass(frozen=True)
class Table:
    """Which cells a table needs, which columns it shows, and against what the other rows are compared."""

    title: str
    columns: tuple[str, ...]
    cells: tuple[dict[str, Any], ...]
    versus: str | None = None


@dataclass(frozen=True)
class Grid:
    """A grid file, read and checked."""

    name: str
    settings: dict[str, Any]
    datasets: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    seeds: tuple[int, ...]
    tables: dict[str, Table]
    figures: dict[str, dict[str, Any]]
    variants: dict[str, dict[str, Any]]
    claims: tuple[dict[str, Any], ...]
    cost: dict[str, Any]
    keep_rows: tuple[str, ...] | None = None

    @property
    def selections(self) -> tuple[str, ...]:
        """What `--table` can name."""
        return (*self.tables, *self.figures)


def load_grid(path: str | Path) -> Grid:
    """Read a grid file; what is unknown or missing in it is named."""
    data = yaml.safe_load(Path(path).read_text())
    known = {f.name for f in dataclasses.fields(Grid)}
    if unknown := sorted(set(data) - known):
        raise ValueError(f"{path}: unknown keys {unknown}; a grid has {sorted(known)}.")
    tables = {}
    for name, table in data["tables"].items():
        if set(table) - FIELDS or not {"title", "columns", "cells"} <= set(table):
            raise ValueError(f"{path}: table {name!r} has {sorted(table)}; it needs title, columns, cells [, versus].")
        tables[name] = Table(table["title"], tuple(table["columns"]), tuple(table["cells"]), table.get("versus"))
    grid = Grid(
        name=data["name"],
        settings=data.get("settings", {}),
        datasets=data["datasets"],
        models=data["models"],
        seeds=tuple(data["seeds"]),
        tables=tables,
        figures=data.get("figures", {}),
        variants=data.get("variants", {}),
        claims=tuple(data.get("claims", ())),
        cost=data["cost"],
        keep_rows=tuple(data["keep_rows"]) if "keep_rows" in data else None,
    )
    for name, figure in grid.figures.items():
        if figure["table"] not in tables:
            raise ValueError(f"{path}: figure {name!r} is made from table {figure['table']!r}, which does not exist.")
    names = {row.name for table in tables for row in settings_of(grid, table)}
    if unknown := sorted(set(grid.keep_rows or ()) - names):
        raise ValueError(f"{path}: keep_rows has {unknown[0]!r}, which no table has.")
    return grid


def cells_of(grid: Grid, names: list[str] | None = None, seeds: list[int] | None = None) -> list[Cell]:
    """
    The cells of some tables and figures (all, if not given), each once, seed by seed so that early ones compare, and
    what is measured again after what is trained.
    """
    unknown = [name for name in names or () if name not in grid.selections]
    if unknown:
        raise ValueError(f"There is no table {unknown[0]!r} in grid {grid.name!r}, only {', '.join(grid.selections)}.")
    tables = dict.fromkeys(grid.figures[name]["table"] if name in grid.figures else name for name in names or ())
    found = {}
    for name in tables or grid.tables:
        for block in grid.tables[name].cells:
            found |= {cell.name: cell for cell in _product(grid, name, block, seeds)}
    if seeds is not None and not found:
        raise ValueError(
            f"seeds={seeds}: none of these is a seed of what was chosen; the grid's are {list(grid.seeds)}."
        )
    return sorted(found.values(), key=lambda cell: (cell.seed, cell.trained != cell))


def settings_of(grid: Grid, table: str) -> list[Setting]:
    """The rows of a table, in the order the grid has them."""
    cells = (cell for block in grid.tables[table].cells for cell in _product(grid, table, block, None))
    return list(dict.fromkeys(cell.setting for cell in cells))


def _product(grid: Grid, table: str, block: dict[str, Any], seeds: list[int] | None) -> list[Cell]:
    if missing := [axis for axis in AXES if axis not in block]:
        raise ValueError(f"Table {table!r}: a block of cells lacks {missing[0]!r}: {block}.")
    ordered = {axis: block[axis] for axis in AXES} | block  # the order of the file otherwise
    axes = {name: value if isinstance(value, list) else [value] for name, value in ordered.items()}
    own_seeds = axes.pop("seed", list(grid.seeds))
    chosen = own_seeds if seeds is None else [seed for seed in own_seeds if seed in seeds]
    cells = []
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        for axis, table_of in (("dataset", grid.datasets), ("model", grid.models), ("method", METHODS)):
            if point[axis] not in table_of:
                raise ValueError(f"Table {table!r}: {axis} {point[axis]!r} is not one of {', '.join(table_of)}.")
        variant = grid.variants[point["variant"]] if "variant" in point else {}
        flags = grid.settings | grid.datasets[point["dataset"]] | grid.models[point["model"]] | variant
        usual = {name for name in point.keys() - AXES if name in flags and flags[name] == point[name]}
        key = setting(**{name: value for name, value in point.items() if name not in usual})
        flags |= {name: value for name, value in key.changes if name not in NO_FLAGS} | {"method": key.method}
        cells += [Cell(key, seed, flags | {"seed": seed}) for seed in chosen]
    return cells


def expand(value: Any) -> Any:
    """A string with its environment variables filled in."""
    if not isinstance(value, str):
        return value
    expanded = os.path.expandvars(value)
    if unset := re.search(r"\$\{?(\w+)", expanded):
        raise ValueError(f"{value!r} needs the environment variable {unset[1]}: set it to the folder that is meant.")
    return expanded


def shard_of(cells: list[Cell], shard: str | None) -> list[Cell]:
    """Every n-th cell from the i-th on, for `shard` "i/n" with i from 1 to n."""
    if shard is None:
        return cells
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"shard={shard!r} must be i/n with 1 <= i <= n, such as 1/8.")
    return cells[int(match[1]) - 1 :: int(match[2])]
