"""What ECE costs beside other libraries, in CPU time on one thread, printed as JSON.

    python examples/benchmarks/metrics.py --output metrics.json

1,000,000 x 100 float32 logits in batches, reduced to rows, which have NLL, Brier score and margin too, against
torchmetrics' ECE.
"""

from functools import partial

import torch
from harness import arguments, medians, over, publish, take_turns
from torchmetrics.classification import MulticlassCalibrationError

from macs_hf import metrics


CLASSES, BATCH = 100, 10_000


Batches = list[tuple[torch.Tensor, torch.Tensor]]


def rows_ece(data: Batches) -> float:
    rows = [metrics.sample_rows(logits, labels) for logits, labels in data]
    return metrics.summarize(metrics.SampleRows.from_array(torch.cat(rows).numpy()))["ece"]


def torchmetrics_ece(data: Batches) -> float:
    metric = MulticlassCalibrationError(CLASSES, n_bins=15, validate_args=False)
    for logits, labels in data:
        metric.update(logits, labels)
    return float(metric.compute())


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--batches", type=int, default=100, help=f"Batches of {BATCH} samples.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(0)
    data = []
    for _ in range(args.batches):
        logits = 3 * torch.randn(BATCH, CLASSES, generator=draws)
        data.append((logits, torch.randint(0, CLASSES, (BATCH,), generator=draws)))
    found = {"ours": partial(rows_ece, data), "torchmetrics": partial(torchmetrics_ece, data)}
    seconds = take_turns(found, args.rounds)
    report = {"samples": args.batches * BATCH, "ece": {name: measure() for name, measure in found.items()}}
    report |= {"seconds": medians(seconds), "times_slower_than_ours": over(seconds, "ours", 3)}
    publish({"rows": report}, args.output, "torchmetrics")


if __name__ == "__main__":
    main()
