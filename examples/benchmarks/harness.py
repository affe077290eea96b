"""What the benchmarks share: contestants that take turns in one process, their ratios, and the JSON of a result.

Whatever else the machine does hits all contestants alike, so ratios within a round are what counts, and not seconds.
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


Seconds = dict[str, list[float]]


def take_turns(
    contestants: dict[str, Callable[[], object]],
    rounds: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> Seconds:
    """
    Seconds of each contestant in each round.

    The order is shuffled in each round, since a contestant inherits the caches and the heap of the one before. Rounds
    of warm-up do not count. Ctrl-C ends the measurement with the rounds that are complete.
    """
    measured: list[dict[str, float]] = []
    order = random.Random(0)
    try:
        for round_ in range(-warmup, rounds):
            seconds = {}
            for name in order.sample(list(contestants), len(contestants)):
                start = clock()
                contestants[name]()
                seconds[name] = clock() - start
            if round_ >= 0:
                measured.append(seconds)
    except KeyboardInterrupt:
        if not measured:
            raise
    return {name: [seconds[name] for seconds in measured] for name in contestants}


def over(seconds: Seconds, base: str, digits: int = 4) -> dict[str, float]:
    """The time of each contestant over that of `base` in the same round, median over rounds."""
    return {name: round(statistics.median(found), digits) for name, found in ratios(seconds, base).items()}


def ends(seconds: Seconds, base: str) -> dict[str, tuple[float, float]]:
    """About 95 % for these medians, from the order of the values alone: the rank of a median is binomial."""
    found = {}
    for name, ordered in ratios(seconds, base).items():
        reach = 0.98 * len(ordered) ** 0.5
        low, high = math.floor(len(ordered) / 2 - reach), math.ceil(len(ordered) / 2 + reach)
        found[name] = round(ordered[max(low, 0)], 4), round(ordered[min(high, len(ordered) - 1)], 4)
    return found


def ratios(seconds: Seconds, base: str) -> dict[str, list[float]]:
    """Those of all rounds, in ascending order."""
    return {
        name: sorted(a / b for a, b in zip(values, seconds[base], strict=True))
        for name, values in seconds.items()
        if name != base
    }


def medians(seconds: Seconds, digits: int = 3) -> dict[str, float]:
    return {name: round(statistics.median(values), digits) for name, values in seconds.items()}


def arguments(description: str | None, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="Turns of each contestant that count.")
    parser.add_argument("--output", type=Path, help="Also write the JSON here.")
    return parser


def publish(report: dict[str, Any], output: Path | None, *libraries: str) -> None:
    """Print the report as JSON, with the machine and the versions, and write it if a file is named."""
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    versions = {name: version(name) for name in ("macs-hf", "torch", *libraries)}
    text = json.dumps(report | {"machine": machine, "versions": versions}, indent=2)
    print(text)
    if output is not None:
        output.write_text(text + "\n")
