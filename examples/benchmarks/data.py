"""How fast images reach the network, as ratios to the usual ways, printed as JSON.

    python examples/benchmarks/data.py --output data.json

Each scenario compares a `DataLoader` over `ImageDataset` with another pipeline on the same images, in CPU time.

- `train_32`: 32-pixel PNGs, against the pipeline of transformers' image-classification example (`with_transform`,
  which gets whole batches): the first pass of a new `ImageDataset`, and a later one, which finds decoded pixels in
  memory
- `train_photo`, `train_12_megapixels`: JPEGs of 500 x 375 and of 4000 x 3000 pixels to 224, against the same
- `evaluate_32`: the image processor on batches, against one call per image; first and later pass as above
- `augmix_32`: crop, flip and two AugMix views, against torchvision's transforms image by image
"""

import io
from collections.abc import Callable, Iterator
from typing import Any

import datasets
import numpy as np
import torch
from datasets import ClassLabel, Features
from harness import arguments, medians, over, publish, ratios, take_turns
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2
from transformers import ViTImageProcessor

from macs_hf.data import EvalTransform, ImageDataset, TrainTransform


BATCH_SIZE = 128


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


def ours(rows: datasets.Dataset, transform: Any) -> DataLoader:
    return DataLoader(ImageDataset(rows, "image", "label", transform, "train"), batch_size=BATCH_SIZE, shuffle=True)


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

    return DataLoader(rows.with_transform(train_transforms), batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)


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


def augmix_one_by_one(image: Image.Image) -> dict[str, torch.Tensor]:
    view = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()])(v2.functional.pil_to_tensor(image))
    normalize = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)])
    mixed = torch.stack([normalize(v2.AugMix(all_ops=False)(view)) for _ in range(2)])
    return {"pixel_values": normalize(view), "augmix_pixel_values": mixed}


def read(loader: DataLoader) -> None:
    for _ in loader:
        pass


def passes(name: str, rows: datasets.Dataset, transform: Any, other: DataLoader) -> dict[str, Callable[[], None]]:
    """A new dataset in each round, and one that has been read before."""
    before = ours(rows, transform)
    read(before)
    return {
        f"{name}_first_pass": lambda: read(ours(rows, transform)),
        f"{name}_later_pass": lambda: read(before),
        "other": lambda: read(other),
    }


def scenarios(scale: float) -> Iterator[tuple[str, int, dict[str, Callable[[], None]]]]:
    def count(images: int) -> int:
        return max(4, round(images * scale))

    processor, small = vit_processor(32), image_rows(count(2048), 32, 32, "PNG", different=512)
    example = example_pipeline(small, 32)
    yield "train_32", len(small), passes("train_32", small, TrainTransform(processor), example)
    for name, images, size in (("train_photo", 128, (500, 375)), ("train_12_megapixels", 8, (4000, 3000))):
        rows = image_rows(count(images), *size, "JPEG", different=images // 2)
        transform, other = TrainTransform(vit_processor(224)), example_pipeline(rows, 224)
        contestants = {name: lambda r=rows, t=transform: read(ours(r, t)), "other": lambda o=other: read(o)}
        yield name, len(rows), contestants
    one_by_one = DataLoader(ImageByImage(small, EvalTransform(processor)), batch_size=BATCH_SIZE, shuffle=True)
    yield "evaluate_32", len(small), passes("evaluate_32", small, EvalTransform(processor), one_by_one)
    fewer = small.select(range(count(256)))
    batched = ours(fewer, TrainTransform(processor, augmix=True))
    read(batched)
    one_by_one = DataLoader(ImageByImage(fewer, augmix_one_by_one), batch_size=BATCH_SIZE, shuffle=True)
    yield "augmix_32", len(fewer), {"augmix_32": lambda: read(batched), "other": lambda: read(one_by_one)}


def main() -> None:
    parser = arguments(__doc__, rounds=15)
    parser.add_argument("--scale", type=float, default=1.0, help="Fewer (or more) images per pass.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    found = {}
    for name, images, contestants in scenarios(args.scale):
        seconds = take_turns(contestants, args.rounds)
        found[name] = {
            "images_per_second": {key: round(images / value, 1) for key, value in medians(seconds, 9).items()},
            "ratio": {key: round(1 / value, 2) for key, value in over(seconds, "other", 9).items()},
            "ratio_range": {
                key: [round(1 / values[-1], 2), round(1 / values[0], 2)]
                for key, values in ratios(seconds, "other").items()
            },
        }
    report = {"settings": {"rounds": args.rounds, "scale": args.scale, "batch_size": BATCH_SIZE}, "scenarios": found}
    report["memory"] = {"images": 50_000, "cached_pixels_megabytes": round(50_000 * 3 * 32 * 32 / 1024**2, 1)}
    publish(report, args.output, "torchvision", "transformers", "datasets", "pillow")


if __name__ == "__main__":
    main()
