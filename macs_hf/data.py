"""A Hub, local or embedded dataset as seeded train, validation and test splits with one image and one label column."""

import os
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features
from transformers.utils import logging

from .hub import hub_needed, is_local


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class DatasetSource:
    """Where a dataset is and how it is laid out."""

    path: str
    config: str | None = None
    image_column: str | None = None  # None: the only image column
    label_column: str | None = None  # None: the only class label, or `label`
    train_split: str = "train"
    validation_split: str | None = None  # None: carved from train
    test_split: str = "test"
    num_classes: int | None = None
    horizontal_flip: bool = True  # mirroring keeps the meaning


# The benchmark's six datasets, and the one that needs no download.
DATASETS: dict[str, DatasetSource] = {
    "digits": DatasetSource("digits", num_classes=10, horizontal_flip=False),
    "cifar10": DatasetSource("uoft-cs/cifar10", None, "img", "label", num_classes=10),
    "cifar100": DatasetSource("uoft-cs/cifar100", None, "img", "fine_label", num_classes=100),
    "svhn": DatasetSource(
        "ufldl-stanford/svhn", "cropped_digits", "image", "label", num_classes=10, horizontal_flip=False
    ),
    "oxford_pets": DatasetSource("timm/oxford-iiit-pet", None, "image", "label", num_classes=37),
    "food101": DatasetSource("ethz/food101", None, "image", "label", test_split="validation", num_classes=101),
    "flowers102": DatasetSource(
        "dpdl-benchmark/oxford_flowers102", None, "image", "label", validation_split="validation", num_classes=102
    ),
}

VALIDATION_SHARE = 0.1
# Splits stay the same for all seeds of training, so that runs can be compared.
SPLIT_SEED = 0


class ImageSplits(NamedTuple):
    """Three splits without common rows, and what their columns mean."""

    train: Dataset
    validation: Dataset
    test: Dataset
    image_column: str
    label_column: str
    label_names: list[str]


def source_of(
    dataset: str, config: str | None = None, image_column: str | None = None, label_column: str | None = None, **splits
) -> DatasetSource:
    """A benchmark dataset by name, or a Hub id or local folder laid out as found; what is given here wins."""
    source = DATASETS[dataset] if dataset in DATASETS and not is_local(dataset) else DatasetSource(dataset)
    chosen = {"config": config, "image_column": image_column, "label_column": label_column, **splits}
    return replace(source, **{name: value for name, value in chosen.items() if value is not None})


def load_splits(source: DatasetSource) -> ImageSplits:
    """
    Load a dataset and divide it into train, validation and test, so that neither a temperature nor the choice of a
    model ever sees test. A validation or test split that is missing is carved out of train, stratified and seeded.
    """
    raw = _load(source)
    if source.train_split not in raw:
        raise ValueError(f"Dataset {source.path!r} has no split {source.train_split!r}, only {sorted(raw)}.")
    test_split = source.test_split if source.test_split in raw else None
    if test_split is None and source.test_split != "test":
        raise ValueError(f"Dataset {source.path!r} has no split {source.test_split!r} to test on, only {sorted(raw)}.")
    validation_split = source.validation_split
    if validation_split not in (None, *raw):
        raise ValueError(f"Dataset {source.path!r} has no split {validation_split!r}, only {sorted(raw)}.")
    named = [split for split in (source.train_split, validation_split, test_split) if split is not None]
    if len(set(named)) < len(named):
        raise ValueError(
            f"Dataset {source.path!r}: train_split={source.train_split!r}, calibration_split={validation_split!r} and "
            f"split={test_split!r} must differ, or the model is tested on what it has seen. Choose other splits, or "
            "leave the calibration split out to have it carved from train."
        )
    if validation_split is None and "validation" in raw and "validation" not in (source.train_split, test_split):
        validation_split = "validation"
    # Splits that are not wanted (SVHN has 531,131 `extra` images) are left alone.
    raw = DatasetDict({name: raw[name] for name in (source.train_split, validation_split, test_split) if name})

    image_column, label_column = find_columns(raw[source.train_split].features, source)
    raw, label_names = with_class_labels(raw, label_column, source)
    for name, split in raw.items():
        check_labels(split, label_column, len(label_names), f"split {name!r} of {source.path!r}")

    train = raw[source.train_split]
    if test_split is None:
        logger.warning(
            f"Dataset {source.path!r} has no split {source.test_split!r}; a tenth of train is the test set."
        )
        train, test = carve(train, label_column, VALIDATION_SHARE)
    else:
        test = raw[test_split]
    if validation_split is None:
        train, validation = carve(train, label_column, VALIDATION_SHARE)
    else:
        validation = raw[validation_split]
    return ImageSplits(train, validation, test, image_column, label_column, label_names)


def load_split(source: DatasetSource, split: str) -> tuple[Dataset, str, str, list[str]]:
    """One split, its image and label columns and its label names; a missing `validation` is carved from train."""
    raw = _load(source)
    if split not in raw:
        splits = load_splits(source)
        if split not in splits._fields[:3]:
            raise ValueError(f"Dataset {source.path!r} has no split {split!r}, only {sorted(raw)}.")
        return getattr(splits, split), splits.image_column, splits.label_column, splits.label_names
    source = replace(source, train_split=split)
    image_column, label_column = find_columns(raw[split].features, source)
    raw, label_names = with_class_labels(DatasetDict({split: raw[split]}), label_column, source)
    check_labels(raw[split], label_column, len(label_names), f"split {split!r} of {source.path!r}")
    return raw[split], image_column, label_column, label_names


def align_labels(dataset: Dataset, label_column: str, label_names: list[str], config: Any) -> Dataset:
    """The dataset with the class numbers of a model that knows the same classes, perhaps in another order."""
    known = {str(name).lower(): int(index) for name, index in config.label2id.items()}
    names = [name.lower() for name in label_names]
    if names == sorted(known, key=known.get):
        return dataset
    if set(names) == set(known):
        label2id = {name: known[name.lower()] for name in label_names}
        return dataset.align_labels_with_mapping(label2id, label_column)
    if len(names) == config.num_labels:
        logger.warning(
            f"The model calls its classes {list(known)[:3]}..., the dataset {label_names[:3]}...; they are taken to "
            "be in the same order."
        )
        return dataset
    raise ValueError(
        f"The model has {config.num_labels} classes ({', '.join(list(known)[:3])}, ...), the dataset {len(names)} "
        f"({', '.join(label_names[:3])}, ...). Choose a dataset of the model's classes, or train it on this one."
    )


def find_columns(features: Features, source: DatasetSource) -> tuple[str, str]:
    """The image column and the label column: those named, or the only ones there can be."""
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    image = source.image_column or (images[0] if len(images) == 1 else None)
    if image is None:
        raise ValueError(
            f"Dataset {source.path!r} has {len(images)} image columns ({', '.join(images) or 'none'}) among "
            f"{sorted(features)}. Name one with --image_column."
        )
    if image not in features or not isinstance(features[image], datasets.Image):
        what = f"holds {features[image]}" if image in features else "does not exist"
        raise ValueError(
            f"Column {image!r} of dataset {source.path!r} {what}, not images; its image columns are "
            f"{images or 'none'}. Name one with --image_column."
        )
    classes = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    label = source.label_column or next((name for name in ("label", "labels") if name in features), None)
    label = label or (classes[0] if len(classes) == 1 else None)
    if label is None or label not in features:
        raise ValueError(
            f"Dataset {source.path!r} has no label column{f' {label!r}' if label else ''}; its columns are "
            f"{sorted(features)}, {len(classes)} of them class labels ({', '.join(classes) or 'none'}). Name one with "
            "--label_column."
        )
    return image, label


def with_class_labels(raw: DatasetDict, label_column: str, source: DatasetSource) -> tuple[DatasetDict, list[str]]:
    """Labels as `ClassLabel`: named ones stay, integers and strings become names in sorted order."""
    feature = raw[source.train_split].features[label_column]
    if not isinstance(feature, ClassLabel):
        kind = getattr(feature, "dtype", str(feature))
        if not kind.startswith(("int", "uint", "string", "large_string", "bool")):
            raise ValueError(
                f"Column {label_column!r} of dataset {source.path!r} holds {kind}, not one class per image. "
                "Name another with --label_column."
            )
        for name, split in raw.items():
            wrong = [value for value in split.unique(label_column) if value is None or value == -1]
            if wrong:
                raise ValueError(
                    f"Label {wrong[0]} in column {label_column!r}, split {name!r} of dataset {source.path!r}, marks "
                    "rows without a label. Leave them out, or choose another split."
                )
        values = sorted(set().union(*(split.unique(label_column) for split in raw.values())))
        names = [str(value) for value in values]
        feature = ClassLabel(names=names)
        index = {value: i for i, value in enumerate(values)}

        def encode(label: object) -> dict[str, int]:
            return {label_column: index[label]}

        for name, split in raw.items():
            features = Features(split.features | {label_column: feature})
            raw[name] = split.map(
                encode, input_columns=[label_column], features=features, desc="Numbering the classes"
            )
    if len(feature.names) < 2:
        raise ValueError(
            f"Dataset {source.path!r} has {len(feature.names)} class ({', '.join(feature.names)}) in column "
            f"{label_column!r}; a classifier needs at least two."
        )
    return raw, feature.names


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


def labels_of(dataset: Dataset, label_column: str) -> np.ndarray:
    return dataset.with_format("numpy", columns=[label_column])[:][label_column]


def check_labels(dataset: Dataset, label_column: str, num_classes: int, where: str) -> None:
    labels = labels_of(dataset, label_column)
    if len(labels) == 0:
        raise ValueError(f"{where} is empty.")
    wrong = np.flatnonzero(~((labels >= 0) & (labels < num_classes)))  # a missing label is nan
    if len(wrong):
        raise ValueError(
            f"Label {labels[wrong[0]]} of row {wrong[0]} in {where} is outside [0, {num_classes}) ({len(wrong)} such "
            "rows; -1 often marks a split without labels). Mend the labels or choose another split."
        )


def _load(source: DatasetSource) -> DatasetDict:
    if source.path == "digits" and not is_local(source.path):
        return _digits()
    if any(os.path.exists(os.path.join(source.path, name)) for name in ("dataset_dict.json", "state.json")):
        saved = datasets.load_from_disk(source.path)
        return saved if isinstance(saved, DatasetDict) else DatasetDict(train=saved)
    with hub_needed(f"Dataset {source.path!r}", source.path, "dataset"):
        return datasets.load_dataset(source.path, source.config)


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
