"""The crossed and the spread design of the corruption benchmark on a real model, at equal forward passes, as JSON.

    python examples/benchmarks/spread_design.py --assets ASSETS --cifar10 CIFAR10 --output spread_design.json

A CIFAR-10 ResNet-20 and a second model, the same with noise on its weights, classify some thousand test images under
all 19 x 5 corruptions. These images are then the population: test sets are drawn from it with replacement, 500 images
seen under every corruption or 9,500 under one each, and for every draw the mean, its standard error and its interval
are those that `evaluate_corruptions` and `compare_corruptions` give. What the means do from draw to draw is the
standard error to hold them against, and the mean of the population is what 95 % of the intervals should cover.

ASSETS holds cifar10_resnet20.safetensors, CIFAR10 a copy of the dataset that `datasets` can load. `--results FILE`
keeps the results image by image, so that the networks run only once.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from datasets import load_dataset
from safetensors.torch import load_file
from side_by_side import publish
from torch import Tensor

from macs_hf.evaluation import ByteImages, evaluate_corruptions
from macs_hf.evaluation.corruption_comparison import paired_difference
from macs_hf.evaluation.corruption_counts import standard_error
from macs_hf.evaluation.corruption_design import spread_assignment
from macs_hf.pixels import PixelStats


sys.path.append(str(Path(__file__).parents[1]))
from corruption_fidelity import ResNet20


CROSSED, SPREAD = 500, 9500
WEIGHT_NOISE = 0.05  # relative to each weight
SCORES = ("accuracy", "nll")


def network(weights: Path, noise: float) -> Callable[[Tensor], Tensor]:
    """Logits of uint8 images; in bfloat16, which takes half of the time."""
    model = ResNet20().eval()
    model.load_state_dict(load_file(weights))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 4:
                parameter.mul_(1 + noise * torch.randn(parameter.shape, generator=generator))
    model = model.bfloat16().to(memory_format=torch.channels_last)
    stats = PixelStats((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

    @torch.inference_mode()
    def forward(images: Tensor) -> Tensor:
        inputs = stats.normalize(images.float() / 255).bfloat16().contiguous(memory_format=torch.channels_last)
        return torch.cat([model(part) for part in inputs.split(50)]).float()

    return forward


def measure(args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Labels, and of both models the results `(images, corruptions)` in accuracy and NLL."""
    data = load_dataset(args.cifar10, split=f"test[:{args.images}]")
    found = {"labels": np.array(data["label"])}
    for model, noise in (("a", 0.0), ("b", WEIGHT_NOISE)):
        forward = network(args.assets / "cifar10_resnet20.safetensors", noise)
        images = ByteImages(data, ("img", "label"))
        table = evaluate_corruptions(forward, images, params="cifar", design="crossed", batch_size=250)
        found[f"clean_{model}"] = np.array(table.clean.accuracy)
        found |= {f"{score}_{model}": table.rows.scores(score, table.rows.names) for score in SCORES}
    return found


def draw(results: dict[str, np.ndarray], design: str, seed: int) -> dict[str, tuple[float, float]]:
    """From one test set: each mean and its standard error."""
    rng = np.random.default_rng(seed)
    picked = rng.integers(0, len(results["labels"]), CROSSED if design == "crossed" else SPREAD)
    seen = np.ones((len(picked), 19), dtype=bool)
    if design == "spread":
        seen = spread_assignment(results["labels"][picked], 19, seed)[:, None] == np.arange(19)
    found = {}
    for score in SCORES:
        of_a, of_b = (np.where(seen, results[f"{score}_{model}"][picked], np.nan) for model in "ab")
        for mean, count in (("mean15", 15), ("mean19", 19)):
            part = of_a[:, :count]
            found[f"{score}, {mean}"] = float(np.nanmean(part, axis=0).mean()), standard_error(part)
            weights = np.full(count, 1 / count)
            difference = paired_difference(part[None], of_b[None, :, :count], weights=weights)
            found[f"{score}, {mean}, paired difference"] = (
                difference.difference,
                (difference.high - difference.low) / 2 / 1.96,
            )
    return found


def truth(results: dict[str, np.ndarray]) -> dict[str, float]:
    means = {}
    for score in SCORES:
        for mean, count in (("mean15", 15), ("mean19", 19)):
            of_a, of_b = (results[f"{score}_{model}"][:, :count].mean() for model in "ab")
            means |= {f"{score}, {mean}": of_a, f"{score}, {mean}, paired difference": of_a - of_b}
    return means


def judge(results: dict[str, np.ndarray], design: str, draws: int) -> dict[str, dict[str, float]]:
    expected = truth(results)
    found = [draw(results, design, seed) for seed in range(draws)]
    report = {}
    for name, value in expected.items():
        means, errors = np.array([one[name] for one in found]).T
        scale = 100 if name.startswith("accuracy") else 1
        report[name] = {
            "population": round(scale * value, 4),
            "bias": round(scale * (means.mean() - value), 4),
            "standard_error_over_draws": round(scale * means.std(ddof=1), 4),
            "standard_error_estimated": round(scale * errors.mean(), 4),
            "coverage_of_95_percent_intervals": round(float((abs(means - value) < 1.96 * errors).mean()), 4),
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, help="folder with cifar10_resnet20.safetensors")
    parser.add_argument("--cifar10", help="CIFAR-10 for datasets.load_dataset: a folder or a Hub id")
    parser.add_argument("--images", type=int, default=4000, help="test images that make up the population")
    parser.add_argument("--draws", type=int, default=2000, help="test sets drawn for each design")
    parser.add_argument("--results", type=Path, help="file to keep the results image by image in, or to read")
    parser.add_argument("--output", type=Path, help="where to write the JSON; it is always printed")
    args = parser.parse_args()
    torch.set_num_threads(1)

    if args.results is not None and args.results.exists():
        results = dict(np.load(args.results))
    else:
        results = measure(args)
        if args.results is not None:
            np.savez_compressed(args.results, **results)
    designs = {design: judge(results, design, args.draws) for design in ("crossed", "spread")}
    report = {
        "model": f"CIFAR-10 ResNet-20 in bfloat16; the second model has {WEIGHT_NOISE:.0%} noise on its weights",
        "clean_accuracy": {model: round(100 * float(results[f"clean_{model}"]), 2) for model in "ab"},
        "population": len(results["labels"]),
        "draws": args.draws,
        "units": "points of accuracy, nats of NLL",
        "crossed": {"images": CROSSED, "forward_passes": CROSSED * 95} | designs["crossed"],
        "spread": {"images": SPREAD, "forward_passes": SPREAD * 5} | designs["spread"],
        "times_smaller_standard_error": {
            name: round(one["standard_error_over_draws"] / designs["spread"][name]["standard_error_over_draws"], 2)
            for name, one in designs["crossed"].items()
        },
    }
    publish(report, args.output, indent=1)


if __name__ == "__main__":
    main()
