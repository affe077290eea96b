"""What it is worth on a CPU that the commands keep freed memory, printed as JSON.

    OMP_NUM_THREADS=1 python examples/benchmarks/memory.py --output memory.json

Forward passes and training steps of the same networks, with the C library's defaults and after `keep_freed_memory`, in
a new process each, by turns. Times are CPU seconds, the system's included; the ratio is the median over rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from side_by_side import machine, publish, ratios, resident_kilobytes
from torch import nn

from macs_hf.cli.memory import keep_freed_memory


WAYS = ("default", "kept")
IMAGE_SIZE, TRAIN_BATCH, EVAL_BATCH = 64, 32, 256


def measure(name: str, way: str, seconds: float) -> dict[str, float]:
    """CPU seconds per image, and the largest memory, of this process."""
    if way == "kept" and not keep_freed_memory():
        raise RuntimeError("This needs glibc, without settings of malloc in the environment.")
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters())
    train, test = (torch.randn(size, 3, IMAGE_SIZE, IMAGE_SIZE) for size in (TRAIN_BATCH, EVAL_BATCH))
    labels = torch.arange(TRAIN_BATCH) % 10

    def step() -> None:
        nn.functional.cross_entropy(model(train), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.inference_mode()
    def forward() -> None:
        model(test)

    training = _seconds_of(step, seconds) / TRAIN_BATCH
    model.eval()
    return {
        "training": training,
        "evaluation": _seconds_of(forward, seconds) / EVAL_BATCH,
        "megabytes": resident_kilobytes() / 1024,
    }


def _seconds_of(work: Callable[[], None], seconds: float) -> float:
    """CPU seconds of one call, after two that do not count."""
    for _ in range(2):
        work()
    start, calls = time.process_time(), 0
    while time.process_time() - start < seconds:
        work()
        calls += 1
    return (time.process_time() - start) / calls


def compared(name: str, rounds: int, seconds: float) -> dict[str, object]:
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for round_ in range(rounds):
        for way in WAYS if round_ % 2 else reversed(WAYS):
            words = [sys.executable, __file__, "--models", name, "--way", way, "--seconds", str(seconds)]
            output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            found[way].append(json.loads(output))
    result: dict[str, object] = {"rounds": rounds}
    for key in ("training", "evaluation", "megabytes"):
        kept, default = ([run[key] for run in found[way]] for way in reversed(WAYS))
        each = ratios(kept, default)
        result[key] = {"ratio": round(statistics.median(each), 3), "range": [round(min(each), 3), round(max(each), 3)]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory with freed memory kept, over the default, as JSON.")
    parser.add_argument("--models", nargs="+", default=["tf_efficientnet_lite0", "resnet18"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU seconds of each measurement")
    parser.add_argument("--way", choices=WAYS, help="measure one way in this process")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options.models[0], options.way, options.seconds)))
        return
    models = {name: compared(name, options.rounds, options.seconds) for name in options.models}
    sizes = {"image_size": IMAGE_SIZE, "train_batch": TRAIN_BATCH, "eval_batch": EVAL_BATCH}
    publish({"machine": machine(), **sizes, "models": models}, options.output)


if __name__ == "__main__":
    main()
