"""How fast images reach the network, as ratios to the usual ways, printed as JSON.

    python examples/benchmarks/data.py --output data.json

Each scenario compares a `DataLoader` over `ImageDataset` with another pipeline on the same images, made on the spot.
All contestants run in one process, on one core, and take turns pass by pass in random order, so that whatever else the
machine does hits them alike; a ratio is the median over rounds of (CPU time of the other / our CPU time in the round).

- `train_32`: 32-pixel PNGs, against the pipeline of transformers' image-classification example (`with_transform`,
  which gets whole batches): the first pass of a new `ImageDataset`, and a later one, which finds decoded pixels in
  memory
- `train_photo`, `train_12_megapixels`: JPEGs of 500 x 375 and of 4000 x 3000 pixels to 224, against the same
- `evaluate_32`: the image processor on batches, against one call per image; first and later pass as above
- `augmix_32`: crop, flip and two AugMix views, against torchvision's transforms image by image

Memory (Linux only) is the peak of a process that reads 50,000 training images of 32 pixels twice, with and without
the cache, and of one that only opens the set. It includes the libraries and the pages of the Arrow file.
"""

import argparse
import io
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import PIL
import torch
import torchvision
import transformers
from datasets import ClassLabel, Features
from PIL import Image, ImageOps
from side_by_side import publish, ratios, resident_kilobytes
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2
from transformers import ViTImageProcessor

from macs_hf.data import EvalTransform, ImageDataset, TrainTransform


BATCH_SIZE = 128
# The least that each ratio should be.
TARGETS = {
    "train_32_first_pass": 2.0,
    "train_32_later_pass": 8.0,
    "train_photo": 1.1,
    "train_12_megapixels": 2.0,
    "evaluate_32_first_pass": 3.0,
    "evaluate_32_later_pass": 3.0,
    "augmix_32": 2.0,
}


# ---- Images ----


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Smooth colours with some grain, which compress about as well as photographs do."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (max(4, height // 24), max(4, width // 24), 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    grain = generator.integers(-8, 9, (height, width, 3), dtype=np.int16)
    return Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))


def image_rows(count: int, width: int, height: int, kind: str, different: int) -> datasets.Dataset:
    """A dataset of `count` rows, of which `different` images come again and again."""
    files = []
    for seed in range(min(different, count)):
        file = io.BytesIO()
        picture(width, height, seed).save(file, kind)
        files.append({"bytes": file.getvalue(), "path": None})
    features = Features({"image": datasets.Image(), "label": ClassLabel(num_classes=10)})
    rows = {"image": [files[i % len(files)] for i in range(count)], "label": [i % 10 for i in range(count)]}
    return datasets.Dataset.from_dict(rows, features=features)


def vit_processor(size: int) -> ViTImageProcessor:
    return ViTImageProcessor(size={"height": size, "width": size})


# ---- The other pipelines ----


def example_pipeline(rows: datasets.Dataset, size: int) -> DataLoader:
    """As transformers' run_image_classification.py prepares training images."""
    crop = transforms.RandomCrop(size, padding=size // 8) if size <= 64 else transforms.RandomResizedCrop(size)
    normalize = transforms.Normalize([0.5] * 3, [0.5] * 3)
    augment = transforms.Compose([crop, transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize])

    def train_transforms(batch: dict[str, list]) -> dict[str, list]:
        batch["pixel_values"] = [augment(image.convert("RGB")) for image in batch["image"]]
        return batch

    def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return {
            "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
            "labels": torch.tensor([example["label"] for example in examples]),
        }

    data = rows.with_transform(train_transforms)
    return DataLoader(data, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)


class ImageByImage(Dataset):
    """Rows through a transform of one image."""

    def __init__(self, rows: datasets.Dataset, transform: Callable[[Image.Image], dict[str, Any]]) -> None:
        self.rows = rows.cast_column("image", datasets.Image(decode=False))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        image = Image.open(io.BytesIO(row["image"]["bytes"]))
        return self.transform(ImageOps.exif_transpose(image).convert("RGB")) | {"labels": row["label"]}


class AugMixOneByOne:
    def __init__(self, size: int) -> None:
        self.augment = v2.Compose([v2.RandomCrop(size, padding=size // 8), v2.RandomHorizontalFlip()])
        self.augmix = v2.AugMix(all_ops=False)
        self.normalize = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)])

    def __call__(self, image: Image.Image) -> dict[str, torch.Tensor]:
        view = self.augment(v2.functional.pil_to_tensor(image))
        mixed = torch.stack([self.normalize(self.augmix(view)) for _ in range(2)])
        return {"pixel_values": self.normalize(view), "augmix_pixel_values": mixed}


# ---- Scenarios: for each a function that runs one round, our part named as in TARGETS and the other's `other` ----


def ours(rows: datasets.Dataset, transform: Any) -> DataLoader:
    return DataLoader(ImageDataset(rows, "image", "label", transform, "train"), batch_size=BATCH_SIZE, shuffle=True)


def training(rows: datasets.Dataset, size: int, name: str) -> Iterator[dict[str, Callable[[], DataLoader]]]:
    transform = TrainTransform(vit_processor(size))
    other = example_pipeline(rows, size)
    while True:
        yield {name: lambda: ours(rows, transform), "other": lambda: other}


def passes(
    rows: datasets.Dataset, transform: Any, other: DataLoader, name: str
) -> Iterator[dict[str, Callable[[], DataLoader]]]:
    """A new dataset in each round, and one that has been read before."""
    read = ours(rows, transform)
    for _ in read:
        pass
    while True:
        yield {
            f"{name}_first_pass": lambda: ours(rows, transform),
            f"{name}_later_pass": lambda: read,
            "other": lambda: other,
        }


def scenarios(scale: float) -> Iterator[tuple[str, int, Iterator[dict[str, Callable[[], DataLoader]]]]]:
    def count(images: int) -> int:
        return max(4, round(images * scale))

    small = image_rows(count(2048), 32, 32, "PNG", different=512)
    yield (
        "train_32",
        len(small),
        passes(small, TrainTransform(vit_processor(32)), example_pipeline(small, 32), "train_32"),
    )
    photos = image_rows(count(128), 500, 375, "JPEG", different=64)
    yield "train_photo", len(photos), training(photos, 224, "train_photo")
    huge = image_rows(count(8), 4000, 3000, "JPEG", different=4)
    yield "train_12_megapixels", len(huge), training(huge, 224, "train_12_megapixels")
    processor = vit_processor(32)
    one_by_one = DataLoader(ImageByImage(small, EvalTransform(processor)), batch_size=BATCH_SIZE, shuffle=True)
    yield "evaluate_32", len(small), passes(small, EvalTransform(processor), one_by_one, "evaluate_32")
    fewer = small.select(range(count(256)))
    one_by_one = DataLoader(ImageByImage(fewer, AugMixOneByOne(32)), batch_size=BATCH_SIZE, shuffle=True)
    read = ours(fewer, TrainTransform(processor, augmix=True))
    for _ in read:
        pass

    def rounds() -> Iterator[dict[str, Callable[[], DataLoader]]]:
        while True:
            yield {"augmix_32": lambda: read, "other": lambda: one_by_one}

    yield "augmix_32", len(fewer), rounds()


def measure(images: int, contestants: Iterator[dict[str, Callable[[], DataLoader]]], rounds: int) -> dict[str, Any]:
    """Images per second of CPU time, and ratios within rounds."""
    seconds: dict[str, list[float]] = {}
    order = random.Random(0)
    for round_ in range(-1, rounds):  # the first does not count
        contestant = next(contestants)
        for name in order.sample(list(contestant), len(contestant)):
            start = time.process_time()
            for _ in contestant[name]():
                pass
            if round_ >= 0:
                seconds.setdefault(name, []).append(time.process_time() - start)
    speed = {name: round(images / statistics.median(values), 1) for name, values in seconds.items()}
    faster = {name: ratios(seconds["other"], values) for name, values in seconds.items() if name != "other"}
    return {
        "images_per_second": speed,
        "ratio": {name: round(statistics.median(values), 2) for name, values in faster.items()},
        "ratio_range": {name: [round(min(values), 2), round(max(values), 2)] for name, values in faster.items()},
    }


# ---- Memory ----


def peak_megabytes(cache_bytes: int | None, folder: str) -> float:
    """Of this process: after loading a training set and, unless `cache_bytes` is `None`, reading it twice."""
    rows = datasets.load_from_disk(folder)
    if cache_bytes is not None:
        transform = TrainTransform(vit_processor(32))
        data = ImageDataset(rows, "image", "label", transform, "train", cache_bytes)
        for _ in range(2):
            for _ in DataLoader(data, batch_size=BATCH_SIZE, shuffle=True):
                pass
    return resident_kilobytes() / 1024


def memory(images: int) -> dict[str, float]:
    """Peaks of new processes, which read the images from disk: to make them takes more memory than to read them."""

    def peak(cache_bytes: int | None, folder: str) -> float:
        command = [sys.executable, __file__, "--peak_of", json.dumps([cache_bytes, folder])]
        return round(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout), 1)

    with tempfile.TemporaryDirectory() as folder:
        image_rows(images, 32, 32, "PNG", different=512).save_to_disk(folder)
        return {
            "images": images,
            "cached_pixels_megabytes": round(images * 3 * 32 * 32 / 1024**2, 1),
            "peak_megabytes_with_cache": peak(2_000_000_000, folder),
            "peak_megabytes_without_cache": peak(0, folder),
            "peak_megabytes_before_the_first_image": peak(None, folder),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the image pipelines over the usual ones, as JSON.")
    parser.add_argument("--rounds", type=int, default=15, help="Passes of each contestant that count.")
    parser.add_argument("--scale", type=float, default=1.0, help="Fewer (or more) images per pass.")
    parser.add_argument("--memory_images", type=int, default=50_000)
    parser.add_argument("--peak_of", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="Also write the JSON here.")
    args = parser.parse_args()

    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    if args.peak_of is not None:
        print(peak_megabytes(*args.peak_of))
        return
    found = {name: measure(images, rounds, args.rounds) for name, images, rounds in scenarios(args.scale)}
    reached = {name: ratio for scenario in found.values() for name, ratio in scenario["ratio"].items()}
    report = {
        "note": "Ratios are what counts: images per second depend on the machine and on what else runs on it.",
        "settings": {"rounds": args.rounds, "scale": args.scale, "batch_size": BATCH_SIZE, "threads": 1},
        "versions": {
            "python": platform.python_version(),
            **{module.__name__: module.__version__ for module in (torch, torchvision, transformers, datasets, PIL)},
        },
        "scenarios": found,
        "memory": memory(args.memory_images),
        "targets": {
            name: {"value": reached[name], "at_least": bound, "met": reached[name] >= bound}
            for name, bound in TARGETS.items()
        },
    }
    publish(report, args.output)


if __name__ == "__main__":
    main()
