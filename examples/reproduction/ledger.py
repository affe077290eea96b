"""The reproduction ledger: every number of the paper, ours with seeds and interval, and what became of it.

`reproduced`: within the tolerance of the paper's number, or the 95 % interval of the difference over seeds holds 0
and is no wider than three tolerances either way. `not reproduced`: anything else that was run on two seeds or more.
"""

import math
from typing import Literal, NamedTuple

from .aggregate import Estimate, estimate, estimated, student
from .grid import Grid, Setting, settings_of
from .paper import Number
from .quantities import Run


PAPER_SEEDS = 3
Status = Literal["reproduced", "not reproduced", "not run", "cannot be"]


class Entry(NamedTuple):
    """A number of the paper, ours, the 95 % interval of ours minus the paper's, and the status with its reason."""

    number: Number
    ours: Estimate | None
    low: float | None
    high: float | None
    status: Status
    reason: str


def ledger(numbers: list[Number], groups: dict[Setting, list[Run]], grid: Grid) -> list[Entry]:
    return [entry(number, groups, grid) for number in numbers]


def entry(number: Number, groups: dict[Setting, list[Run]], grid: Grid) -> Entry:
    if number.cannot:
        return Entry(number, None, None, None, "cannot be", number.cannot)
    ours = ours_of(number, groups, grid)
    if ours is None:
        return Entry(number, None, None, None, "not run", "no report has it")
    if ours.std is None:
        return Entry(number, ours, None, None, "not run", "one seed; an interval over seeds needs two")
    off = ours.mean - number.value
    half = student(ours.n - 1) * math.sqrt(ours.std**2 / ours.n + (number.std or 0.0) ** 2 / PAPER_SEEDS)
    low, high = off - half, off + half
    if abs(off) <= number.tolerance:
        return Entry(number, ours, low, high, "reproduced", f"within {number.tolerance:g}")
    if low <= 0 <= high and half <= 3 * number.tolerance:
        return Entry(number, ours, low, high, "reproduced", "the interval of the difference holds 0")
    reason = "the interval is too wide to tell" if low <= 0 <= high else f"off by {off:+.3g}"
    return Entry(number, ours, low, high, "not reproduced", reason)


def ours_of(number: Number, groups: dict[Setting, list[Run]], grid: Grid) -> Estimate | None:
    """What our runs say for a number of the paper, over the seeds."""
    key = number.setting
    if number.of == "value":
        return estimated(groups, key, number.metric)
    if number.of == "mean":
        rows = settings_of(grid, number.table) if number.table in grid.tables else []
        parts = [
            estimated(groups, row, number.metric) for row in rows if row.method == key.method and row[3] == key.changes
        ]
        if not parts or None in parts:
            return None
        # The models are not a sample; what varies is the seed.
        std = None if any(p.std is None for p in parts) else math.sqrt(sum(p.std**2 for p in parts)) / len(parts)
        return Estimate(sum(p.mean for p in parts) / len(parts), std, min(p.n for p in parts))
    if number.of == "count":
        return None
    base = key._replace(method=number.baseline)
    return _per_seed(number, groups, key, base)


def _per_seed(number: Number, groups: dict[Setting, list[Run]], key: Setting, base: Setting) -> Estimate | None:
    pairs = []
    for run in groups.get(key, ()):
        twin = [other for other in groups.get(base, ()) if other.seed == run.seed]
        found = [estimated({r.setting: [r]}, r.setting, number.metric) for r in (run, *twin)]
        if twin and None not in found:
            pairs.append((found[0].mean, found[1].mean))
    if not pairs:
        return None
    combine = {
        "difference": lambda a, b: a - b,
        "relative": lambda a, b: 100 * (a - b) / b,
        "ratio": lambda a, b: a / b,
    }[number.of]
    return estimate([combine(a, b) for a, b in pairs])
