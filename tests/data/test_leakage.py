"""Copies between splits: counted by their pixels, whatever the file, and said with what was compared."""

import io
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features
from PIL import Image
from transformers import ViTImageProcessor

from macs_hf.data.images import EvalTransform, ImageDataset, TrainTransform
from macs_hf.data.leakage import find_leakage, hash_training_images, leakage_line
from macs_hf.report.leakage import Copies, Leakage


SMALL = ViTImageProcessor(size={"height": 16, "width": 16})
LARGE = ViTImageProcessor(size={"height": 72, "width": 72})


def split(numbers: list[int], name: str, kind: str = "PNG", training: bool = False, **options: Any) -> ImageDataset:
    """Images that their number decides, stored as files of a kind."""
    stored = []
    for number in numbers:
        pixels = np.random.default_rng(number).integers(0, 256, (9, 7, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, format=kind)
        stored.append({"bytes": file.getvalue(), "path": None})
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=["a", "b"])})
    rows = Dataset.from_dict({"image": stored, "label": [0] * len(numbers)}, features=features)
    processor = options.pop("processor", SMALL)
    transform = TrainTransform(processor) if training else EvalTransform(processor)
    return ImageDataset(rows, "image", "label", transform, name, **options)


def test_copies_are_counted_whatever_the_file_and_the_transform() -> None:
    train = split([0, 1, 2, 3, 3], "train", training=True)
    validation, test = split([10, 3, 11], "validation", "BMP"), split([3, 3, 10, 20, 1], "test", "TIFF")
    hash_training_images(train)
    for data in (validation, test):
        data.check_images()
    found = find_leakage({"train": train, "validation": validation, "test": test})
    assert found == Leakage(
        {"train": 5, "validation": 3, "test": 5},
        {"train": 5, "validation": 3, "test": 5},
        (Copies("validation", "train", 1), Copies("test", "train", 3), Copies("test", "validation", 3)),
    )
    assert leakage_line(found) == (
        "exact copies between train, validation and test: 1 of 3 validation images are also in train; 3 of 5 test "
        "images are also in train; 3 of 5 test images are also in validation"
    )


def test_no_copies_are_no_leakage() -> None:
    """The smallest difference of a single pixel is another image."""
    data = {"validation": split([1, 2], "validation"), "test": split([3, 4, 5], "test")}
    for part in data.values():
        part.check_images()
    found = find_leakage(data)
    assert found.found == () and found.compared == found.total
    assert leakage_line(found) == "exact copies between validation and test: none"


def test_large_training_images_are_compared_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not kept in memory, so decoding all of them would cost an epoch."""
    monkeypatch.setattr("macs_hf.data.leakage.COMPARED_AT_MOST", 5)
    train, test = split(list(range(20)), "train", training=True, processor=LARGE), split([0, 4, 5], "test")
    hash_training_images(train)
    test.check_images()
    found = find_leakage({"train": train, "test": test})
    assert (found.compared, found.total) == ({"train": 5, "test": 3}, {"train": 20, "test": 3})
    assert found.copies == (Copies("test", "train", 2),) and found.compared != found.total  # of 0, 4, 8, 12 and 16
    assert leakage_line(found).endswith("(compared were 5 of 20 train images)")


def test_streams_and_other_datasets_are_left_alone() -> None:
    stream = Dataset.from_dict({"label": [0, 1]}).to_iterable_dataset()
    hash_training_images(stream)
    test = split([1], "test")
    test.check_images()
    assert find_leakage({"train": stream, "validation": None, "test": test}) is None
    unread = split([1], "validation")
    assert find_leakage({"validation": unread, "test": test}) is None


def test_reading_training_images_leaves_them_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    train = split(list(range(6)), "train", training=True)
    hash_training_images(train)
    monkeypatch.setattr(ImageDataset, "_stored", None)  # nothing is read again
    assert len(train.__getitems__(range(6))) == 6


@pytest.mark.parametrize(
    ("compared", "total", "copies", "message"),
    [
        ({"test": 3}, {"train": 3}, (), "total must have the splits of compared"),
        ({"test": 3}, {"test": 2}, (), "total.test must be a whole number of at least 3"),
        ({"test": 3}, {"test": 3}, (Copies("test", "train", 1),), r"copies\[0\] names a split .* 'train'"),
        ({"a": 1, "b": 1}, {"a": 1, "b": 1}, (Copies("a", "b", 2),), r"copies\[0\].count is 2, more than"),
    ],
)
def test_what_cannot_be_is_refused(compared: dict, total: dict, copies: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Leakage(compared, total, copies)
