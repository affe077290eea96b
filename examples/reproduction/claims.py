"""Claims against our runs: held, not held, or not decided by this data.

A claim says in which range a difference between two settings lies. Its p-value is the smallest alpha whose interval,
at the level 1 - alpha, lies wholly in the range. Claims of one `family` share an error rate of 5 %, by Holm's
correction. A claim held if its corrected p-value is at most 5 %; it did not hold if the 95 % interval lies wholly
outside of the range; otherwise it is not decided. One seed a side decides nothing about methods. A claim is about the
seeds of the grid, unless it names its own `seeds`; then it waits for all of them.

A claim about the time of a step is held against `model_cards/benchmarks/training.json`, where methods take turns in
one process; the runs of a grid share their machine, and are no measure of time.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import stdev
from typing import Any, Literal, NamedTuple

from .grid import AXES, Grid, Setting, setting
from .results import METRICS, Difference, Groups, difference, half_width, measured


NEEDED = {"claim", "metric", "method", "range"}
KNOWN = NEEDED | {"versus", "versus_changes", "changes", "dataset", "model", "family", "seeds"}
ALPHA = 0.05
MOST_SEEDS = 100
STEP_TIMES = Path(__file__).parents[2] / "model_cards" / "benchmarks" / "training.json"


class Verdict(NamedTuple):
    """
    A claim on one dataset and model, what was found, its p-value corrected within its family, the outcome, and for one
    that is not decided the number of seeds that would decide it, as the only claim, if the difference stayed what it
    is: those that it has, if only the correction stands in the way.
    """

    claim: str
    family: str
    metric: str
    dataset: str
    model: str
    pair: str
    found: Difference | None
    p_value: float | None
    outcome: Literal["held", "not held", "not decided", "one seed", "not run"]
    by_seed: tuple[float, ...] = ()
    seeds_needed: int | None = None


def verdicts(grid: Grid, groups: Groups) -> list[Verdict]:
    """Every claim of the grid on every dataset and model it names."""
    found = [
        (claim, verdict)
        for claim in map(_checked, grid.claims)
        for verdict in (_timed(claim) if claim["metric"] == "overhead" else _measured(grid, claim, groups))
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


def _measured(grid: Grid, claim: dict[str, Any], groups: Groups) -> Iterator[Verdict]:
    seeds = claim.get("seeds", grid.seeds)
    groups = {key: [run for run in runs if run.seed in seeds] for key, runs in groups.items()}
    for dataset in _listed(claim.get("dataset", list(grid.datasets))):
        for model in _listed(claim.get("model", list(grid.models))):
            if _exists(grid, claim, dataset, model):
                a, b = _pair(claim, dataset, model)
                pair = f"{a.label} minus {b.label}"

                def at(level: float, a: Setting = a, b: Setting = b) -> Difference | None:
                    return difference(groups, a, b, claim["metric"], level)

                of_a, of_b = (measured(groups, side, claim["metric"]) for side in (a, b))
                by_seed = tuple(of_a[seed] - of_b[seed] for seed in sorted(of_a.keys() & of_b.keys()))
                found = at(1 - ALPHA) if "seeds" not in claim or len(by_seed) == len(seeds) else None
                yield _verdict(claim, dataset, model, pair, found, at)._replace(by_seed=by_seed)


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
    return Verdict(claim["claim"], family, claim["metric"], dataset, model, pair, found, p_value, "not decided")


def _p_value(limits: list[float | None], at: Callable[[float], Difference]) -> float:
    """The smallest alpha at which the interval lies in the range, to a thousandth of its size; 1 if none does."""
    small, large = 1e-9, 0.5
    if not _inside(at(1 - large), limits):
        return 1.0
    while large / small > 1.001:
        middle = (small * large) ** 0.5
        small, large = (small, middle) if _inside(at(1 - middle), limits) else (middle, large)
    return large


def _judged(claim: dict[str, Any], verdict: Verdict) -> Verdict:
    found, low, high = verdict.found, *_ends(claim["range"])
    if found is None:
        return verdict._replace(outcome="not run")
    if found.low is None or found.n == 1:
        return verdict._replace(outcome="one seed")
    held = _inside(found, claim["range"]) if verdict.p_value is None else verdict.p_value <= ALPHA
    if METRICS[verdict.metric].compared is not None and 0 in claim["range"] and found.verdict == "undecided":
        held = False  # whether 0 is excluded depends on how the interval was made
    if held:
        return verdict._replace(outcome="held")
    if found.high < low or found.low > high:
        return verdict._replace(outcome="not held")
    if not verdict.by_seed:
        return verdict._replace(outcome="not decided")
    if verdict.p_value is not None and _inside(found, claim["range"]):
        return verdict._replace(outcome="not decided", seeds_needed=found.n)
    distance = min(abs(found.value - end) for end in (low, high))
    needed = seeds_needed(verdict.by_seed, (found.high - found.low) / 2, distance)
    return verdict._replace(outcome="not decided", seeds_needed=needed)


def seeds_needed(differences: Sequence[float], half: float, distance: float) -> int | None:
    """
    With how many seeds the interval would be shorter than the distance from the difference to the end of the range.

    The interval has a part that shrinks with more seeds, and one that only more test images shrink: what is left of
    the half-width that was found. The spread over seeds and the difference itself come from the same few runs, so the
    number of seeds is a rough one.

    Args:
        differences (`Sequence[float]`): The difference of each seed, two at least.
        half (`float`): Half of the 95 % interval that was found.
        distance (`float`): How far the mean difference is from the nearest end of the claimed range.

    Returns:
        `int`, or `None` if it would take more than 100 seeds, or more test images.

    ```python
    >>> seeds_needed([-1.0, 3.0], half=25.4, distance=1.0)
    34
    >>> seeds_needed([0.9, 1.1], half=5.0, distance=1.0) is None
    True

    ```
    """
    spread = stdev(differences)
    images = max(half**2 - half_width(spread, len(differences)) ** 2, 0.0)
    for seeds in range(len(differences) + 1, MOST_SEEDS + 1):
        if half_width(spread, seeds) ** 2 + images < distance**2:
            return seeds
    return None


def _inside(found: Difference, limits: list[float | None]) -> bool:
    low, high = _ends(limits)
    return low < found.low and found.high < high


def _ends(limits: list[float | None]) -> tuple[float, float]:
    low, high = limits
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


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
