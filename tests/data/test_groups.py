"""The column that images are grouped by: found or named, as text, neither empty nor too fine."""

from datetime import datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value
from PIL import Image
from transformers import ViTImageProcessor

from macs_hf.data.groups import NO_VALUE, check_group_column, group_values
from macs_hf.data.preparing import held_out, load_data
from macs_hf.data.sources import source_of


PROCESSOR = ViTImageProcessor(size={"height": 8, "width": 8})


def table(values: list[Any], feature: Any, size: int | None = None) -> Dataset:
    size = len(values) if size is None else size
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=["cat", "dog"]), "site": feature})
    images = [Image.new("RGB", (4, 4), (i % 256, i // 256, 0)) for i in range(size)]
    labels = [i % 2 for i in range(size)]
    return Dataset.from_dict({"image": images, "label": labels, "site": values}, features=features)


def saved(folder: Path, **splits: Dataset) -> str:
    DatasetDict(splits).save_to_disk(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("values", "feature", "groups"),
    [
        (["a", "b ", "", None], Value("string"), ["a", "b", NO_VALUE, NO_VALUE]),
        ([3, None, -1], Value("int64"), ["3", NO_VALUE, "-1"]),
        ([1.0, 0.5, float("nan")], Value("float64"), ["1", "0.5", NO_VALUE]),
        ([True, False], Value("bool"), ["True", "False"]),
        ([0.0, -0.0, float("inf")], Value("float64"), ["0", "0", "inf"]),
        ([datetime(2026, 1, 2), None], Value("timestamp[s]"), ["2026-01-02 00:00:00", NO_VALUE]),
        ([1, 0, -1], ClassLabel(names=["day", "night"]), ["night", "day", NO_VALUE]),
    ],
)
def test_values_become_text(values: list, feature: Any, groups: list[str], caplog: pytest.LogCaptureFixture) -> None:
    assert group_values(table(values, feature), "site").tolist() == groups
    missing = groups.count(NO_VALUE)
    said = f"{missing} of {len(values)} images have no value in column 'site'"
    assert (said in caplog.text) == (missing > 0)


def test_a_column_without_values_is_refused() -> None:
    empty = Dataset.from_dict({"site": [None, None]}, features=Features({"site": Value("string")}))
    with pytest.raises(ValueError, match=r"^No image has a value in column 'site'. Name another with group_column"):
        group_values(empty, "site")


def test_a_column_of_numbers_of_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'site' has 10,000 different values in 10,000 images; at most 100 groups"):
        group_values(Dataset.from_dict({"site": list(range(10_000))}), "site")
    assert len(np.unique(group_values(Dataset.from_dict({"site": [i % 100 for i in range(300)]}), "site"))) == 100


def test_a_column_that_cannot_be_used_is_named_when_the_data_are_loaded(tmp_path: Path) -> None:
    whole = table(["a", "b"] * 10, Value("string"))
    path = saved(tmp_path / "data", train=whole, test=whole)
    with pytest.raises(ValueError, match=r"'test' .* has no column 'camera' .* columns are image, label, site\. Name"):
        load_data(source_of(path, group_column="camera"))
    path = saved(tmp_path / "lists", train=whole, test=table([["a"], ["b"]] * 3, Sequence(Value("string"))))
    with pytest.raises(ValueError, match=r"Column 'site' .* holds List.*, not one value per image"):
        load_data(source_of(path, group_column="site"), ("test",))


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([["a"], ["b"]], Sequence(Value("string"))),
        ([{"a": 1}, {"a": 2}], {"a": Value("int64")}),
        ([b"a", b"b"], Value("binary")),
        ([b"a", b"b"], Value("large_binary")),
    ],
)
def test_a_column_without_one_value_per_image_is_refused(values: list, feature: Any) -> None:
    features = table(values, feature).features
    with pytest.raises(ValueError, match=r"^Column 'site' of dataset 'd' holds .*, not one value per image. Name"):
        check_group_column(features, source_of("d", group_column="site"), "test")


@pytest.mark.parametrize("streaming", [False, True])
def test_groups_stay_with_their_images(streaming: bool, tmp_path: Path) -> None:
    sites = [f"site {i % 3}" for i in range(40)]
    path = saved(tmp_path / "data", train=table(sites, Value("string")), test=table(sites, Value("string")))
    source = source_of(path, group_column="site")
    data = held_out(load_data(source, streaming=streaming, max_eval_samples=11), "test", PROCESSOR)
    assert len(data) == 11 and data.group_column == "site"
    for place, group in enumerate(data.groups):
        number = data.image(place).getpixel((0, 0))[0]
        assert group == sites[number]
        if not streaming:
            assert data.index[place] == number
    assert set(data[0]) == {"pixel_values", "labels"}


def test_the_index_is_that_of_the_split(tmp_path: Path) -> None:
    """Left out are images that cannot be read, and some of the others."""
    path = saved(tmp_path / "data", train=table(["a"] * 60, Value("string")))
    splits = load_data(source_of(path), max_eval_samples=4)
    data = held_out(splits, "test", PROCESSOR)
    assert [data.image(place).getpixel((0, 0))[0] for place in range(4)] == data.index.tolist()
    whole = saved(tmp_path / "whole", train=table(["a"] * 60, Value("string")), test=table(["a"] * 6, Value("string")))
    assert load_data(whole).test_index is None
