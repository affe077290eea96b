"""Small datasets for the tests of this room, saved as `datasets` saves them."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features
from PIL import Image

from macs_hf.data.sources import DatasetSource
from macs_hf.data.splits import ImageSplits


def picture(value: int) -> Image.Image:
    return Image.new("RGB", (4, 4), (value % 256, value // 256, 0))


def table(labels: list, feature: Any = None, start: int = 0, **columns: Any) -> Dataset:
    """One image per label, each of another colour: the colour tells which row it is."""
    feature = feature or ClassLabel(names=["cat", "dog"])
    features = Features({"image": datasets.Image(), "label": feature})
    images = [picture(start + i) for i in range(len(labels))]
    return Dataset.from_dict({"image": images, "label": labels}, features=features)


def saved(folder: Path, **splits: Dataset) -> DatasetSource:
    DatasetDict(splits).save_to_disk(folder)
    return DatasetSource(str(folder))


def rows_of(split: Dataset, column: str = "image") -> list[tuple]:
    return [np.asarray(image).tobytes() for image in split[column]]


def sizes(splits: ImageSplits) -> tuple[int, int, int]:
    return len(splits.train), len(splits.validation), len(splits.test)
