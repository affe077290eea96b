"""Images of none of a model's classes: from any dataset but its own, and without those whose class it has."""

from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from transformers import ViTImageProcessor

from macs_hf.data import load_ood, preparing
from macs_hf.data.sources import source_of

from .small_datasets import picture


PROCESSOR = ViTImageProcessor(size={"height": 8, "width": 8})


def table(labels: list[Any], feature: Any, columns: tuple[str, ...] = ("image",)) -> Dataset:
    features = dict.fromkeys(columns, datasets.Image()) | ({"label": feature} if feature else {})
    images = [picture(place) for place in range(len(labels))]
    rows = {name: labels if name == "label" else images for name in features}
    return Dataset.from_dict(rows, features=Features(features))


def load(folder: Path, split: str | None = None, names: tuple[str, ...] = ("Cat", "dog"), **splits: Dataset) -> Any:
    DatasetDict(splits).save_to_disk(folder)
    return load_ood(str(folder), split, "digits", names, PROCESSOR)


def numbers(found: preparing.OodImages) -> list[int]:
    return [found.images.image(place).getpixel((0, 0))[0] for place in range(len(found.images))]


TEXTURES = ClassLabel(names=["brick", "grass"])


def test_images_come_from_test_or_the_only_split_or_the_one_named(tmp_path: Path) -> None:
    short, long = table([0, 1], TEXTURES), table([0, 1, 0], TEXTURES)
    found = load(tmp_path / "a", train=long, test=short)
    assert (found.split, found.total, len(found.images), found.left_out) == ("test", 2, 2, ())
    assert set(found.images[0]) == {"pixel_values"} and found.images[0]["pixel_values"].shape == (3, 8, 8)
    assert len(found.images.hashes) == 2
    assert load(tmp_path / "b", "train", train=long, test=short).total == 3
    assert load(tmp_path / "c", train=long).split == "train"
    with pytest.raises(ValueError, match="ood_split"):
        load(tmp_path / "d", train=long, more=short)


def test_classes_of_the_model_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = table([0, 1, 2, 1, 0], ClassLabel(names=["grass", "CAT", "brick"]))
    found = load(tmp_path / "data", test=rows)
    assert found.left_out == ("CAT",) and numbers(found) == [0, 2, 4] and found.total == 3
    assert "2 of 5" in caplog.text and "CAT" in caplog.text
    text = load(tmp_path / "text", test=table(["cat", "sky", None], Value("string")))
    assert text.left_out == ("cat",) and numbers(text) == [1, 2]


def test_a_dataset_of_the_models_own_classes_is_refused(tmp_path: Path) -> None:
    names = ("polar_bear", "dog")
    with pytest.raises(ValueError, match=r"ood_dataset=.*dog, polar bear"):
        load(tmp_path / "data", names=names, test=table([0, 1], ClassLabel(names=["polar bear", "dog"])))
    # A class without images does not count.
    empty = ClassLabel(names=["polar bear", "dog", "brick"])
    with pytest.raises(ValueError, match="ood_dataset="):
        load(tmp_path / "more", names=names, test=table([0, 1], empty))
    with pytest.raises(ValueError, match="ood_dataset='digits'"):
        load_ood("digits", None, source_of("digits"), ["a"], PROCESSOR)


def test_what_cannot_be_known_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    digits = ("0", "1", "2")
    found = load(tmp_path / "a", names=digits, test=table([0, 1], ClassLabel(names=["0", "1"])))
    assert len(found.images) == 2 and "(0, 1)" in caplog.text
    caplog.clear()
    load(tmp_path / "b", test=table([0, 1], None))
    assert "no named classes" in caplog.text
    caplog.clear()
    load(tmp_path / "c", test=table([0, 1], TEXTURES))
    assert caplog.text == ""


def test_at_most_ten_thousand_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "OOD_AT_MOST", 7)
    found = load(tmp_path / "data", test=table([0] * 30, TEXTURES))
    assert (len(found.images), found.total) == (7, 30)
    drawn = numbers(found)
    assert drawn == sorted(set(drawn)) and drawn != list(range(7))
    assert numbers(load_ood(str(tmp_path / "data"), None, "digits", ["a"], PROCESSOR)) == drawn


def test_columns_of_images(tmp_path: Path) -> None:
    for columns in (("image", "mask"), ()):
        with pytest.raises(ValueError, match="ood_dataset"):
            load(tmp_path / str(len(columns)), test=table([0], TEXTURES, columns))
