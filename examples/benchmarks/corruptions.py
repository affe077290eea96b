"""Throughput of the corruptions on one CPU thread, printed as JSON.

    python examples/benchmarks/corruptions.py --output corruptions.json

Ratios are against recorded figures of the public generators (one quiet core; CIFAR-C's scripts at 32 pixels,
imagecorruptions at 224, where the types that fail on current libraries were fixed), and against a forward pass of a
ResNet-50, which is timed in turns with the corruptions.
"""

import statistics
from statistics import fmean

import timm
import torch
from harness import arguments, publish, take_turns
from torch import Tensor

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES, corrupt, frost_source


# Images per second, recorded, in the order of CORRUPTIONS.
REFERENCE = {
    32: (5722, 2538, 4418, 3048, 47, 606, 275, 493, 133, 1208, 1171, 7499, 887, 13391, 3695, 6196, 3903, 2159, 1301),
    224: (213, 74, 270, 221, 0.77, 127, 8.5, 74, 101, 263, 36, 359, 48, 2478, 1166, 148, 191, 152, 32),
}
REFERENCE_FULL_32 = 2004  # CPU seconds of 19 x 5 x 10,000 in one run
NETWORK = "resnet50"


def natural_images(count: int, size: int) -> Tensor:
    """Smooth random colours with a little grain: cheaper to make than photographs and as hard to corrupt."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic").clamp(0, 1) * 235
    return (smooth + torch.rand(count, 3, size, size, generator=generator) * 20).to(torch.uint8)


def measure(size: int, count: int, params: str, rounds: int) -> tuple[dict[str, float], float]:
    """CPU seconds per image of each corruption, mean over severities, and of a forward pass of the network."""
    images, network = natural_images(count, size), timm.create_model(NETWORK).eval()
    batch = torch.rand(4, 3, size, size)
    contestants = {
        (name, severity): lambda n=name, s=severity: corrupt(images, n, s, params=params)
        for name in CORRUPTIONS
        for severity in SEVERITIES
    }
    with torch.inference_mode():
        seconds = take_turns(contestants | {NETWORK: lambda: network(batch)}, rounds)
    each = {key: statistics.median(values) / count for key, values in seconds.items()}
    times = {name: fmean(each[name, severity] for severity in SEVERITIES) for name in CORRUPTIONS}
    return times, each[NETWORK] * count / len(batch)


def beside(times: dict[str, float], size: int) -> dict:
    """Our images per second beside the recorded ones; a mean time counts every corruption once."""
    reference = dict(zip(CORRUPTIONS, REFERENCE[size], strict=True))
    return {
        "images_per_second": {name: round(1 / value, 1) for name, value in times.items()},
        "reference_images_per_second": reference,
        "times_faster": {name: round(1 / value / reference[name], 2) for name, value in times.items()},
        "times_faster_on_the_mean_time": round(fmean(1 / r for r in reference.values()) / fmean(times.values()), 1),
    }


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--images_32", type=int, default=1020, help="Images per corruption and severity at 32 pixels.")
    parser.add_argument("--images_224", type=int, default=14, help="Images per corruption and severity at 224 pixels.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    small, _ = measure(32, args.images_32, "cifar", args.rounds)
    large, forward = measure(224, args.images_224, "imagenet", args.rounds)
    full = 10_000 * len(SEVERITIES) * sum(small.values())
    report = {
        "frost": frost_source(),
        "32": {"params": "cifar"} | beside(small, 32),
        "32_full_benchmark": {"seconds": round(full, 1), "times_faster": round(REFERENCE_FULL_32 / full, 1)},
        "224": {"params": "imagenet"} | beside(large, 224),
        "224_beside_a_network": {"network": NETWORK, "share": round(fmean(large.values()) / forward, 3)},
    }
    publish(report, args.output, "timm")


if __name__ == "__main__":
    main()
