"""What evaluation costs over the bare forward passes, printed as JSON.

    python examples/benchmarks/evaluation.py --output evaluation.json

- The default metrics: `MaCSTrainer.evaluate` beside the same model over the same batches in memory.
- A report: `evaluate_checkpoint` (temperature, guarantees, rows, intervals, margins; what `macs-hf calibrate` runs) on
  PNG images, beside a loop that reads the same images and runs the network on them; and, as
  `ratio_over_images_in_memory`, beside as many forward passes on batches in memory.
- The corruption benchmark: `evaluate_checkpoint` with the spread design, beside as many forward passes.

Both sides run in turn, in one process; the ratio is the median over rounds.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from PIL import Image
from side_by_side import median_ratio, publish, take_turns
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import TimmWrapperConfig, TimmWrapperForImageClassification, TrainingArguments, ViTImageProcessor

from macs_hf import MaCSTrainer, evaluate_checkpoint
from macs_hf.data.images import EvalTransform, ImageDataset


class Images(Dataset):
    """Random images in memory."""

    def __init__(self, size: int, image_size: int, num_labels: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(size, 3, image_size, image_size, generator=generator)
        self.labels = torch.randint(num_labels, (size,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def contestants(name: str, args: argparse.Namespace, output_dir: str) -> dict[str, Callable[[], object]]:
    config = TimmWrapperConfig(architecture=name, num_labels=args.num_labels)
    model = TimmWrapperForImageClassification(config).eval()
    data = Images(args.samples, args.image_size, args.num_labels)
    settings = TrainingArguments(
        output_dir, per_device_eval_batch_size=args.batch_size, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = MaCSTrainer(model=model, args=settings)

    def bare() -> None:
        with torch.inference_mode():
            for batch in DataLoader(data, batch_size=args.batch_size, collate_fn=trainer.data_collator):
                model(pixel_values=batch["pixel_values"])

    return {"bare": bare, "evaluate": lambda: trainer.evaluate(data)}


def stored_images(count: int) -> datasets.Dataset:
    """Random PNG images of 32 pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    columns = {"image": [Image.fromarray(image) for image in pixels], "label": [i % 10 for i in range(count)]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    return datasets.Dataset.from_dict(columns, features=features)


def report_contestants(
    name: str, args: argparse.Namespace, output_dir: str, test: int, held_out: int, **options: Any
) -> dict[str, Callable[[], object]]:
    """`evaluate_checkpoint` beside as many forward passes, with and without reading the images."""
    model = TimmWrapperForImageClassification(TimmWrapperConfig(architecture=name, num_labels=10)).eval()
    processor = ViTImageProcessor(size={"height": args.report_size, "width": args.report_size})
    splits = {"test": stored_images(test), "validation": stored_images(held_out) if held_out else None}
    settings = TrainingArguments(
        output_dir, per_device_eval_batch_size=args.batch_size, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = MaCSTrainer(model=model, args=settings, processing_class=processor)
    passes: list[int] = []

    def count(module: nn.Module, inputs: tuple, kwargs: dict[str, torch.Tensor]) -> None:
        passes.append(len(kwargs["pixel_values"] if kwargs else inputs[0]))

    def unread() -> dict[str, ImageDataset | None]:
        return {
            split: stored and ImageDataset(stored, "image", "label", EvalTransform(processor), split)
            for split, stored in splits.items()
        }

    def evaluate() -> None:
        passes.clear()
        data = unread()
        hook = model.register_forward_pre_hook(count, with_kwargs=True)
        facts = {"model": name, "dataset": "random", "split": "test"}
        evaluate_checkpoint(trainer, data["test"], data["validation"], **options, **facts)
        hook.remove()

    def bare() -> None:
        batch = torch.rand(args.batch_size, 3, args.report_size, args.report_size)
        with torch.inference_mode():
            for size in passes:
                model(pixel_values=batch[:size])

    def read() -> None:
        left = len(passes)
        with torch.inference_mode():
            for data in filter(None, unread().values()):
                for batch in DataLoader(data, batch_size=args.batch_size, collate_fn=trainer.data_collator):
                    model(pixel_values=batch["pixel_values"])
                    left -= 1
            batch = torch.rand(args.batch_size, 3, args.report_size, args.report_size)
            for size in passes[len(passes) - left :]:  # of perturbed images, for the margins
                model(pixel_values=batch[:size])

    evaluate()  # counts the passes
    return {"bare": bare, "read": read, "evaluate": evaluate}


def benchmark(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    seconds = take_turns(runs, rounds)
    result = {f"{key}_seconds": round(statistics.median(values), 3) for key, values in seconds.items()}
    base = "read" if "read" in runs else "bare"
    result["ratio"] = median_ratio(seconds["evaluate"], seconds[base])
    if base == "read":
        result["ratio_over_images_in_memory"] = median_ratio(seconds["evaluate"], seconds["bare"])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of evaluation over bare forward passes, as JSON.")
    parser.add_argument("--models", nargs="*", default=["resnet18", "mobilenetv3_small_100"])
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--image_size", type=int, default=128)
    parser.add_argument("--num_labels", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--report_model", default="tf_efficientnet_lite0")
    parser.add_argument("--report_size", type=int, default=64)
    parser.add_argument("--report_rounds", type=int, default=3)
    parser.add_argument("--test_samples", type=int, default=4096)
    parser.add_argument("--held_out_samples", type=int, default=1024)
    parser.add_argument("--corruption_samples", type=int, default=19 * 64)
    parser.add_argument("--output", type=Path, help="Also write the JSON here.")
    args = parser.parse_args()

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        models = {name: benchmark(contestants(name, args, folder), args.rounds) for name in args.models}
        sizes = (args.test_samples, args.held_out_samples)
        report = benchmark(report_contestants(args.report_model, args, folder, *sizes), args.report_rounds)
        options = {"corruptions": "auto", "corruption_design": "spread", "margin_samples": 64}
        corrupted = report_contestants(args.report_model, args, folder, args.corruption_samples, 0, **options)
        corrupted.pop("read")
        corruptions = benchmark(corrupted, args.report_rounds)
    worst = max((model["ratio"] for model in models.values()), default=None)
    settings = {key: value for key, value in vars(args).items() if key != "output"}
    clock = "CPU seconds of the process, one thread"
    result = {"clock": clock, "settings": settings, "models": models, "worst_ratio": worst, "at_most": 1.05}
    result["report"] = {args.report_model: report | {"at_most": 1.05}}
    result["corruptions"] = {args.report_model: corruptions | {"at_most": 1.1}}
    publish(result, args.output)


if __name__ == "__main__":
    main()
