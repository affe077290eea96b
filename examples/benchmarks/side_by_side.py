"""What the benchmarks share: contestants that take turns, the memory of a process, and the JSON of a result."""

import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch


def take_turns(
    contestants: dict[str, Callable[[], object]],
    rounds: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
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


def ratios(mine: Sequence[float], base: Sequence[float]) -> list[float]:
    """Mine over base, round by round."""
    return [a / b for a, b in zip(mine, base, strict=True)]


def median_ratio(mine: Sequence[float], base: Sequence[float], digits: int = 4) -> float:
    return round(statistics.median(ratios(mine, base)), digits)


def resident_kilobytes(key: str = "VmHWM", pid: int | str = "self") -> int:
    """
    Resident memory of a process, on Linux: `VmRSS` now, or `VmHWM` at its peak.

    `getrusage` would not do for the peak: it starts with that of the parent.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)[key].split()[0])


def machine() -> dict[str, Any]:
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "threads": torch.get_num_threads(),
    }


def publish(report: dict[str, Any], output: Path | None, indent: int = 2) -> None:
    """Print the report as JSON and, if a file is named, write it there too."""
    text = json.dumps(report, indent=indent)
    print(text)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n")
