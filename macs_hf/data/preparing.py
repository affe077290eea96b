"""From the name of a dataset to images as a network takes them: alike for training, measuring and calibrating."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from datasets import ClassLabel, Dataset, Value
from transformers.utils import logging

from ..exceptions import ArgumentError
from .images import CACHE_BYTES, ImageDataset
from .sources import (
    ROLES,
    DatasetSource,
    ImageSplits,
    align_labels,
    find_image_column,
    labels_of,
    listed,
    load_raw,
    load_splits,
    named_label_column,
    source_of,
    values_of,
)
from .streaming import stream_splits
from .transforms import EvalTransform, TrainTransform, drop_unreadable


logger = logging.get_logger(__name__)

STREAMED_EVAL_SAMPLES = 5000
OOD_AT_MOST = 10_000  # more make the numbers no surer, since the test images are a sample too
NAME_OTHERS = "Name a dataset with images of none of the model's classes."


def load_data(
    source: DatasetSource | str,
    wanted: Sequence[str] = ROLES,
    *,
    unseen: bool = False,
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
        unseen (`bool`, *optional*, defaults to `False`): Whether the model knows none of the images. Without a test
            split, all of validation, or of a folder without splits, is then tested, or half of it if validation is
            wanted too.
        streaming (`bool`, *optional*, defaults to `False`): Read the training images when they are needed.
        skip_bad_images (`bool`, *optional*, defaults to `False`): Leave out images that cannot be read.
        max_eval_samples (`int`, *optional*): At most this many validation, and so many test images.
        max_calibration_samples (`int`, *optional*): At most this many validation images.
    """
    source = source_of(source) if isinstance(source, str) else source
    if streaming:
        most = max_eval_samples or STREAMED_EVAL_SAMPLES
        return stream_splits(source, most, skip_bad_images, max_calibration_samples)
    caps = {"train": None, "validation": max_calibration_samples or max_eval_samples, "test": max_eval_samples}
    splits = load_splits(source, wanted, unseen)
    for role in wanted:
        split = getattr(splits, role)
        if skip_bad_images:
            split = drop_unreadable(split, splits.image_column, role)
        split = class_balanced_subset(split, splits.label_column, caps[role], seed=0)
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
    if len(np.unique(labels_of(subset, splits.label_column))) < 2:
        message = f"and max_train_samples={max_train_samples} leave {size} training images of one class, not of two."
        raise ArgumentError("data_fraction", message, data_fraction)
    return splits._replace(train=subset)


def class_balanced_subset(dataset: Dataset, label_column: str, size: int | None, seed: int) -> Dataset:
    """At most `size` rows, in which the classes have the shares they have in `dataset`, as nearly as can be."""
    if size is None:
        return dataset
    labels = labels_of(dataset, label_column)
    order = np.random.default_rng(seed).permutation(len(labels))
    # Within each class, rows get evenly spaced ranks in (0, 1); the smallest ranks are a stratified subset.
    ranks = np.empty(len(labels))
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        ranks[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    chosen = order[np.argsort(ranks[order], kind="stable")[:size]]
    return dataset.select(np.sort(chosen))


def image_datasets(splits: ImageSplits, processor: Any) -> tuple[ImageDataset, ImageDataset, ImageDataset]:
    """
    Train, validation and test images of [`load_data`] for an image processor: augmented to train on, and exactly
    what `pipeline` gives to measure on.
    """
    train = image_dataset(splits, "train", TrainTransform(processor, splits.source.horizontal_flip))
    return train, held_out(splits, "validation", processor), held_out(splits, "test", processor)


def image_dataset(splits: ImageSplits, role: str, transform: Callable, cache_bytes: int = CACHE_BYTES) -> ImageDataset:
    """One split through a transform; see [`ImageDataset`] for the budget of decoded pixels."""
    origin = splits.validation_name if role == "validation" else role
    columns = splits.image_column, splits.label_column
    tested = {"group_column": splits.source.group_column, "index": splits.test_index} if role == "test" else {}
    return ImageDataset(getattr(splits, role), *columns, transform, origin, cache_bytes, **tested)


def held_out(splits: ImageSplits, role: str, processor: Any, cache_bytes: int = CACHE_BYTES) -> ImageDataset:
    """Validation or test images for a model, read now, since they may be used only when training is over."""
    dataset = image_dataset(splits, role, EvalTransform(processor), cache_bytes)
    dataset.check_images()
    return dataset


def aligned_images(
    splits: ImageSplits, roles: Sequence[str], config: Any, processor: Any, cache_bytes: int = CACHE_BYTES
) -> dict[str, ImageDataset]:
    """Held-out images by role, with the class numbers of a trained model, whose `config` names its classes."""
    for role in roles:
        aligned = align_labels(getattr(splits, role), splits.label_column, splits.label_names, config)
        splits = splits._replace(**{role: aligned})
    return {role: held_out(splits, role, processor, cache_bytes) for role in roles}


# ---- Images out of distribution (OOD) ----
# Of none of a model's classes, from any dataset, whose labels only say which of its images are left out.


class OodImages(NamedTuple):
    """Images of none of the model's classes, without labels."""

    images: ImageDataset
    dataset: str  # Hub id or folder
    split: str
    total: int  # how many images of the split could have been taken
    left_out: tuple[str, ...] = ()  # classes that the model has too, whose images were left out


def load_ood(
    source: DatasetSource | str,
    split: str | None,
    known: DatasetSource | str,
    class_names: Sequence[str],
    processor: Any,
    *,
    skip_bad_images: bool = False,
    cache_bytes: int = CACHE_BYTES,
) -> OodImages:
    """
    At most 10,000 images, drawn at random, of a dataset whose classes the model does not have.

    Args:
        source ([`DatasetSource`] or `str`): The dataset.
        split (`str`, *optional*): Its split; `test` if not given, or the only one there is.
        known ([`DatasetSource`] or `str`): The dataset that the model is measured on.
        class_names (`Sequence[str]`): The model's classes.
        processor: The model's image processor.
        skip_bad_images (`bool`, *optional*, defaults to `False`): Leave out images that cannot be read.
        cache_bytes (`int`, *optional*): See [`ImageDataset`].

    Raises:
        `ValueError`: If it is the dataset that the model is measured on, or all of its classes are the model's.
    """
    source, known = (source_of(each) if isinstance(each, str) else each for each in (source, known))
    if (source.path, source.config) == (known.path, known.config):
        raise ArgumentError("ood_dataset", f"is the dataset that the model is measured on. {NAME_OTHERS}", source.path)
    raw = load_raw(source)
    name = split or (source.test_split if source.test_split in raw or len(raw) > 1 else next(iter(raw)))
    if name not in raw or not len(raw[name]):
        raise ArgumentError(
            "ood_split",
            f"Dataset {source.path!r} has no images in a split {name!r}; its splits are {sorted(raw)}. Name one with",
        )
    image_column = find_image_column(raw[name].features, source, "ood_dataset")
    rows, left_out = _without_known(raw[name], source, class_names)
    if skip_bad_images:
        rows = drop_unreadable(rows, image_column, name)
    total = len(rows)
    if total > OOD_AT_MOST:
        rows = rows.select(np.sort(np.random.default_rng(0).choice(total, OOD_AT_MOST, replace=False)))
    images = ImageDataset(rows, image_column, None, EvalTransform(processor), f"{name} of {source.path}", cache_bytes)
    images.check_images()
    return OodImages(images, source.path, name, total, left_out)


def _without_known(
    rows: Dataset, source: DatasetSource, class_names: Sequence[str]
) -> tuple[Dataset, tuple[str, ...]]:
    """The rows of classes that the model does not have, as far as both have names, and the names of the others."""
    column = named_label_column(rows.features, source)
    feature = rows.features.get(column)
    if not isinstance(feature, ClassLabel) and not (isinstance(feature, Value) and "string" in feature.dtype):
        logger.warning(
            f"Dataset {source.path!r} has no named classes: whether its images belong to the model's is not checked."
        )
        return rows, ()
    labels = values_of(rows, column)
    present = set(labels) - {None, -1}
    names = {label: feature.int2str(label) if isinstance(feature, ClassLabel) else label for label in present}
    own = {_plain(name) for name in class_names}
    shared = {label: name for label, name in names.items() if _plain(name) in own}
    if shared and all(name.isdecimal() for name in shared.values()):
        # Numbers are names of digits in one dataset and of anything in another.
        logger.warning(
            f"Dataset {source.path!r} has classes with the same numbers as the model's ({listed(shared.values())}). "
            "If they mean the same, its images are not unknown: choose another ood_dataset."
        )
        shared = {}
    if not shared:
        return rows, ()
    if len(shared) == len(names):
        only = listed(shared.values())
        raise ArgumentError("ood_dataset", f"has only classes of the model ({only}). {NAME_OTHERS}", source.path)
    kept = [place for place, label in enumerate(labels) if label not in shared]
    logger.warning(
        f"{len(labels) - len(kept):,} of {len(labels):,} images of {source.path!r} are left out, since the model has "
        f"their classes: {listed(shared.values())}."
    )
    return rows.select(kept), tuple(sorted(shared.values()))


def _plain(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ").strip()
