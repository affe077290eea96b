"""What decoding JPEGs at a smaller scale changes in training, printed as JSON.

    python examples/benchmarks/jpeg_draft.py PHOTOGRAPHS --model tf_efficientnet_lite0 --output jpeg_draft.json

In training a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where the random crop is that much larger than the
network needs (`REDUCING_GAP` in `macs_hf/data/augment.py`); in evaluation never. Here photographs, JPEG files in one
folder, are cut into tiles that do not overlap, of which each is a JPEG again; a random half trains and the other half
tests, and the class of a tile is its photograph. The same network is trained with the same seeds with and without
this; then come

- `pixels`: for one crop of each training tile, made both ways, how far the pixels differ, in levels of 255. As a
  yardstick, how far the same crops differ when they are resized bilinearly in place of bicubically.
- `differences`: with minus without, in every metric, with a paired interval over test tiles and seeds, as
  `macs-hf compare --versus` gives them.

Stored result: 29 photographs of the Debian packages lomiri-wallpapers (all of 16.04, and
Kleiber and Painting-Colors of 20.04) and mate-backgrounds (nature).
"""

import argparse
import itertools
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image, JpegImagePlugin
from side_by_side import publish
from torchvision.transforms import InterpolationMode

from macs_hf.cli.train import main as train
from macs_hf.data import augment
from macs_hf.evaluation.comparison import compare_runs, comparison_table
from macs_hf.randomness import image_keys, uniform
from macs_hf.report.run import load_run


ARMS = {"draft": augment.REDUCING_GAP, "whole": math.inf}
METRICS = ("accuracy", "nll", "brier")


def cut(photographs: Path, tiles: Path, side: int, quality: int) -> None:
    """Tiles of every photograph that has at least four, in an image folder of two splits."""
    chosen = np.random.default_rng(0)
    for path in sorted(photographs.glob("*.jpg")):
        image = Image.open(path).convert("RGB")
        places = [
            (left, top)
            for left in range(0, image.width - side + 1, side)
            for top in range(0, image.height - side + 1, side)
        ]
        if len(places) < 4:
            continue
        for number, place in enumerate(chosen.permutation(len(places))):
            left, top = places[place]
            folder = tiles / ("test" if number % 2 else "train") / path.stem
            folder.mkdir(parents=True, exist_ok=True)
            image.crop((left, top, left + side, top + side)).save(folder / f"{place:03}.jpg", quality=quality)


@contextmanager
def decoding(gap: float) -> Iterator[list[int]]:
    """Inside, JPEGs are decoded smaller by this rule; gives the list of the scales that were used."""
    scales: list[int] = []
    usual_draft, usual_gap = JpegImagePlugin.JpegImageFile.draft, augment.REDUCING_GAP

    def draft(image: Any, *args: Any) -> Any:
        before = image.width
        found = usual_draft(image, *args)
        scales.append(round(before / image.width))
        return found

    JpegImagePlugin.JpegImageFile.draft, augment.REDUCING_GAP = draft, gap
    try:
        yield scales
    finally:
        JpegImagePlugin.JpegImageFile.draft, augment.REDUCING_GAP = usual_draft, usual_gap


def compare_pixels(tiles: Path, size: int) -> dict[str, Any]:
    files = sorted(tiles.glob("train/*/*.jpg"))
    numbers = uniform(image_keys(0, "augmentation", 0, torch.arange(len(files))), (augment.BOX_NUMBERS,)).tolist()
    differences, yardstick = [], []
    for file, draws in zip(files, numbers, strict=True):
        stored = {"bytes": None, "path": str(file)}
        with decoding(ARMS["draft"]) as scales:
            smaller = augment.read_random_crop(stored, (size, size), draws).float()
        if any(scale > 1 for scale in scales):
            with decoding(ARMS["whole"]):
                whole = augment.read_random_crop(stored, (size, size), draws).float()
                bilinear = resized_bilinearly(stored, size, draws).float()
            differences.append((smaller - whole).abs())
            yardstick.append((bilinear - whole).abs())
    found = {}
    for name, values in (("draft", torch.stack(differences)), ("bilinear", torch.stack(yardstick))):
        high = np.percentile(values.numpy(), 99)
        found[name] = {"mean": round(values.mean().item(), 3), "percentile_99": round(float(high), 1)}
    return {"crops": len(files), "decoded_smaller": len(differences), "levels_of_255": found}


def resized_bilinearly(stored: Any, size: int, draws: list[float]) -> torch.Tensor:
    usual = augment.InterpolationMode
    augment.InterpolationMode = type("Mode", (), {"BICUBIC": InterpolationMode.BILINEAR})
    try:
        return augment.read_random_crop(stored, (size, size), draws)
    finally:
        augment.InterpolationMode = usual


def train_arm(arm: str, seed: int, tiles: Path, folder: Path, args: argparse.Namespace) -> None:
    """One run, in which training images are decoded smaller, or none is."""
    flags = {
        "dataset": tiles,
        "model": args.model,
        "method": "ce",
        "image_size": args.image_size,
        "num_train_epochs": args.epochs,
        "learning_rate": args.learning_rate,
        "per_device_train_batch_size": 32,
        "seed": seed,
        "corruptions": "none",
        "eval_strategy": "no",
        "save_strategy": "no",
        "output_dir": folder,
    }
    with decoding(ARMS[arm]) as scales:
        status = train([text for name, value in flags.items() for text in (f"--{name}", str(value))])
    smaller = sum(scale > 1 for scale in scales)
    if status != 0 or (smaller > 0) != (arm == "draft"):
        raise RuntimeError(f"{arm}, seed {seed}: status {status}, {smaller} images were decoded smaller.")


def summarize(runs: Path, tiles: Path, args: argparse.Namespace) -> dict[str, Any]:
    sides = [[load_run(runs / f"{arm}-{seed}") for seed in args.seeds] for arm in ARMS]
    print(comparison_table(*sides))
    found = compare_runs(*sides)
    names = ("tile", "quality", "image_size", "epochs", "learning_rate", "seeds")
    return {
        "settings": {
            "classes": len(list(tiles.glob("test/*"))),
            "train_tiles": len(list(tiles.glob("train/*/*.jpg"))),
            "test_tiles": sides[0][0].report.n,
            "model": Path(args.model).name,
            **{name: getattr(args, name) for name in names},
        },
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "differences": {
            name: {key: round(getattr(found[name], key), 5) for key in ("a", "b", "difference", "low", "high")}
            | {"verdict": found[name].verdict}
            for name in METRICS
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Training with JPEGs decoded at a smaller scale, and without.")
    parser.add_argument("photographs", type=Path, help="Folder of JPEG files.")
    parser.add_argument("--model", default="small")
    parser.add_argument("--tile", type=int, default=512, help="Side of a tile, in pixels.")
    parser.add_argument("--quality", type=int, default=90, help="Of the tiles' JPEG files.")
    parser.add_argument("--image_size", type=int, default=72)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--output", type=Path, help="Also write the JSON here.")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        tiles, runs = Path(folder) / "tiles", Path(folder) / "runs"
        cut(args.photographs, tiles, args.tile, args.quality)
        pixels = compare_pixels(tiles, args.image_size)
        for seed, arm in itertools.product(args.seeds, ARMS):
            train_arm(arm, seed, tiles, runs / f"{arm}-{seed}", args)
        report = summarize(runs, tiles, args) | {"pixels": pixels}
    publish(report, args.output)


if __name__ == "__main__":
    main()
