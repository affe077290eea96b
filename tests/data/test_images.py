"""Batches of a split: equal to their items, in any batch, worker and run; decoded once; grouped; copies are found."""

import copy
import pickle
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import WeakSet

import datasets
import numpy as np
import pytest
import tiny
import torch
from datasets import ClassLabel, Dataset, Features, Sequence, Value
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2
from transformers import TimmWrapperImageProcessor, ViTImageProcessor

from macs_hf.data import EvalTransform, ImageDataset, KeyedDataset, TrainTransform
from macs_hf.data import images as cache
from macs_hf.data.images import NO_VALUE, find_leakage, group_values
from macs_hf.data.preparing import held_out, load_data
from macs_hf.data.sources import load_splits, source_of
from macs_hf.models.loading import load_classifier
from macs_hf.report.report import Copies, Leakage
from macs_hf.report.sections import leakage_line

from .small_datasets import broken_files, encoded, rows_of, saved, scene, table, timm_processor


SMALL = ViTImageProcessor(size={"height": 32, "width": 32})
LARGE = ViTImageProcessor(size={"height": 72, "width": 72})


def photos(count: int = 12, kind: str = "PNG") -> Dataset:
    """Of several sizes, above and below the network's."""
    return rows_of(*(scene(30 + 7 * (i % 5), 32 + 5 * (i % 3), seed=i) for i in range(count)), kind=kind)


def dataset(transform: Any, rows: Dataset | None = None, **options: Any) -> ImageDataset:
    return ImageDataset(photos() if rows is None else rows, "image", "label", transform, "train", **options)


def same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(torch.equal(torch.as_tensor(a[name]), torch.as_tensor(b[name])) for name in a)
        for a, b in zip(left, right, strict=True)
    )


def by_label(loader: DataLoader) -> list[dict[str, Any]]:
    items = [{name: batch[name][row] for name in batch} for batch in loader for row in range(len(batch["labels"]))]
    return sorted(items, key=lambda item: int(item["labels"]))


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indices of images that are read from their files from now on."""
    read: list[int] = []
    stored = ImageDataset._stored

    def spy(self: ImageDataset, indices: Any) -> Any:
        read.extend(indices)
        return stored(self, indices)

    monkeypatch.setattr(ImageDataset, "_stored", spy)
    return read


# ---- Items ----


def test_the_fingerprint_is_that_of_the_rows_whatever_the_transform() -> None:
    rows, others = photos(), photos(11)
    assert dataset(EvalTransform(SMALL), rows)._fingerprint == dataset(TrainTransform(LARGE), rows)._fingerprint
    assert dataset(EvalTransform(SMALL), others)._fingerprint != dataset(EvalTransform(SMALL), rows)._fingerprint


def test_indices_from_the_end_and_beyond_it() -> None:
    data = dataset(EvalTransform(SMALL))
    assert same([data[-1]], [data[11]]) and same([data[np.int64(2)]], data.__getitems__(torch.tensor([2])))
    for index in (12, -13):
        with pytest.raises(IndexError):
            data[index]
    assert len(list(data)) == 12


@pytest.mark.parametrize("cache_bytes", [0, 10**6])
@pytest.mark.parametrize("processor", [SMALL, LARGE, timm_processor(), timm_processor(80)])
def test_evaluation_batches_equal_the_processor_image_by_image(processor: Any, cache_bytes: int) -> None:
    data, images = dataset(EvalTransform(processor), cache_bytes=cache_bytes), photos()
    expected = [processor(images[i]["image"], return_tensors="pt")["pixel_values"][0] for i in range(12)]
    for _ in range(2):  # read, then remembered
        items = data.__getitems__(range(12))
        assert all(torch.equal(item["pixel_values"], one) for item, one in zip(items, expected, strict=True))
        assert all(item["pixel_values"].is_contiguous() for item in items)


# ---- Draws ----


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cache_bytes", [0, 10**6])
@pytest.mark.parametrize("processor", [SMALL, LARGE], ids=["small", "large"])
def test_keyed_items_depend_on_seed_epoch_and_index_only(processor: Any, cache_bytes: int, workers: int) -> None:
    def keyed() -> KeyedDataset:
        return KeyedDataset(dataset(TrainTransform(processor, augmix=True), cache_bytes=cache_bytes), seed=3)

    one_by_one = keyed()
    one_by_one.set_epoch(2)
    state = torch.get_rng_state()
    expected = [one_by_one[index] for index in range(12)]
    assert torch.equal(torch.get_rng_state(), state)
    data = keyed()
    loader = DataLoader(data, batch_size=5, shuffle=True, num_workers=workers)
    first = by_label(loader)
    data.set_epoch(2)
    assert same(by_label(loader), expected) and same(by_label(loader), expected)
    other = KeyedDataset(data.dataset, seed=4)
    other.set_epoch(2)
    for items in (first, other.__getitems__(range(12))):
        pairs = ((a["augmix_pixel_values"], b["augmix_pixel_values"]) for a, b in zip(items, expected, strict=True))
        assert not any(torch.equal(a, b) for a, b in pairs)


def test_without_a_key_each_pass_draws_from_the_generator() -> None:
    loader = DataLoader(dataset(TrainTransform(SMALL)), batch_size=4)
    torch.manual_seed(0)
    first, second = by_label(loader), by_label(loader)
    torch.manual_seed(0)
    assert same(by_label(loader), first)
    pairs = zip(first, second, strict=True)
    assert sum(torch.equal(a["pixel_values"], b["pixel_values"]) for a, b in pairs) <= 1  # one crop in 162 comes again


def test_a_transform_of_ones_own_is_called_image_by_image_and_keyed_too() -> None:
    crop = v2.Compose([v2.RandomCrop(16), v2.ToImage()])
    data = dataset(lambda image: {"pixel_values": crop(image), "size": image.size[0]})
    keyed = KeyedDataset(data, seed=1)
    items = keyed.__getitems__([3, 1])
    assert [item["size"] for item in items] == [51, 37] and [item["labels"] for item in items] == [3, 1]
    assert same([keyed[3]], items[:1])
    assert not same([data[3]], items[:1])


def test_a_run_resumed_with_other_workers_and_no_cache_ends_in_the_same_weights(tmp_path: Path) -> None:
    splits = load_splits(source_of("digits"))

    def trainer(folder: str, cache_bytes: int, workers: int) -> tiny.MaCSTrainer:
        torch.manual_seed(0)
        model, processor = load_classifier("tiny", splits.label_names)
        options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "dataloader_num_workers": workers}
        data = ImageDataset(
            splits.train.select(range(24)), "image", "label", TrainTransform(processor), "train", cache_bytes
        )
        args = tiny.arguments(tmp_path / folder, per_device_train_batch_size=8, **options)
        return tiny.MaCSTrainer(model=model, args=args, train_dataset=data, processing_class=processor)

    whole = trainer("whole", 10**6, 0)
    whole.train()
    resumed = trainer("resumed", 0, 2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))  # in the second of two epochs
    assert tiny.same_weights(whole.model, resumed.model)


# ---- The cache ----


@pytest.mark.parametrize("transform", [TrainTransform(SMALL), EvalTransform(SMALL), EvalTransform(LARGE)])
def test_images_are_read_once(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted_reads(monkeypatch)
    data = dataset(transform)
    assert read == []
    data.__getitems__([4, 4, 1])
    data.__getitems__([1, 2])
    assert read == [4, 1, 2]
    list(DataLoader(data, batch_size=5))
    list(DataLoader(data, batch_size=5))
    assert sorted(read) == list(range(12))
    filled = dataset(transform)
    list(DataLoader(filled, batch_size=2, num_workers=2))  # workers fill the cache of all
    assert filled._cache.missing(range(12)) == []
    assert dataset(TrainTransform(LARGE))._cache is None  # each epoch has other crops


def test_the_budget_is_that_of_all_datasets_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_caches", WeakSet())
    size = 12 * (3 * 32 * 32 + 1)
    both = [dataset(TrainTransform(SMALL), cache_bytes=2 * size) for _ in range(3)]
    assert [data._cache is not None for data in both] == [True, True, False]
    del both[0]
    assert dataset(TrainTransform(SMALL), cache_bytes=2 * size)._cache is not None
    del both
    assert dataset(TrainTransform(SMALL), cache_bytes=size - 1)._cache is None
    assert dataset(TrainTransform(SMALL), cache_bytes=0)._cache is None
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert dataset(TrainTransform(SMALL), cache_bytes=2 * size - 1)._cache is None
    assert dataset(TrainTransform(SMALL), cache_bytes=2 * size)._cache is not None
    with pytest.raises(ValueError, match="cache_bytes=-1"):
        dataset(TrainTransform(SMALL), cache_bytes=-1)


def test_a_stream_and_a_column_that_is_missing_are_refused() -> None:
    with pytest.raises(TypeError, match="IterableDataset"):
        dataset(TrainTransform(SMALL), photos().to_iterable_dataset())
    for columns in (("photo", "label"), ("image", "kind")):
        with pytest.raises(ValueError, match=r"'photo'|'kind'"):
            ImageDataset(photos(), *columns, TrainTransform(SMALL), "train")


def test_a_copy_for_another_process_goes_without() -> None:
    data = dataset(TrainTransform(SMALL, augmix=True))
    expected = KeyedDataset(data, 0).__getitems__([0, 5])
    for twin in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert twin._cache is None
        assert same(KeyedDataset(twin, 0).__getitems__([0, 5]), expected)


def test_a_processor_that_is_no_table_of_levels_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sharpened(TimmWrapperImageProcessor):
        def preprocess(self, images: Any, return_tensors: str = "pt") -> Any:
            prepared = super().preprocess(images, return_tensors)
            prepared["pixel_values"] = prepared["pixel_values"] - 0.1 * prepared["pixel_values"].mean((2, 3), True)
            return prepared

    read = counted_reads(monkeypatch)
    processor = Sharpened({"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.5,) * 3})
    data, images = dataset(EvalTransform(processor)), photos()
    for _ in range(2):
        expected = processor(images[1]["image"], return_tensors="pt")["pixel_values"][0]
        assert torch.equal(data[1]["pixel_values"], expected)
    assert read.count(1) > 1


# ---- Images that cannot be read ----


@pytest.mark.parametrize(
    "transform",
    [TrainTransform(SMALL), TrainTransform(LARGE), EvalTransform(SMALL), lambda image: {"pixel_values": image.size}],
    ids=["small", "large", "evaluation", "own"],
)
def test_an_unreadable_image_is_named_by_index_and_split_out_of_a_batch(transform: Any) -> None:
    data = dataset(transform, rows_of(*broken_files()))
    assert [item["labels"] for item in data.__getitems__([0, 2])] == [0, 2]
    for index in (1, 3, 4):
        with pytest.raises(ValueError, match=f"Image {index} of split 'train'"):
            data.__getitems__([0, index, 2])


def test_an_unreadable_file_is_named_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"<html>404</html>")
    columns = {"image": [str(tmp_path / "bad.png")], "label": [0]}
    rows = Dataset.from_dict(columns, features=Features({"image": datasets.Image(), "label": ClassLabel(names=["a"])}))
    with pytest.raises(ValueError, match=r"Image 0 of split 'train' .*bad\.png"):
        dataset(lambda image: {}, rows).check_images()


def test_a_first_pass_names_all_unreadable_images_and_fills_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"Image 1 of split 'train'.* 3, 4\."):
        dataset(EvalTransform(SMALL), rows_of(*broken_files())).check_images()
    data = dataset(EvalTransform(SMALL))
    assert list(data.check_images()) == list(range(12))
    read = counted_reads(monkeypatch)
    assert len(list(data)) == 12 and read == []
    assert dataset(EvalTransform(SMALL), photos().select([])).check_images() == {}


def test_hashes_are_those_of_the_pixels_whatever_the_file_and_the_transform() -> None:
    one, two = scene(seed=1), scene(seed=2)
    rows = rows_of(
        one, two, encoded(one, "BMP"), one.resize((30, 40)), Image.new("RGB", (6, 4)), Image.new("RGB", (4, 6))
    )
    first = dataset(EvalTransform(SMALL), rows).check_images()
    assert first[0] == first[2] and len(set(first.values())) == 5
    assert dataset(TrainTransform(SMALL), rows).check_images() == first
    assert dataset(TrainTransform(LARGE), rows).check_images() == first


# ---- Copies between splits ----


def split(numbers: list[int], name: str, kind: str = "PNG", processor: Any = SMALL) -> ImageDataset:
    """Images that their number decides, stored as files of a kind, and read: at most five, if not kept in memory."""
    rows = rows_of(*(encoded(scene(9, 7, seed=number), kind) for number in numbers))
    transform = TrainTransform(processor) if name == "train" else EvalTransform(processor)
    data = ImageDataset(rows, "image", "label", transform, name)
    data.check_images(at_most=5)
    return data


def test_copies_are_counted_whatever_the_file_and_the_transform() -> None:
    train, validation = split([0, 1, 2, 3, 3], "train"), split([10, 3, 11], "validation", "BMP")
    test = split([3, 3, 10, 20, 1], "test", "TIFF")
    found = find_leakage({"train": train, "validation": validation, "test": test})
    assert found == Leakage(
        {"train": 5, "validation": 3, "test": 5},
        {"train": 5, "validation": 3, "test": 5},
        (Copies("validation", "train", 1), Copies("test", "train", 3), Copies("test", "validation", 3)),
    )
    assert "3 of 5 test images are also in train" in leakage_line(found)
    none = find_leakage({"validation": validation, "test": split([4, 5], "test")})
    assert none.found == () and leakage_line(none).endswith("none")
    stream, unread = Dataset.from_dict({"label": [0, 1]}).to_iterable_dataset(), dataset(EvalTransform(SMALL))
    assert find_leakage({"train": stream, "validation": unread, "test": test}) is None


def test_large_training_images_are_compared_in_part() -> None:
    """They are not kept in memory, so decoding all of them would cost an epoch."""
    train, test = split(list(range(20)), "train", processor=LARGE), split([0, 4, 5], "test")
    found = find_leakage({"train": train, "test": test})
    assert (found.compared, found.total) == ({"train": 5, "test": 3}, {"train": 20, "test": 3})
    assert found.copies == (Copies("test", "train", 2),) and found.compared != found.total  # of 0, 4, 8, 12 and 16
    assert "5 of 20 train images" in leakage_line(found)


# ---- Groups ----


@pytest.mark.parametrize(
    ("values", "feature", "groups"),
    [
        (["a", "b ", "", None], Value("string"), ["a", "b", NO_VALUE, NO_VALUE]),
        ([1.0, 0.5, float("nan")], Value("float64"), ["1", "0.5", NO_VALUE]),
        ([datetime(2026, 1, 2), None], Value("timestamp[s]"), ["2026-01-02 00:00:00", NO_VALUE]),
        ([1, 0, -1], ClassLabel(names=["day", "night"]), ["night", "day", NO_VALUE]),
    ],
)
def test_values_become_text(values: list, feature: Any, groups: list[str], caplog: pytest.LogCaptureFixture) -> None:
    assert group_values(table([0] * len(values), sites=values, site=feature), "site").tolist() == groups
    assert ("'site'" in caplog.text) == (NO_VALUE in groups)


def test_a_column_of_too_many_values_or_none_is_refused() -> None:
    empty = Dataset.from_dict({"site": [None, None]}, features=Features({"site": Value("string")}))
    for column in (Dataset.from_dict({"site": list(range(10_000))}), empty):
        with pytest.raises(ValueError, match=r"'site'.*group_column"):
            group_values(column, "site")
    assert len(np.unique(group_values(Dataset.from_dict({"site": [i % 100 for i in range(300)]}), "site"))) == 100


@pytest.mark.parametrize(
    ("values", "feature"),
    [([["a"], ["b"]], Sequence(Value("string"))), ([b"a", b"b"], Value("binary"))],
)
def test_a_column_without_one_value_per_image_is_refused(values: list, feature: Any, tmp_path: Path) -> None:
    whole = table([0, 1] * 10, sites=values * 10, site=feature)
    source = saved(tmp_path, train=whole, test=whole)
    for column in ("site", "camera"):  # the other one does not exist
        with pytest.raises(ValueError, match=f"'{column}'.*group_column"):
            load_data(replace(source, group_column=column), ("test",))


@pytest.mark.parametrize("streaming", [False, True])
def test_groups_stay_with_their_images(streaming: bool, tmp_path: Path) -> None:
    sites = [f"site {i % 3}" for i in range(40)]
    whole = table([0, 1] * 20, sites=sites)
    source = replace(saved(tmp_path, train=whole, test=whole), group_column="site")
    data = held_out(load_data(source, streaming=streaming, max_eval_samples=11), "test", SMALL)
    assert len(data) == 11 and data.group_column == "site"
    for place, group in enumerate(data.groups):
        number = data.image(place).getpixel((0, 0))[0]
        assert group == sites[number]
        if not streaming:
            assert data.index[place] == number
    assert set(data[0]) == {"pixel_values", "labels"}


def test_without_a_cap_all_are_there_and_need_no_index(tmp_path: Path) -> None:
    assert load_data(saved(tmp_path, train=table([0, 1] * 30), test=table([0, 1] * 3))).test_index is None
