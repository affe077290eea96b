"""Pre-registered claims, written before their runs: confirmed, refuted, or undecided by this data.

A claim says in which range a difference between two settings lies. Its p-value is the smallest alpha whose interval,
at the level 1 - alpha, lies wholly in the range. Claims of one `family` share an error rate of 5 %, by Holm's
correction. A claim is confirmed if its corrected p-value is at most 5 %, and refuted if the 95 % interval lies wholly
outside of the range; otherwise it is undecided. One seed a side decides nothing about methods. A claim is about the
seeds of the grid, unless it names its own `seeds`; then it waits for all of them.

A claim about the time of a step is compared with `model_cards/benchmarks/training.json`, where methods take turns in
one process; the runs of a grid share their machine, and are no measure of time.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .grid import Grid, Setting, listed, setting, settings_of
from .results import METRICS, Difference, Groups, difference


NEEDED = {"claim", "metric", "method", "range"}
KNOWN = NEEDED | {"versus", "versus_changes", "changes", "dataset", "model", "family", "seeds"}
ALPHA = 0.05
STEP_TIMES = Path(__file__).parents[2] / "model_cards" / "benchmarks" / "training.json"


class Verdict(NamedTuple):
    """A claim on one dataset and model, what was found, its p-value corrected within its family, and the outcome."""

    claim: str
    family: str
    metric: str
    dataset: str
    model: str
    pair: str
    found: Difference | None
    p_value: float | None
    outcome: Literal["confirmed", "refuted", "undecided", "one seed", "not run"]


def verdicts(grid: Grid, groups: Groups) -> list[Verdict]:
    """Every claim of the grid on every dataset and model that it names and that the grid has for its method."""
    rows = {row[:3] for table in grid.tables for row in settings_of(grid, table)}
    found = [
        (claim, verdict)
        for claim in map(_checked, grid.claims)
        for verdict in (_timed(claim) if claim["metric"] == "overhead" else _measured(grid, claim, groups, rows))
    ]
    families: dict[str, list[int]] = {}
    for position, (_, verdict) in enumerate(found):
        if verdict.p_value is not None:
            families.setdefault(verdict.family, []).append(position)
    corrected = {}
    for positions in families.values():
        values = holm([found[position][1].p_value for position in positions])
        corrected |= dict(zip(positions, values, strict=True))
    return [
        _judged(claim, verdict._replace(p_value=corrected.get(position)))
        for position, (claim, verdict) in enumerate(found)
    ]


def holm(p_values: list[float]) -> list[float]:
    """P-values corrected for their number, by Holm's step-down method.

    ```python
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    ```
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, position in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        corrected[position] = largest
    return corrected


def _measured(grid: Grid, claim: dict[str, Any], groups: Groups, rows: set[tuple[str, str, str]]) -> Iterator[Verdict]:
    seeds = claim.get("seeds", grid.seeds)
    groups = {key: [run for run in runs if run.seed in seeds] for key, runs in groups.items()}
    changes = claim.get("changes", {})
    datasets, models = listed(claim.get("dataset", [*grid.datasets])), listed(claim.get("model", [*grid.models]))
    for place in itertools.product(datasets, models):
        if (*place, claim["method"]) not in rows:
            continue
        a = setting(*place, claim["method"], **changes)
        b = setting(*place, claim.get("versus", "ce"), **claim.get("versus_changes", changes))

        def at(level: float, a: Setting = a, b: Setting = b) -> Difference | None:
            return difference(groups, a, b, claim["metric"], level)

        found = at(1 - ALPHA)
        if found is not None and "seeds" in claim and found.n < len(seeds):
            found = None
        yield _verdict(claim, *place, f"{a.label} minus {b.label}", found, at)


def step_times(model: str, label: str) -> tuple[float, float, float] | None:
    """Time of a training step over that of plain `Trainer` and its interval; the weight of images costs nothing."""
    times = json.loads(STEP_TIMES.read_text())["models"].get(model, {"time_ratio": {}})
    label = re.sub(r", perturbed_share=[\d.]+", "", label)
    if label not in times["time_ratio"]:
        return None
    return times["time_ratio"][label], *times["time_ratio_interval"][label]


def _timed(claim: dict[str, Any]) -> Iterator[Verdict]:
    """The claim on every model of the benchmark of training steps that has its setting."""
    label = setting("", "", claim["method"], **claim.get("changes", {})).label
    for model in json.loads(STEP_TIMES.read_text())["models"]:
        if times := step_times(model, label):
            found = Difference(*times, 0, "undecided")
            yield _verdict(claim, "benchmark", model, f"{label} over ce", found)


def _verdict(
    claim: dict[str, Any],
    dataset: str,
    model: str,
    pair: str,
    found: Difference | None,
    at: Callable[[float], Difference] | None = None,
) -> Verdict:
    p_value = None
    # The interval of an ECE comes from one set of resamples, and decides nothing that is corrected.
    if found is not None and found.low is not None and found.n > 1 and METRICS[claim["metric"]].compared is None:
        p_value = _p_value(claim["range"], at)
    family = claim.get("family", claim["claim"])
    return Verdict(claim["claim"], family, claim["metric"], dataset, model, pair, found, p_value, "undecided")


def _p_value(limits: tuple[float, float], at: Callable[[float], Difference]) -> float:
    """The smallest alpha at which the interval lies in the range, to a thousandth of its size; 1 if none does."""
    small, large = 1e-9, 0.5
    if not _inside(at(1 - large), limits):
        return 1.0
    while large / small > 1.001:
        middle = (small * large) ** 0.5
        small, large = (small, middle) if _inside(at(1 - middle), limits) else (middle, large)
    return large


def _judged(claim: dict[str, Any], verdict: Verdict) -> Verdict:
    found, (low, high) = verdict.found, claim["range"]
    if found is None:
        return verdict._replace(outcome="not run")
    if found.low is None or found.n == 1:
        return verdict._replace(outcome="one seed")
    held = _inside(found, claim["range"]) if verdict.p_value is None else verdict.p_value <= ALPHA
    if METRICS[verdict.metric].compared is not None and 0 in claim["range"] and found.verdict == "undecided":
        held = False  # whether 0 is excluded depends on how the interval was made
    if held:
        return verdict._replace(outcome="confirmed")
    if found.high < low or found.low > high:
        return verdict._replace(outcome="refuted")
    return verdict._replace(outcome="undecided")


def _inside(found: Difference, limits: tuple[float, float]) -> bool:
    return limits[0] < found.low and found.high < limits[1]


def _checked(claim: dict[str, Any]) -> dict[str, Any]:
    """The claim, with both ends of its range as numbers."""
    if set(claim) - KNOWN or NEEDED - set(claim) or claim["metric"] not in METRICS or len(claim["range"]) != 2:
        raise ValueError(f"The claim {claim} needs {sorted(NEEDED)}, a known metric and a range of two ends.")
    low, high = claim["range"]
    return claim | {"range": (-math.inf if low is None else low, math.inf if high is None else high)}
