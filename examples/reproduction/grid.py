"""A grid as data: tables of cells, each cell one run of `examples/train.py`; how settings are called.

A grid file (YAML) has `settings` (flags of every run), `datasets` and `models` (a name each, with the flags it stands
for), `seeds`, and `tables`: the columns a table shows and the `cells` it needs, as products of lists. A cell that two
tables need is one cell. `keep_rows` names the settings whose rows `--collect` keeps; all, if it is not there.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Sequence
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
    columns: Sequence[str]
    cells: Sequence[dict[str, Any]]
    versus: str | None = None


@dataclass(frozen=True)
class Grid:
    """A grid file, read and checked; `changes` and `phrases` are what claims refer to."""

    name: str
    datasets: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    seeds: Sequence[int]
    tables: dict[str, Table]
    settings: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    claims: Sequence[dict[str, Any]] = ()
    keep_rows: Sequence[str] | None = None
    changes: Sequence[dict[str, Any]] = ()
    phrases: Sequence[dict[str, Any]] = ()


def load_grid(path: str | Path) -> Grid:
    """Read a grid file; what is unknown or missing in it is named."""
    data = yaml.safe_load(Path(path).read_text())
    phrases = {phrase: entry for entry in data.get("phrases", ()) for phrase in entry["said"]}
    data["claims"] = [claim for entry in data.get("claims", ()) for claim in _claims_of(entry, phrases)]
    try:
        grid = Grid(**data | {"tables": {name: Table(**table) for name, table in data["tables"].items()}})
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None
    names = {row.name for table in grid.tables for row in settings_of(grid, table)}
    if unknown := sorted(set(grid.keep_rows or ()) - names):
        raise ValueError(f"{path}: keep_rows has {unknown[0]!r}, which no table has.")
    return grid


def _claims_of(entry: dict[str, Any], phrases: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One claim for each of the phrases that it says: they stand for the {} in its text."""
    if "says" not in entry:
        return [entry]
    claims = []
    for phrase in entry["says"]:
        if phrase not in phrases:
            raise ValueError(f"{entry['claim']!r} says {phrase!r}, which is not one of the grid's phrases.")
        claim = entry | phrases[phrase] | {"claim": entry["claim"].format(phrase)}
        claims.append({name: value for name, value in claim.items() if name not in ("says", "said")})
    return claims


def cells_of(grid: Grid, names: list[str] | None = None, seeds: list[int] | None = None) -> list[Cell]:
    """
    The cells of some tables (all, if not given), each once, seed by seed so that early ones compare, and what is
    measured again after what is trained.
    """
    if unknown := [name for name in names or () if name not in grid.tables]:
        raise ValueError(f"There is no table {unknown[0]!r} in grid {grid.name!r}, only {', '.join(grid.tables)}.")
    found = {}
    for name in names or grid.tables:
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
    axes = {name: listed(value) for name, value in ordered.items()}
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


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def shard_of(cells: list[Cell], shard: str | None) -> list[Cell]:
    """Every n-th cell from the i-th on, for `shard` "i/n" with i from 1 to n."""
    if shard is None:
        return cells
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"shard={shard!r} must be i/n with 1 <= i <= n, such as 1/8.")
    return cells[int(match[1]) - 1 :: int(match[2])]


def expand(value: Any) -> Any:
    """A path with its environment variables filled in, from any folder; anything else as it is."""
    if not isinstance(value, str) or "$" not in value:
        return value
    expanded = os.path.abspath(os.path.expandvars(value))
    if unset := re.search(r"\$\{?(\w+)", expanded):
        raise ValueError(f"{value!r} needs the environment variable {unset[1]}: set it to the folder that is meant.")
    return expanded


# ---- How a setting is called, in every table, picture and page ----

QUARTER = "consistency_fraction=0.25, perturbation_space=pixel"
RECOMMENDED = f"consistency_only, {QUARTER}"
BOTH_TERMS = "macs_pixel, consistency_fraction=0.25"
CONTROL = f"two_view_ce, {QUARTER}"
SAME_IMAGES = f"{CONTROL}, perturbed_share=0.2"
IN_PLACE = "perturb_augment, augment_fraction=0.5, perturbation_space=pixel"
NAMES = {
    "ce": "cross-entropy",
    RECOMMENDED: "recommended",
    "macs": "MaCS (paper)",
    BOTH_TERMS: "recommended + margin",
    "macs, consistency_fraction=0.25": "MaCS (paper) on a quarter",
    "macs_pixel": "MaCS, pixel noise",
    "consistency_only": "consistency only",
    "margin_only": "margin only",
    "macs_augmix": "MaCS + AugMix",
    "two_view_ce": "two-view cross-entropy",
    "two_view_ce, consistency_fraction=0.25": "two-view cross-entropy on a quarter",
    SAME_IMAGES: "cross-entropy, same images",
    CONTROL: "cross-entropy, same images, half of the weight",
    "perturb_augment": "perturbation as augmentation",
    IN_PLACE: "perturbation as augmentation, on a half",
    "label_smoothing": "label smoothing",
    "mixup": "MixUp",
    "augmix": "AugMix",
    "focal": "focal loss",
    "mbls": "MbLS",
}
# Changes that a name does not have, behind it. Empty: the heading of the table says it.
BESIDES = {
    "corruptions": "",
    "corrupted": "",
    "max_train_samples": "{} images",
    "num_train_epochs": "{} epochs",
    "max_steps": "{} steps",
    "learning_rate": "learning rate {}",
    "lambda_consistency": "weight {}",
    "ema_decay": "averaged weights",
}


def name_of(label: str) -> str:
    """The name of a setting, or of two in a difference or a ratio.

    ```python
    >>> name_of("consistency_only, consistency_fraction=0.25, num_train_epochs=16, perturbation_space=pixel")
    'recommended, 16 epochs'
    >>> name_of("macs, noise_std=0.2 minus ce")
    'MaCS (paper), noise_std 0.2 minus cross-entropy'

    ```
    """
    for between in (" minus ", " over "):
        if between in label:
            return between.join(map(name_of, label.split(between)))
    method, *changes = label.split(", ")
    pairs = [change.split("=") for change in changes]
    own = ", ".join([method, *(f"{name}={value}" for name, value in pairs if name not in BESIDES)])
    besides = [BESIDES[name].format(value) for name, value in pairs if name in BESIDES]
    if own not in NAMES:
        own, besides = method, [f"{name} {value}" for name, value in pairs if name not in BESIDES] + besides
    return ", ".join([NAMES.get(own, own), *filter(None, besides)])
