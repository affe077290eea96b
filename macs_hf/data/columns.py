"""The columns of a dataset: which holds the images, which the labels, and what the labels mean."""

import os
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from transformers.utils import logging

from ..report.checks import check_labels
from .sources import DatasetSource


logger = logging.get_logger(__name__)


def find_columns(features: Features, source: DatasetSource) -> tuple[str, str]:
    """The image column and the label column: those named, or the only ones there can be."""
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    image = source.image_column or (images[0] if len(images) == 1 else None)
    if image is None:
        raise ValueError(
            f"Dataset {source.path!r} has {len(images)} image columns ({', '.join(images) or 'none'}) among "
            f"{sorted(features)}. Name one with image_column=..."
        )
    if image not in features or not isinstance(features[image], datasets.Image):
        what = f"holds {features[image]}" if image in features else "does not exist"
        raise ValueError(
            f"Column {image!r} of dataset {source.path!r} {what}, not images; its image columns are "
            f"{images or 'none'}. Name one with image_column=..."
        )
    classes = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    label = source.label_column or next((name for name in ("label", "labels") if name in features), None)
    label = label or (classes[0] if len(classes) == 1 else None)
    if label is None or label not in features:
        if list(features) == [image] and (only := _only_class(source.path)):
            raise ValueError(
                f"Only one class was found in the folder {source.path!r}: {only!r}. A classifier needs at least two, "
                f"each with a folder of its own: {only}/1.png, another/1.png, ..., or, with splits, "
                f"train/{only}/1.png, train/another/1.png, test/{only}/1.png, ..."
            )
        raise ValueError(
            f"Dataset {source.path!r} has no label column{f' {label!r}' if label else ''}; its columns are "
            f"{sorted(features)}, {len(classes)} of them class labels ({', '.join(classes) or 'none'}). Name one with "
            "label_column=... (a folder of images gets labels from two or more class folders)."
        )
    return image, label


def _only_class(folder: str) -> str | None:
    """The name of the class folders in `folder`, if all have the same; `datasets` makes no labels of one class."""
    holders = {
        Path(where)
        for where, _, files in os.walk(folder)
        if any(os.path.splitext(file)[1].lower() in ImageFolder.EXTENSIONS for file in files)
    }
    names = {holder.name for holder in holders}
    return names.pop() if len(names) == 1 and Path(folder) not in holders else None


def check_columns(raw: DatasetDict, image_column: str, label_column: str, source: DatasetSource) -> None:
    """Refuse splits without the columns of the first one, or with something else than images in them."""
    for name, split in raw.items():
        for column in (image_column, label_column):
            if column not in split.features:
                raise ValueError(
                    f"Split {name!r} of dataset {source.path!r} has no column {column!r}, only {split.column_names}. "
                    "Give all splits the same columns, or name other splits."
                )
        if not isinstance(split.features[image_column], datasets.Image):
            raise ValueError(
                f"Column {image_column!r} in split {name!r} of dataset {source.path!r} holds "
                f"{split.features[image_column]}, not images. Cast it with dataset.cast_column({image_column!r}, "
                "datasets.Image()), or name other splits."
            )


def with_class_labels(raw: DatasetDict, label_column: str, source: DatasetSource) -> tuple[DatasetDict, list[str]]:
    """Labels as `ClassLabel`: named ones stay, integers and strings become names in sorted order."""
    for name, split in raw.items():
        check_present(split, label_column, f"split {name!r} of dataset {source.path!r}")
    feature = next(iter(raw.values())).features[label_column]
    raw = DatasetDict({name: _numbered_alike(split, name, label_column, feature) for name, split in raw.items()})
    if not isinstance(feature, ClassLabel):
        for name, split in raw.items():
            kind = getattr(split.features[label_column], "dtype", str(split.features[label_column]))
            if not kind.startswith(("int", "uint", "string", "large_string", "bool")):
                raise ValueError(
                    f"Column {label_column!r} of dataset {source.path!r} holds {kind}, not one class per image. "
                    "Name another with label_column=..."
                )
            if -1 in split.unique(label_column):
                count = np.count_nonzero(labels_of(split, label_column) == -1)
                raise ValueError(
                    f"Label -1 in column {label_column!r}, split {name!r} of dataset {source.path!r}, marks {count} "
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


def _numbered_alike(split: Dataset, name: str, label_column: str, feature: Any) -> Dataset:
    """The split with the class numbers of the first one; refused if its classes are others."""
    own = split.features[label_column]
    if isinstance(own, ClassLabel) and isinstance(feature, ClassLabel):
        if own.names == feature.names:
            return split
        if sorted(own.names) == sorted(feature.names):
            return _renumbered(split, label_column, feature.names, [feature.names.index(label) for label in own.names])
    elif type(own) is type(feature) and _is_text(own) == _is_text(feature):
        return split
    raise ValueError(
        f"The splits disagree about column {label_column!r}: split {name!r} has {own}, the first split {feature}. "
        "Give all splits the same classes, or name other splits."
    )


def _is_text(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string", "string_view")


def _renumbered(dataset: Dataset, label_column: str, names: list[str], new_numbers: list[int]) -> Dataset:
    """The dataset with other class numbers (`datasets` has this too, but takes names that differ in case for one)."""

    def renumber(label: int) -> dict[str, int]:
        return {label_column: new_numbers[label] if label >= 0 else label}

    features = Features(dataset.features | {label_column: ClassLabel(names=names)})
    return dataset.map(renumber, input_columns=[label_column], features=features, desc="Aligning the labels")


def values_of(dataset: Dataset, column: str) -> list[Any]:
    """All values of a column as they are stored; no other column is read."""
    return dataset.with_format("arrow", columns=[column])[:].column(column).to_pylist()


def labels_of(dataset: Dataset, label_column: str) -> np.ndarray:
    return dataset.with_format("numpy", columns=[label_column])[:][label_column]


def check_present(dataset: Dataset, label_column: str, where: str) -> None:
    """Refuse rows without a label."""
    missing = dataset.with_format("arrow", columns=[label_column])[:].column(label_column).null_count
    if missing:
        raise ValueError(
            f"{missing} of {len(dataset)} labels in column {label_column!r} of {where} are missing (None). Leave "
            f"those rows out, with dataset.filter(lambda label: label is not None, input_columns=[{label_column!r}]), "
            "or choose another split."
        )


def check_numbered(dataset: Dataset, label_column: str, where: str) -> None:
    """Refuse labels that are missing, or text in place of class numbers."""
    check_present(dataset, label_column, where)
    if _is_text(dataset.features[label_column]):
        raise ValueError(
            f"Column {label_column!r} of {where} holds text ({', '.join(dataset.unique(label_column)[:3])}, ...). "
            f"Number the classes, alike in every split, with dataset.cast_column({label_column!r}, "
            "datasets.ClassLabel(names=[...]))."
        )


def check_label_column(dataset: Dataset, label_column: str, num_classes: int, where: str) -> None:
    labels = labels_of(dataset, label_column)
    if len(labels) == 0:
        raise ValueError(f"{where} is empty.")
    advice = "-1 often marks a split without labels. Correct the labels or choose another split."
    check_labels(labels, num_classes, where, advice)


def align_labels(dataset: Dataset, label_column: str, label_names: list[str], config: Any) -> Dataset:
    """The dataset with the class numbers of a model that knows the same classes, perhaps in another order."""
    classes = [str((config.id2label or {}).get(index, f"LABEL_{index}")) for index in range(config.num_labels)]
    model_names, names = _comparable(classes, label_names)
    if names == model_names:
        return dataset
    if sorted(names) == sorted(model_names):
        return _renumbered(dataset, label_column, classes, [model_names.index(name) for name in names])
    shown = [", ".join(" ".join(name.split()) for name in side[:3]) for side in (model_names, label_names)]
    sides = f"the model's classes are {shown[0]}, ..., the dataset's {shown[1]}, ..."
    if len(names) != len(model_names):
        raise ValueError(
            f"The model has {len(model_names)} classes, the dataset {len(names)}: {sides}. Choose a dataset of the "
            "model's classes, or train it on this one."
        )
    if any(name in model_names and model_names.index(name) != index for index, name in enumerate(names)):
        raise ValueError(f"Some classes have the same names but other numbers, others differ: {sides}. Rename them.")
    logger.warning(renamed_line(renamed_classes(classes, label_names)))
    return dataset


def renamed_classes(model_names: Sequence[str], label_names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The classes of one number that a model and a dataset call by different names: both names, the model's first."""
    differ = [name != other for name, other in zip(*_comparable(model_names, label_names), strict=False)]
    return tuple(compress(zip(model_names, label_names, strict=False), differ))


def renamed_line(renamed: Sequence[tuple[str, str]], at_most: int = 3) -> str:
    """What it means for a measurement, in one line."""
    shown = ", ".join(" ".join(f"{name} is {other}".split()) for name, other in renamed[:at_most])
    more = f" and {len(renamed) - at_most} more" if len(renamed) > at_most else ""
    return (
        "The class names of the model and of the dataset differ, and are taken to be in the same order: "
        f"{shown}{more}. If that is wrong, so are the results."
    )


def _comparable(model_names: Sequence[str], label_names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Case may differ between a model and a dataset, unless it tells classes apart."""
    if len({name.lower() for name in model_names}) < len(model_names):
        return list(model_names), list(label_names)
    return [name.lower() for name in model_names], [name.lower() for name in label_names]
