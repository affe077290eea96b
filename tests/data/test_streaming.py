"""Training from a stream: splits without common rows, shards per process, keyed augmentation, exact resuming."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value, concatenate_datasets
from PIL import Image as PILImage
from transformers import ViTImageProcessor

from macs_hf.data.images import ImageDataset
from macs_hf.data.sources import ImageSplits, source_of
from macs_hf.data.streaming import stream_splits, training_stream
from macs_hf.data.transforms import EvalTransform, TrainTransform, decode
from macs_hf.models.loading import load_classifier


THREE = ("train", "validation", "test")


def saved(folder: Path, label: Any = None, splits: tuple[str, ...] = ("train",), size: int = 120) -> str:
    """Images whose every pixel is their number, two copies of each, by class."""
    features = Features({"image": Image(), "label": label or ClassLabel(names=["a", "b", "c", "d"])})

    def split(first: int) -> Dataset:
        numbers = np.repeat(np.arange(first, first + size // 2), 2)
        images = [PILImage.fromarray(np.full((8, 8, 3), number, np.uint8)) for number in numbers]
        labels = [int(number) * 4 // 256 for number in numbers]
        return Dataset.from_dict({"image": images, "label": labels}, features)

    DatasetDict({name: split(70 * i) for i, name in enumerate(splits)}).save_to_disk(folder)
    return str(folder)


def numbers(rows: Any) -> list[int]:
    return [decode(row["image"]).getpixel((0, 0))[0] for row in rows]


def test_splits_by_hash_have_no_image_in_common(tmp_path: Path) -> None:
    splits = stream_splits(source_of(saved(tmp_path / "data")), max_eval_samples=100)
    train, validation, test = (numbers(part) for part in splits[:3])
    assert len(train) + len(validation) + len(test) == 120
    assert sorted({*train, *validation, *test}) == list(range(60))
    for left, right in itertools.combinations((train, validation, test), 2):
        assert not set(left) & set(right)  # copies stay together
    assert len(validation) > 0 and len(test) > 0
    assert (splits.image_column, splits.label_column, splits.label_names) == ("image", "label", ["a", "b", "c", "d"])
    assert splits.validation_name == "train (a tenth, split off)"
    again = stream_splits(source_of(saved(tmp_path / "again")), max_eval_samples=100)
    assert numbers(again.validation) == validation


def test_given_splits_are_capped_and_train_is_whole(tmp_path: Path) -> None:
    splits = stream_splits(source_of(saved(tmp_path / "data", splits=THREE)), max_eval_samples=30)
    assert sorted(numbers(splits.train)) == sorted([*range(60)] * 2)
    for part, first in ((splits.validation, 70), (splits.test, 140)):
        found = numbers(part)
        assert len(found) == 30 and set(found) <= set(range(first, first + 60))
        assert found != sorted(found)  # not just the first class


def take(splits: ImageSplits, count: int, folder: Path, transform: Any = None, **how: Any) -> list[dict]:
    transform = transform or TrainTransform(ViTImageProcessor(size={"height": 32, "width": 32}))
    stream = training_stream(splits, transform, tiny.arguments(folder), buffer_size=16)
    return list(itertools.islice(stream.shard(**how) if how else stream, count))


def number(image: PILImage.Image) -> dict[str, int]:
    return {"number": image.getpixel((0, 0))[0], "draw": int(torch.randint(1 << 30, ()))}


def test_stream_has_no_end_and_passes_differ(tmp_path: Path) -> None:
    splits = stream_splits(source_of(saved(tmp_path / "data", splits=THREE)), 10)
    rows = take(splits, 1200, tmp_path, number)
    found = [row["number"] for row in rows]
    counts = np.bincount(found, minlength=60)
    # Ten passes of two copies each; at most the 16 of the buffer are still waiting.
    assert counts.sum() == 1200 and (counts <= 22).all() and (counts >= 20 - 16).all() and np.median(counts) == 20
    passes = [found[i : i + 120] for i in range(0, 1200, 120)]
    assert all(left != right for left, right in itertools.combinations(passes, 2))
    assert sum(a > b for a, b in itertools.pairwise(passes[0])) > 30
    assert len({row["draw"] for row in rows}) == 1200


def test_stream_does_not_depend_on_the_global_generator(tmp_path: Path) -> None:
    splits = stream_splits(source_of(saved(tmp_path / "data", splits=THREE)), 10)
    first = take(splits, 50, tmp_path)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    again = take(splits, 50, tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    for left, right in zip(first, again, strict=True):
        assert torch.equal(left["pixel_values"], right["pixel_values"]) and left["labels"] == right["labels"]
    assert first[0].keys() == {"pixel_values", "labels"}


def test_shards_divide_the_images(tmp_path: Path) -> None:
    splits = stream_splits(source_of(saved(tmp_path / "data", splits=THREE)), 10)
    assert splits.train.num_shards == 8
    halves = [take(splits, 600, tmp_path, number, num_shards=2, index=index) for index in range(2)]
    seen = [{row["number"] for row in half} for half in halves]
    assert seen[0] | seen[1] == set(range(60))
    assert len(seen[0] & seen[1]) <= 8  # copies on both sides of a border between shards


@pytest.mark.parametrize("workers", [0, 2])
def test_trainer_learns_from_a_stream_and_resumes_exactly(tmp_path: Path, workers: int) -> None:
    splits = stream_splits(source_of("digits"), max_eval_samples=40, max_calibration_samples=25)
    assert (len(splits.validation), len(splits.test)) == (25, 40)

    def trainer(folder: str, **overrides: Any) -> tiny.MaCSTrainer:
        torch.manual_seed(0)
        model, own = load_classifier("tiny", splits.label_names)
        args = tiny.arguments(
            tmp_path / folder, dataloader_num_workers=workers, save_strategy="steps", save_steps=3, **overrides
        )
        args.accelerator_config.dispatch_batches = False
        stream = training_stream(splits, TrainTransform(own, horizontal_flip=False), args, buffer_size=50)
        validation = ImageDataset(splits.validation, "image", "label", EvalTransform(own), "validation")
        return tiny.MaCSTrainer(
            model=model, args=args, train_dataset=stream, eval_dataset=validation, processing_class=own
        )

    whole = trainer("whole", max_steps=5)
    whole.train()
    resumed = trainer("resumed", max_steps=5)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert tiny.same_weights(whole.model, resumed.model)
    assert whole.evaluate()["eval_nll"] == resumed.evaluate()["eval_nll"]


def test_what_a_stream_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'label'"):  # numbers without names
        stream_splits(source_of(saved(tmp_path / "integers", label=Value("int64"))), 10)
    whole = DatasetDict.load_from_disk(saved(tmp_path / "labelled", splits=("train", "test")))
    whole["test"] = whole["test"].map(lambda row: {"label": -1})  # as in the test split of ImageNet
    whole.save_to_disk(tmp_path / "unlabelled")
    with pytest.raises(ValueError, match=r"Label -1 .* in test"):
        stream_splits(source_of(str(tmp_path / "unlabelled")), 10)
    for split in ({"train_split": "learn"}, {"train_split": "train[:5]"}):
        with pytest.raises(ValueError, match="train_split"):
            stream_splits(source_of(saved(tmp_path / "data"), **split), 10)


@pytest.mark.parametrize("stored", [{"bytes": b"no image", "path": None}, None])
def test_bad_images_are_named_or_left_out(tmp_path: Path, stored: dict[str, Any] | None) -> None:
    path = saved(tmp_path / "good", splits=THREE, size=40)
    whole = DatasetDict.load_from_disk(path)
    bad = whole["train"].select([0]).cast_column("image", Image(decode=False))
    bad = bad.map(lambda row: {"image": stored}, features=bad.features)
    whole["train"] = concatenate_datasets([whole["train"], bad.cast_column("image", Image())])
    whole.save_to_disk(tmp_path / "bad")
    source = source_of(str(tmp_path / "bad"))
    with pytest.raises(ValueError, match="skip_bad_images"):
        take(stream_splits(source, 10), 60, tmp_path)
    assert len(take(stream_splits(source, 10, skip_bad_images=True), 60, tmp_path)) == 60


def test_rows_without_an_image_are_split_off_like_others(tmp_path: Path) -> None:
    whole = DatasetDict.load_from_disk(saved(tmp_path / "good"))["train"]
    whole = whole.map(lambda row, index: {"image": None if index == 7 else row["image"]}, with_indices=True)
    DatasetDict(train=whole).save_to_disk(tmp_path / "one_missing")
    for skip, count in ((False, 120), (True, 119)):
        splits = stream_splits(source_of(str(tmp_path / "one_missing")), 100, skip_bad_images=skip)
        assert len(list(splits.train)) + len(splits.validation) + len(splits.test) == count
