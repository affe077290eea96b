"""What ECE costs beside other libraries, in CPU time on one thread, printed as JSON.

    python examples/benchmarks/metrics.py --output metrics.json

1,000,000 x 100 float32 logits in batches by `CalibrationStream`, against torchmetrics and, if it can be imported,
netcal (which has no batches: it gets the concatenated probabilities, and softmax and concatenation are part of its
time).
"""

from functools import partial

import torch
from harness import arguments, medians, over, publish, take_turns
from torchmetrics.classification import MulticlassCalibrationError

from macs_hf import metrics


try:
    from netcal.metrics import ECE as NetcalECE
except ImportError:
    NetcalECE = None

CLASSES, BATCH = 100, 10_000


Batches = list[tuple[torch.Tensor, torch.Tensor]]


def stream_ece(data: Batches) -> float:
    stream = metrics.CalibrationStream()
    for logits, labels in data:
        stream.update(logits, labels)
    return stream.ece()


def torchmetrics_ece(data: Batches) -> float:
    metric = MulticlassCalibrationError(CLASSES, n_bins=15, validate_args=False)
    for logits, labels in data:
        metric.update(logits, labels)
    return float(metric.compute())


def netcal_ece(data: Batches) -> float:
    probabilities = torch.cat([logits.softmax(1) for logits, _ in data]).numpy()
    return float(NetcalECE(15).measure(probabilities, torch.cat([labels for _, labels in data]).numpy()))


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
    peers = {"torchmetrics": torchmetrics_ece} | ({"netcal": netcal_ece} if NetcalECE else {})
    found = {name: partial(function, data) for name, function in ({"ours": stream_ece} | peers).items()}
    seconds = take_turns(found, args.rounds)
    report = {"samples": args.batches * BATCH, "ece": {name: measure() for name, measure in found.items()}}
    report |= {"seconds": medians(seconds), "times_slower_than_ours": over(seconds, "ours", 3)}
    publish({"stream": report}, args.output, *peers)


if __name__ == "__main__":
    main()
