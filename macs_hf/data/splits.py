"""A Hub, local or embedded dataset as seeded train, validation and test splits with one image and one label column."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDatasetDict
from transformers.utils import logging

from ..hub.reach import hub_needed, is_local
from .columns import check_labels, find_columns, labels_of, with_class_labels
from .sources import DatasetSource


logger = logging.get_logger(__name__)


VALIDATION_SHARE = 0.1
# Splits stay the same for all seeds of training, so that runs can be compared.
SPLIT_SEED = 0


class ImageSplits(NamedTuple):
    """Three splits without common rows, and what their columns mean."""

    train: Dataset | None
    validation: Dataset | None
    test: Dataset
    image_column: str
    label_column: str
    label_names: list[str]
    validation_name: str = "validation"  # where its rows come from


def load_splits(source: DatasetSource, need_train: bool = True) -> ImageSplits:
    """
    Load a dataset and divide it into train, validation and test, so that neither a temperature nor the choice of a
    model ever sees test. A validation or test split that is missing is carved out of train, stratified and seeded.

    Without `need_train` a dataset may have no training split; `train`, and a missing `validation`, are then `None`.
    """
    raw = load_raw(source)
    validation_split, test_split = split_names(source, list(raw), need_train)
    has_train = source.train_split in raw
    # Splits that are not wanted (SVHN has 531,131 `extra` images) are left alone.
    raw = DatasetDict({name: raw[name] for name in (source.train_split, validation_split, test_split) if name in raw})

    image_column, label_column = find_columns(next(iter(raw.values())).features, source)
    raw, label_names = with_class_labels(raw, label_column, source)
    for name, split in raw.items():
        check_labels(split, label_column, len(label_names), f"split {name!r} of {source.path!r}")

    train = raw.get(source.train_split)
    carved = [name for name, split in (("test", test_split), ("validation", validation_split)) if split is None]
    if train is not None and len(train) <= len(carved):
        raise ValueError(
            f"Split {source.train_split!r} of dataset {source.path!r} has {len(train)} images, too few to carve "
            f"{' and '.join(carved)} from it. Add some of each class, or name other splits with --split and "
            "--calibration_split."
        )
    if test_split is None:
        logger.warning(
            f"Dataset {source.path!r} has no split {source.test_split!r}; a tenth of train is the test set."
        )
        train, test = carve(train, label_column, VALIDATION_SHARE)
    else:
        test = raw[test_split]
    if validation_split is None and not has_train:
        validation = None
    elif validation_split is None:
        train, validation = carve(train, label_column, VALIDATION_SHARE)
    else:
        validation = raw[validation_split]
    if train is not None:
        left = f", which carving {' and '.join(carved)} left," if carved else ""
        _check_classes(train, test, label_column, label_names, f"{source.path!r}{left}")
    if validation_split is None and not need_train and has_train:
        logger.warning(
            f"Dataset {source.path!r} has no validation split: a tenth of {source.train_split!r} stands in for it. A "
            "model that was trained on those rows will look better calibrated there than it is."
        )
    origin = f"{source.train_split} (a tenth, carved)" if validation_split is None else validation_split
    return ImageSplits(train, validation, test, image_column, label_column, label_names, origin)


def split_names(source: DatasetSource, names: Sequence[str], need_train: bool = True) -> tuple[str | None, str | None]:
    """Which of a dataset's splits are validation and test; `None` for one that has to be carved from train."""
    if source.train_split not in names and (need_train or source.test_split not in names):
        raise ValueError(f"Dataset {source.path!r} has no split {source.train_split!r}, only {sorted(names)}.")
    test_split = source.test_split if source.test_split in names else None
    if test_split is None and source.test_split != "test":
        raise ValueError(
            f"Dataset {source.path!r} has no split {source.test_split!r} to test on, only {sorted(names)}."
        )
    validation_split = source.validation_split
    if validation_split not in (None, *names):
        raise ValueError(f"Dataset {source.path!r} has no split {validation_split!r}, only {sorted(names)}.")
    named = [split for split in (source.train_split, validation_split, test_split) if split is not None]
    if len(set(named)) < len(named):
        raise ValueError(
            f"Dataset {source.path!r}: train_split={source.train_split!r}, calibration_split={validation_split!r} and "
            f"split={test_split!r} must differ, or the model is tested on what it has seen. Choose other splits, or "
            "leave the calibration split out to have it carved from train."
        )
    if validation_split is None and "validation" in names and "validation" not in (source.train_split, test_split):
        validation_split = "validation"
    return validation_split, test_split


def _check_classes(train: Dataset, test: Dataset, label_column: str, label_names: list[str], where: str) -> None:
    trained, tested = (set(np.unique(labels_of(split, label_column))) for split in (train, test))
    if len(trained) < 2:
        (only,) = trained
        raise ValueError(
            f"All {len(train)} training images of {where} are of class {label_names[only]!r}; a classifier needs at "
            "least two classes to learn from."
        )
    if unseen := tested - trained:
        logger.warning(
            f"Classes in test that train does not have: {[label_names[label] for label in sorted(unseen)]}."
        )


def carve(dataset: Dataset, label_column: str, share: float) -> tuple[Dataset, Dataset]:
    """Split a share off, stratified by class where every class can be split."""
    counts = np.bincount(labels_of(dataset, label_column))
    enough = counts[counts > 0].min() >= 2 and len(dataset) * share >= (counts > 0).sum()
    parts = dataset.train_test_split(
        test_size=share, seed=SPLIT_SEED, stratify_by_column=label_column if enough else None
    )
    return parts["train"], parts["test"]


def class_balanced_subset(dataset: Dataset, label_column: str, size: int, seed: int) -> Dataset:
    """`size` rows in which the classes have the shares they have in `dataset`, as nearly as whole rows allow."""
    labels = labels_of(dataset, label_column)
    if not 0 < size <= len(labels):
        raise ValueError(f"A subset of {size} rows was asked for, but the training set has {len(labels)}.")
    order = np.random.default_rng(seed).permutation(len(labels))
    # Within each class, rows get evenly spaced ranks in (0, 1); the smallest ranks are a stratified subset.
    ranks = np.empty(len(labels))
    for label in np.unique(labels):
        rows = order[labels[order] == label]
        ranks[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    chosen = order[np.argsort(ranks[order], kind="stable")[:size]]
    return dataset.select(np.sort(chosen))


def load_raw(source: DatasetSource, streaming: bool = False) -> DatasetDict | IterableDatasetDict:
    """All splits as they are; data on this disk or embedded are never streamed."""
    if source.path == "digits" and not is_local(source.path):
        return _digits()
    if any(os.path.exists(os.path.join(source.path, name)) for name in ("dataset_dict.json", "state.json")):
        saved = datasets.load_from_disk(source.path)
        return saved if isinstance(saved, DatasetDict) else DatasetDict(train=saved)
    with hub_needed(f"Dataset {source.path!r}", source.path, "dataset"):
        return datasets.load_dataset(source.path, source.config, streaming=streaming)


def _digits() -> DatasetDict:
    """1,797 real scans of handwritten digits, 8x8 pixels, that ship with scikit-learn."""
    from PIL import Image
    from sklearn.datasets import load_digits

    scans = load_digits()
    images = [Image.fromarray(np.uint8(scan * (255 / 16))) for scan in scans.images]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=[str(n) for n in scans.target_names])})
    whole = Dataset.from_dict({"image": images, "label": scans.target.tolist()}, features=features)
    train, test = carve(whole, "label", 0.25)
    return DatasetDict(train=train, test=test)
