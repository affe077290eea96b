"""From the name of a dataset to images as a network takes them: alike for training, measuring and calibrating."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..exceptions import ArgumentError
from .images import CACHE_BYTES, ImageDataset
from .sources import (
    ROLES,
    DatasetSource,
    ImageSplits,
    align_labels,
    class_balanced_subset,
    load_splits,
    source_of,
)
from .streaming import stream_splits
from .transforms import EvalTransform, TrainTransform, drop_unreadable


STREAMED_EVAL_SAMPLES = 5000


def load_data(
    source: DatasetSource | str,
    wanted: Sequence[str] = ROLES,
    *,
    streaming: bool = False,
    skip_bad_images: bool = False,
    max_eval_samples: int | None = None,
    max_calibration_samples: int | None = None,
) -> ImageSplits:
    """
    Load the splits of a dataset. A validation or test split that is missing is split off train.

    Args:
        source ([`DatasetSource`] or `str`): Which dataset: one of the benchmark's names, a Hub id or a local folder.
        wanted (`Sequence[str]`, *optional*, defaults to all three): Those of `train`, `validation` and `test` needed.
        streaming (`bool`, *optional*, defaults to `False`): Read the training images when they are needed.
        skip_bad_images (`bool`, *optional*, defaults to `False`): Leave out images that cannot be read.
        max_eval_samples (`int`, *optional*): At most this many validation, and so many test images.
        max_calibration_samples (`int`, *optional*): At most this many validation images.
    """
    source = source_of(source) if isinstance(source, str) else source
    if streaming:
        most = max_eval_samples or STREAMED_EVAL_SAMPLES
        return stream_splits(source, most, skip_bad_images, max_calibration_samples)
    splits = load_splits(source, wanted)
    for role in wanted:
        split = getattr(splits, role)
        if skip_bad_images:
            split = drop_unreadable(split, splits.image_column, role)
        cap = {"validation": max_calibration_samples or max_eval_samples, "test": max_eval_samples}.get(role)
        if cap is not None:
            split = class_balanced_subset(split, splits.label_column, min(len(split), cap), seed=0)
        splits = splits._replace(**{role: split})
    kept = splits.test._indices  # rows of the split, where some were left out
    return splits if kept is None else splits._replace(test_index=kept.column(0).to_numpy().astype(np.int64))


def smaller_training_set(
    splits: ImageSplits, data_fraction: float, max_train_samples: int | None, seed: int
) -> ImageSplits:
    """With a class-balanced share of the training set, of at most this many images."""
    if data_fraction == 1 and max_train_samples is None:
        return splits
    size = max(1, round(len(splits.train) * data_fraction))
    size = size if max_train_samples is None else min(size, max_train_samples)
    subset = class_balanced_subset(splits.train, splits.label_column, size, seed)
    if len(subset.unique(splits.label_column)) < 2:
        raise ArgumentError(
            "data_fraction",
            f"and max_train_samples={max_train_samples} leave {size} training images of "
            "one class; a classifier needs at least two classes to learn from.",
            data_fraction,
        )
    return splits._replace(train=subset)


def image_datasets(splits: ImageSplits, processor: Any) -> tuple[ImageDataset, ImageDataset, ImageDataset]:
    """
    Train, validation and test images of [`load_data`] for an image processor: augmented to train on, and exactly
    what `pipeline` gives to measure on.
    """
    train = image_dataset(splits, "train", TrainTransform(processor, splits.horizontal_flip))
    return train, held_out(splits, "validation", processor), held_out(splits, "test", processor)


def image_dataset(splits: ImageSplits, role: str, transform: Callable, cache_bytes: int = CACHE_BYTES) -> ImageDataset:
    """One split through a transform; see [`ImageDataset`] for the budget of decoded pixels."""
    origin = splits.validation_name if role == "validation" else role
    columns = splits.image_column, splits.label_column
    tested = {"group_column": splits.group_column, "index": splits.test_index} if role == "test" else {}
    return ImageDataset(getattr(splits, role), *columns, transform, origin, cache_bytes, **tested)


def aligned_images(
    splits: ImageSplits, roles: Sequence[str], config: Any, processor: Any, cache_bytes: int = CACHE_BYTES
) -> dict[str, ImageDataset]:
    """Held-out images by role, with the class numbers of a trained model, whose `config` names its classes."""
    found = {}
    for role in roles:
        aligned = align_labels(getattr(splits, role), splits.label_column, splits.label_names, config)
        found[role] = held_out(splits._replace(**{role: aligned}), role, processor, cache_bytes)
    return found


def held_out(splits: ImageSplits, role: str, processor: Any, cache_bytes: int = CACHE_BYTES) -> ImageDataset:
    """Validation or test images for a model, read now, since they may be used only when training is over."""
    dataset = image_dataset(splits, role, EvalTransform(processor), cache_bytes)
    dataset.check_images()
    return dataset
