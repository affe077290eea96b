"""What the metrics cost, as ratios measured side by side, printed as JSON.

    python examples/benchmarks/metrics.py --output metrics.json

Everything runs on one thread and is timed in processor seconds, so that other work on the machine does not count.

- `stream`: ECE of 1,000,000 x 100 float32 logits in batches by `CalibrationStream`, against torchmetrics and, if it
  can be imported, netcal (which has no batches: it gets the concatenated probabilities, and softmax and concatenation
  are part of its time). Contestants take turns on the same data; a ratio is the median over rounds.
- `stream_extra_memory_mb`: how far the stream raises the peak of a process's resident memory, by number of samples.
- `module`: the `evaluate` module on 10,000 x 1000 logits, against the plain function and against a module with the
  same features that leaves the rows to `evaluate`; and how far each raises the peak of the resident memory.
- `bootstrap`: all metrics with intervals and noise floor, and a paired comparison, for 10,000 samples and 2,000
  resamples, against a loop over resamples.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import datasets
import evaluate
import numpy as np
import torch
from side_by_side import machine, median_ratio, publish, resident_kilobytes, take_turns
from torchmetrics.classification import MulticlassCalibrationError

from macs_hf import metrics


try:
    from netcal.metrics import ECE as NetcalECE
except ImportError:
    NetcalECE = None

CLASSES, BATCH = 100, 10_000


def batches(count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield (
            3 * torch.randn(BATCH, CLASSES, generator=generator),
            torch.randint(0, CLASSES, (BATCH,), generator=generator),
        )


def ours(data: list) -> float:
    stream = metrics.CalibrationStream()
    for logits, labels in data:
        stream.update(logits, labels)
    return stream.ece()


def torchmetrics_ece(data: list) -> float:
    metric = MulticlassCalibrationError(CLASSES, n_bins=15, validate_args=False)
    for logits, labels in data:
        metric.update(logits, labels)
    return float(metric.compute())


def netcal_ece(data: list) -> float:
    probabilities = torch.cat([logits.softmax(1) for logits, _ in data]).numpy()
    return float(NetcalECE(15).measure(probabilities, torch.cat([labels for _, labels in data]).numpy()))


def over(baseline: str, seconds: dict[str, list[float]]) -> dict[str, float]:
    """Median over rounds of (contestant / baseline)."""
    others = {name: values for name, values in seconds.items() if name != baseline}
    return {name: median_ratio(values, seconds[baseline], digits=3) for name, values in others.items()}


def stream(count: int, rounds: int) -> dict:
    data = list(batches(count))
    contestants = {"ours": ours, "torchmetrics": torchmetrics_ece}
    contestants |= {"netcal": netcal_ece} if NetcalECE else {}
    scores = {name: function(data) for name, function in contestants.items()}  # also warms up
    seconds = take_turns(
        {name: lambda f=function: f(data) for name, function in contestants.items()}, rounds, warmup=0
    )
    return {
        "samples": count * BATCH,
        "classes": CLASSES,
        "ece": scores,
        "seconds": {name: round(statistics.median(values), 3) for name, values in seconds.items()},
        "times_slower_than_ours": over("ours", seconds),
    }


def module_contestants() -> dict[str, Callable[[], object]]:
    class Naive(evaluate.Metric):
        def _info(self) -> evaluate.MetricInfo:
            rows = datasets.Sequence(datasets.Value("float32"))
            features = datasets.Features({"predictions": rows, "references": datasets.Value("int64")})
            return evaluate.MetricInfo("", "", features)

        def _compute(self, predictions: list, references: list) -> dict[str, float]:
            return {"ece": metrics.expected_calibration_error(predictions, references)}

    rng = np.random.default_rng(0)
    logits, labels = 3 * rng.standard_normal((10_000, 1000), dtype=np.float32), rng.integers(0, 1000, 10_000)
    ece, naive = evaluate.load(metrics.path("ece")), Naive()

    def in_batches() -> dict[str, float]:
        for start in range(0, len(labels), 500):
            ece.add_batch(predictions=logits[start : start + 500], references=labels[start : start + 500])
        return ece.compute(n_resamples=0)

    return {
        "function": lambda: metrics.expected_calibration_error(logits, labels),
        "compute": lambda: ece.compute(predictions=logits, references=labels, n_resamples=0),
        "add_batch_and_compute": in_batches,
        "compute_with_interval": lambda: ece.compute(predictions=logits, references=labels),
        "left_to_evaluate": lambda: naive.compute(predictions=logits, references=labels),
    }


def module(rounds: int) -> dict:
    contestants = module_contestants()
    seconds = take_turns(contestants, rounds, warmup=0)
    return {
        "samples": 10_000,
        "classes": 1000,
        "seconds": {name: round(statistics.median(values), 3) for name, values in seconds.items()},
        "times_the_function": over("function", seconds),
        "extra_memory_mb": {name: memory(name) for name in contestants},
    }


def bootstrap(rounds: int) -> dict:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(10_000, 10, generator=generator)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
    a, b = metrics.SampleRows.from_logits(logits, labels), metrics.SampleRows.from_logits(logits / 2, labels)

    def loop(resamples: int = 200) -> None:
        rng = np.random.default_rng(0)
        for _ in range(resamples):
            drawn = rng.integers(0, len(a), len(a))
            metrics.calibration_error(a.confidence[drawn], a.correct[drawn])
            for column in (a.nll, a.brier, a.margin, a.correct):
                column[drawn].mean()

    contestants = {"measure": lambda: metrics.measure(a), "compare": lambda: metrics.compare(a, b), "loop": loop}
    seconds = take_turns(contestants, rounds, warmup=0)
    seconds["loop"] = [10 * value for value in seconds["loop"]]  # it ran a tenth of the resamples
    return {
        "samples": 10_000,
        "resamples": 2000,
        "seconds": {name: round(statistics.median(values), 3) for name, values in seconds.items()},
        "times_measure": over("measure", seconds),
        "verdict_of_temperature_2": {name: c.verdict for name, c in metrics.compare(b, a).items()},
    }


def peak() -> float:
    """The most resident memory so far, in MB."""
    return resident_kilobytes() / 1024


def memory(what: str) -> float:
    """MB by which `what` raises the peak of a process of its own: a contestant of `module`, or a number of batches."""
    output = subprocess.check_output([sys.executable, __file__, "--memory", what], text=True)
    return round(float(output), 1)


def memory_here(what: str) -> float:
    if not what.isdigit():
        run = module_contestants()[what]
        before = peak()
        run()
        return peak() - before
    stream = metrics.CalibrationStream()
    for i, (logits, labels) in enumerate(batches(int(what))):
        if i == 1:  # the first batch is there to fill caches and to make room for the data itself
            before = peak()
        stream.update(logits, labels)
    return peak() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=100, help=f"batches of {BATCH} samples")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--memory", help="only print the extra memory of this, in MB")
    args = parser.parse_args()
    if args.memory:
        print(memory_here(args.memory))
        return
    torch.set_num_threads(1)
    results = {
        "stream": stream(args.batches, args.rounds),
        "stream_extra_memory_mb": {str(n * BATCH): memory(str(n)) for n in (args.batches // 10, args.batches)},
        "module": module(args.rounds),
        "bootstrap": bootstrap(args.rounds),
        "machine": machine(),
        "versions": {
            name: version(name)
            for name in ("torch", "numpy", "evaluate", "datasets", "torchmetrics", *(["netcal"] if NetcalECE else []))
        },
    }
    publish(results, args.output)


if __name__ == "__main__":
    main()
