"""Claims of the paper against our runs: held, not held, or not decided by this data.

A claim says in which range a difference (or ratio) between two settings lies. It held if the whole 95 % interval lies
in the range, did not hold if none of it does, and is not decided otherwise. An outcome of one seed is marked as such.
"""

from typing import Any, Literal, NamedTuple

from .aggregate import Difference, difference, estimate, overheads
from .grid import AXES, Grid, Setting, setting
from .quantities import METRICS, Run


NEEDED = {"claim", "metric", "method", "range"}
TOLD = NEEDED | {"versus", "versus_changes", "changes", "dataset", "model"}


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
        _verdict(claim, dataset, model, groups)
        for claim in map(_checked, grid.claims)
        for dataset in _listed(claim.get("dataset", list(grid.datasets)))
        for model in _listed(claim.get("model", list(grid.models)))
        if _exists(grid, claim, dataset, model)
    ]


def _verdict(claim: dict[str, Any], dataset: str, model: str, groups: dict[Setting, list[Run]]) -> Verdict:
    a, b = _pair(claim, dataset, model)
    ratio = claim["metric"] == "overhead"
    found = _overhead(groups, a) if ratio else difference(groups, a, b, claim["metric"])
    pair = f"{a.label} over ce" if ratio else f"{a.label} minus {b.label}"
    return Verdict(claim["claim"], claim["metric"], dataset, model, pair, found, _outcome(found, claim))


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


def _overhead(groups: dict[Setting, list[Run]], key: Setting) -> Difference | None:
    values = list(overheads(groups, key).values())
    if not values:
        return None
    found = estimate(values)
    if found.half is None:
        return Difference(found.mean, None, None, 1, "undecided")
    return Difference(found.mean, found.mean - found.half, found.mean + found.half, found.n, "undecided")


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
    if set(claim) - TOLD or NEEDED - set(claim) or claim["metric"] not in METRICS or len(claim["range"]) != 2:
        raise ValueError(f"The claim {claim} needs {sorted(NEEDED)}, a known metric and a range of two ends.")
    return claim


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
