"""Pictures and small datasets for the tests of this room."""

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features
from PIL import Image
from transformers import TimmWrapperImageProcessor

from macs_hf.data.sources import DatasetSource, ImageSplits, load_splits
from macs_hf.data.streaming import stream_splits


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RED, BLUE = (200, 30, 40), (10, 60, 210)
LOADERS = (load_splits, lambda source: stream_splits(source, 10))  # whole, and as a stream


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def stored(image: Image.Image, kind: str = "PNG", **options: Any) -> dict[str, Any]:
    return {"bytes": encoded(image, kind, **options), "path": None}


def scene(width: int = 40, height: int = 30, seed: int = 0) -> Image.Image:
    """Smooth random colours, which survive JPEG."""
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def rows_of(*images: Image.Image | bytes, kind: str = "PNG") -> Dataset:
    """A dataset of these images or files, whose labels count up."""
    files = [image if isinstance(image, bytes) else encoded(image, kind) for image in images]
    names = [f"class {number}" for number in range(len(files))]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=names)})
    stored = [{"bytes": file, "path": None} for file in files]
    return Dataset.from_dict({"image": stored, "label": list(range(len(files)))}, features=features)


def broken_files() -> list[bytes]:
    """Of which the first and the third are images."""
    whole = encoded(scene(64, 64), "JPEG")
    return [whole, whole[: len(whole) // 2], whole, b"<html>404</html>", b""]


def timm_processor(size: int = 32, **settings: Any) -> TimmWrapperImageProcessor:
    config = {"input_size": (3, size, size), "mean": IMAGENET[0], "std": IMAGENET[1], "crop_pct": 0.9}
    return TimmWrapperImageProcessor(pretrained_cfg=config | settings)


def picture(value: int) -> Image.Image:
    return Image.new("RGB", (4, 4), (value % 256, value // 256, 0))


def table(labels: list, feature: Any = None, start: int = 0, sites: list | None = None, site: Any = None) -> Dataset:
    """One image per label, whose colour tells which row it is; and the sites where they were taken, if given."""
    features = {"image": datasets.Image(), "label": feature or ClassLabel(names=["cat", "dog"])}
    columns = {"image": [picture(start + i) for i in range(len(labels))], "label": labels}
    if sites is not None:
        features, columns = features | {"site": site or datasets.Value("string")}, columns | {"site": sites}
    return Dataset.from_dict(columns, features=Features(features))


def saved(folder: Path, **splits: Dataset) -> DatasetSource:
    DatasetDict(splits).save_to_disk(folder)
    return DatasetSource(str(folder))


def sizes(splits: ImageSplits) -> tuple[int, int, int]:
    return len(splits.train), len(splits.validation), len(splits.test)


def images_of(split: Dataset, column: str = "image") -> list[bytes]:
    return [np.asarray(image).tobytes() for image in split[column]]
