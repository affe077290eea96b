"""Throughput of the corruptions on one CPU thread, as JSON.

    python examples/benchmarks/corruptions.py [--output model_cards/benchmarks/corruptions.json]

Times are CPU seconds of the process, so that other work on the machine disturbs them less. Ratios are against recorded
figures of the public generators (one quiet core; CIFAR-C's scripts at 32 pixels, imagecorruptions at 224, where the
types that fail on current libraries were fixed) and, if `imagecorruptions` can be imported, against its working types
timed in this run.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, geometric_mean

import numpy as np
import timm
import torch
from side_by_side import machine, publish
from torch import Tensor

from macs_hf.corruptions import CORRUPTIONS, SEVERITIES, corrupt, frost_source


# Images per second, recorded.
REFERENCE_32 = dict(
    zip(
        CORRUPTIONS,
        (5722, 2538, 4418, 3048, 47, 606, 275, 493, 133, 1208, 1171, 7499, 887, 13391, 3695, 6196, 3903, 2159, 1301),
        strict=True,
    )
)
REFERENCE_224 = dict(
    zip(
        CORRUPTIONS,
        (213, 74, 270, 221, 0.77, 127, 8.5, 74, 101, 263, 36, 359, 48, 2478, 1166, 148, 191, 152, 32),
        strict=True,
    )
)
REFERENCE_FULL_32 = 2004  # CPU seconds of 19 x 5 x 10,000 in one run; its wall time was 2,105 s


def seconds(function: Callable[[], object], repeats: int) -> float:
    """The least CPU time of some calls, after one that fills the caches."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def natural_images(count: int, size: int) -> Tensor:
    """Smooth random colours with a little grain: cheaper to make than photographs and as hard to corrupt."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic").clamp(0, 1) * 235
    return (smooth + torch.rand(count, 3, size, size, generator=generator) * 20).to(torch.uint8)


def ours(size: int, count: int, params: str, repeats: int) -> dict[str, list[float]]:
    """Seconds per image of each type at each severity."""
    images = natural_images(count, size)
    times = {}
    for name in CORRUPTIONS:
        times[name] = [
            seconds(lambda n=name, s=severity: corrupt(images, n, s, params=params), repeats) / count
            for severity in SEVERITIES
        ]
    return times


def beside(times: dict[str, list[float]], reference: dict[str, float]) -> dict:
    """Our images per second beside the recorded ones; a mean time counts every type once."""
    rate = {name: 1 / fmean(values) for name, values in times.items()}
    ratio = {name: rate[name] / reference[name] for name in CORRUPTIONS}
    our_mean, their_mean = fmean(1 / r for r in rate.values()), fmean(1 / reference[name] for name in CORRUPTIONS)
    return {
        "images_per_second": {name: round(value, 1) for name, value in rate.items()},
        "reference_images_per_second": reference,
        "times_faster": {name: round(value, 2) for name, value in ratio.items()},
        "mean_milliseconds_per_image": round(1e3 * our_mean, 4),
        "times_faster_on_the_mean_time": round(their_mean / our_mean, 1),
        "times_faster_mean_of_ratios": round(fmean(ratio.values()), 1),
        "times_faster_geometric_mean_of_ratios": round(geometric_mean(ratio.values()), 1),
    }


def side_by_side(size: int, count: int, times: dict[str, list[float]]) -> dict | str:
    """imagecorruptions (ImageNet-C's severities) timed in this run; types that raise are named with their error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from imagecorruptions import corrupt as corrupt_one
    except ImportError as error:
        return f"imagecorruptions cannot be imported: {error}"
    images = natural_images(count, size).movedim(1, -1).numpy()
    working, broken = {}, {}
    for name in CORRUPTIONS:
        try:
            per_severity = []
            for severity in SEVERITIES:

                def run(name: str = name, severity: int = severity) -> None:
                    for image in images:
                        corrupt_one(np.array(image), corruption_name=name, severity=severity)

                per_severity.append(seconds(run, 1) / count)
        except Exception as error:
            broken[name] = f"{type(error).__name__}: {error}"
            continue
        their_mean, our_mean = fmean(per_severity), fmean(times[name])
        working[name] = {
            "images_per_second": round(1 / their_mean, 1),
            "times_faster": round(their_mean / our_mean, 2),
        }
    return {"working": working, "broken": broken}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images_32", type=int, default=1020, help="images per cell at 32 pixels")
    parser.add_argument("--images_224", type=int, default=14, help="images per cell at 224 pixels")
    parser.add_argument("--repeats", type=int, default=2, help="timed calls per cell, of which the best counts")
    parser.add_argument("--output", type=Path, help="where to write the JSON; it is always printed")
    args = parser.parse_args()
    torch.set_num_threads(1)

    small = ours(32, args.images_32, "cifar", args.repeats)
    large = ours(224, args.images_224, "imagenet", args.repeats)
    resnet, batch = timm.create_model("resnet50").eval(), torch.rand(4, 3, 224, 224)
    with torch.inference_mode():
        forward = seconds(lambda: resnet(batch), args.repeats) / len(batch)
    full = 10_000 * sum(sum(values) for values in small.values())
    mean_large = fmean(fmean(values) for values in large.values())
    report = {
        "machine": machine() | {"torch": torch.__version__},
        "clock": "CPU seconds of the process, best of repeats",
        "frost": frost_source(),
        "32": {"params": "cifar"} | beside(small, REFERENCE_32),
        "32_full_benchmark": {
            "images": 19 * 5 * 10_000,
            "seconds": round(full, 1),
            "how": f"extrapolated from {args.images_32} images per cell",
            "reference_seconds": REFERENCE_FULL_32,
            "times_faster": round(REFERENCE_FULL_32 / full, 1),
        },
        "224": {"params": "imagenet"} | beside(large, REFERENCE_224),
        "224_beside_a_network": {
            "resnet50_forward_milliseconds_per_image": round(1e3 * forward, 2),
            "corruption_milliseconds_per_image": round(1e3 * mean_large, 2),
            "share": round(mean_large / forward, 3),
        },
        "224_imagecorruptions_in_this_run": side_by_side(224, 2, large),
    }
    publish(report, args.output, indent=1)


if __name__ == "__main__":
    main()
