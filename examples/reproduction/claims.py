"""Claims of the paper against our runs: held, not held, or not decided by this data.

A claim says in which range a difference between two settings lies. It held if the whole 95 % interval lies in the
range, did not hold if none of it does, and is not decided otherwise. An outcome of one seed is marked as such.

A claim about the time of a step is held against `model_cards/benchmarks/training.json`, where methods take turns in
one process; the runs of a grid share their machine, and are no measure of time.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .aggregate import Difference, difference
from .grid import AXES, Grid, Setting, setting
from .quantities import METRICS, Run


NEEDED = {"claim", "metric", "method", "range"}
KNOWN = NEEDED | {"versus", "versus_changes", "changes", "dataset", "model"}
STEP_TIMES = Path(__file__).parents[2] / "model_cards" / "benchmarks" / "training.json"


class Verdict(NamedTuple):
    """A claim on one dataset and model, what was found, and whether it held."""

    claim: str
    metric: str
    dataset: str
    model: str
    pair: str
    found: Difference | None
    outcome: Literal["held", "not held", "held, one seed", "not held, one seed", "not decided", "not run"]


def verdicts(grid: Grid, groups: dict[Setting, list[Run]]) -> list[Verdict]:
    """Every claim of the grid on every dataset and model it names."""
    return [
        verdict
        for claim in map(_checked, grid.claims)
        for verdict in (_timed(claim) if claim["metric"] == "overhead" else _measured(grid, claim, groups))
    ]


def _measured(grid: Grid, claim: dict[str, Any], groups: dict[Setting, list[Run]]) -> Iterator[Verdict]:
    for dataset in _listed(claim.get("dataset", list(grid.datasets))):
        for model in _listed(claim.get("model", list(grid.models))):
            if _exists(grid, claim, dataset, model):
                a, b = _pair(claim, dataset, model)
                found = difference(groups, a, b, claim["metric"])
                pair = f"{a.label} minus {b.label}"
                yield Verdict(claim["claim"], claim["metric"], dataset, model, pair, found, _outcome(found, claim))


def _timed(claim: dict[str, Any]) -> Iterator[Verdict]:
    """The claim on every model of the benchmark of training steps; `method` is a name in it."""
    for model, times in json.loads(STEP_TIMES.read_text())["models"].items():
        low, high = times["time_ratio_interval"][claim["method"]]
        found = Difference(times["time_ratio"][claim["method"]], low, high, 0, "undecided")
        pair = f"{claim['method']} over ce"
        yield Verdict(claim["claim"], "overhead", "benchmark", model, pair, found, _outcome(found, claim))


def _outcome(found: Difference | None, claim: dict[str, Any]) -> str:
    if found is None:
        return "not run"
    if found.low is None:
        return "not decided"
    low, high = (float("-inf"), float("inf"))
    if claim["range"][0] is not None:
        low = float(claim["range"][0])
    if claim["range"][1] is not None:
        high = float(claim["range"][1])
    # A difference in ECE below the noise floor is none, whatever its interval.
    below_floor = claim["metric"].startswith("ece") and 0 in claim["range"] and found.verdict == "tie"
    inside, outside = found.low > low and found.high < high, found.high < low or found.low > high
    if below_floor or not (inside or outside):
        return "not decided"
    # Then the interval is over test images alone: it is about two networks, not yet about two methods.
    return ("held" if inside else "not held") + (", one seed" if found.n == 1 else "")


def _pair(claim: dict[str, Any], dataset: str, model: str) -> tuple[Setting, Setting]:
    changes = claim.get("changes", {})
    a = setting(dataset, model, claim["method"], **changes)
    return a, setting(dataset, model, claim.get("versus", "ce"), **claim.get("versus_changes", changes))


def _exists(grid: Grid, claim: dict[str, Any], dataset: str, model: str) -> bool:
    """Whether the grid has a block for the claim's method on this dataset and model at all."""
    wanted = dict(zip(AXES, (dataset, model, claim["method"]), strict=True))
    blocks = (block for table in grid.tables.values() for block in table.cells)
    return any(all(wanted[axis] in _listed(block[axis]) for axis in AXES) for block in blocks)


def _checked(claim: dict[str, Any]) -> dict[str, Any]:
    if set(claim) - KNOWN or NEEDED - set(claim) or claim["metric"] not in METRICS or len(claim["range"]) != 2:
        raise ValueError(f"The claim {claim} needs {sorted(NEEDED)}, a known metric and a range of two ends.")
    return claim


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
