"""A Hub, local or embedded dataset as seeded train, validation and test splits with one image and one label column."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDatasetDict
from transformers.utils import logging

from ..hub.connection import hub_needed, is_local
from .columns import check_columns, check_label_column, find_columns, labels_of, with_class_labels
from .groups import check_group_column
from .sources import EMBEDDED, DatasetSource
from .split_plan import ROLES, SplitPlan, plan_splits


logger = logging.get_logger(__name__)


VALIDATION_SHARE = 0.1
# Splits stay the same for all seeds of training, so that runs can be compared.
SPLIT_SEED = 0


class ImageSplits(NamedTuple):
    """Splits without common rows, those that were asked for, and what their columns mean."""

    train: Dataset | None
    validation: Dataset | None
    test: Dataset
    image_column: str
    label_column: str
    label_names: list[str]
    validation_name: str = "validation"  # where its rows come from
    horizontal_flip: bool = True  # whether mirroring keeps the meaning
    group_column: str | None = None  # what test images are grouped by
    test_index: np.ndarray | None = None  # where they are in their split, if some of it were left out


def load_splits(source: DatasetSource, wanted: Sequence[str] = ROLES) -> ImageSplits:
    """
    Load a dataset and divide it into train, validation and test, so that neither a temperature nor the choice of a
    model ever sees test. A validation or test split that is missing is split off train, stratified and seeded.

    Args:
        source ([`DatasetSource`]): Which dataset, and which of its splits serve for what.
        wanted (`Sequence[str]`, *optional*, defaults to all three): Those of `train`, `validation` and `test` that are
            needed; the others are `None`, and need not exist.
    """
    raw = load_raw(source)
    plan = plan_splits(source, list(raw), wanted)
    for warning in plan.warnings:
        logger.warning(warning)
    features = raw[next(iter(plan.named.values()))].features
    image_column, label_column = find_columns(features, source)
    # Splits that are not needed (SVHN has 531,131 `extra` images) are left alone.
    needed = set(plan.named.values())
    if not isinstance(features[label_column], ClassLabel):
        # Classes without names are numbered in order, over the splits that a training run would number.
        needed |= {source.train_split, source.validation_split or "validation"} & set(raw)
    # The first split decides the numbers of the classes.
    order = dict.fromkeys([source.train_split, source.validation_split or "validation", *plan.named.values()])
    raw = DatasetDict({name: raw[name] for name in order if name in needed})
    check_columns(raw, image_column, label_column, source)
    if source.group_column is not None:
        tested = plan.named.get("test", source.train_split)
        check_group_column(raw[tested].features, source, tested)
    raw, label_names = with_class_labels(raw, label_column, source)
    for name, split in raw.items():
        check_label_column(split, label_column, len(label_names), f"split {name!r} of {source.path!r}")

    splits = _apply(plan, raw, label_column, source)
    if "train" in wanted:
        left = f", which splitting off {' and '.join(plan.split_off)} left," if plan.split_off else ""
        _check_classes(splits["train"], splits["test"], label_column, label_names, f"{source.path!r}{left}")
    train, validation = (splits[role] if role in wanted else None for role in ("train", "validation"))
    origin = plan.origin("validation") if validation is not None else "validation"
    columns = (image_column, label_column, label_names)
    return ImageSplits(
        train, validation, splits["test"], *columns, origin, source.horizontal_flip, source.group_column
    )


def _apply(plan: SplitPlan, raw: DatasetDict, label_column: str, source: DatasetSource) -> dict[str, Dataset]:
    splits = {role: raw[name] for role, name in plan.named.items()}
    if plan.split_off and len(splits["train"]) <= len(plan.split_off):
        raise ValueError(
            f"Split {source.train_split!r} of dataset {source.path!r} has {len(splits['train'])} images, too few to "
            f"split off {' and '.join(plan.split_off)}. Add some of each class, or name other splits with "
            "test_split=... and validation_split=..."
        )
    for role in plan.split_off:
        splits["train"], splits[role] = split_off(splits["train"], label_column, VALIDATION_SHARE)
    return splits


def _check_classes(train: Dataset, test: Dataset, label_column: str, label_names: list[str], where: str) -> None:
    trained, tested = (set(np.unique(labels_of(split, label_column))) for split in (train, test))
    if len(trained) < 2:
        (only,) = trained
        raise ValueError(
            f"All {len(train)} training images of {where} are of class {label_names[only]!r}; a classifier needs at "
            "least two classes to learn from."
        )
    if unseen := tested - trained:
        logger.warning(f"Classes in test that train does not have: {_listed(unseen, label_names)}.")
    if empty := set(range(len(label_names))) - trained - tested:
        logger.warning(f"Classes without an image in train and test: {_listed(empty, label_names)}.")


def _listed(labels: set[int], label_names: list[str], at_most: int = 20) -> str:
    names = [label_names[label] for label in sorted(labels)[:at_most]]
    return f"{names}" + (f" and {len(labels) - at_most} more" if len(labels) > at_most else "")


def split_off(dataset: Dataset, label_column: str, share: float | int) -> tuple[Dataset, Dataset]:
    """The rest and a share or a number of the rows, stratified by class where every class can be split."""
    counts = np.bincount(labels_of(dataset, label_column))
    size = share if isinstance(share, int) else len(dataset) * share
    enough = counts[counts > 0].min() >= 2 and size >= (counts > 0).sum()
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
    """All splits, unchanged; data on this disk or embedded are never streamed."""
    saved = any(os.path.exists(os.path.join(source.path, name)) for name in ("dataset_dict.json", "state.json"))
    if source.config is not None and (saved or source.path in EMBEDDED):
        raise ValueError(f"Dataset {source.path!r} has no configurations: leave config={source.config!r} out.")
    if source.path in EMBEDDED and not is_local(source.path):
        return _digits(few=source.path == "few_digits")
    if os.path.isfile(source.path):
        raise ValueError(f"Dataset {source.path!r} is a file. Give the folder that it is in.")
    if os.path.isfile(os.path.join(source.path, "model.safetensors")):
        raise ValueError(f"Dataset {source.path!r} is the folder of a saved model. Give the folder of the images.")
    try:
        if saved:
            found = datasets.load_from_disk(source.path)
            return found if isinstance(found, DatasetDict) else DatasetDict(train=found)
        with hub_needed(f"Dataset {source.path!r}", source.path, "dataset"):
            return datasets.load_dataset(source.path, source.config, streaming=streaming)
    except OSError:
        raise  # a missing file or the Hub, which say so themselves
    except Exception as error:
        # A broken README, table of metadata or file, or a loading script, makes `datasets` raise nearly anything.
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = " ".join(str(cause).split()) or type(cause).__name__
        if not isinstance(cause, ValueError | RuntimeError | OSError):
            reason = f"it is damaged, or a split of it is empty ({type(cause).__name__}: {reason})"
        raise ValueError(f"Dataset {source.path!r} cannot be loaded: {reason}") from error


def _digits(few: bool) -> DatasetDict:
    """
    1,797 real scans of handwritten digits, 8x8 pixels, that ship with scikit-learn; if `few`, 300 to train on, so that
    there are mistakes to see, 400 to hold out, enough for guarantees, and 1,097 to test on.
    """
    from PIL import Image
    from sklearn.datasets import load_digits

    scans = load_digits()
    images = [Image.fromarray(np.uint8(scan * (255 / 16))) for scan in scans.images]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=[str(n) for n in scans.target_names])})
    whole = Dataset.from_dict({"image": images, "label": scans.target.tolist()}, features=features)
    if few:
        rest, test = split_off(whole, "label", 1097)
        train, validation = split_off(rest, "label", 400)
        return DatasetDict(train=train, validation=validation, test=test)
    train, test = split_off(whole, "label", 0.25)
    return DatasetDict(train=train, test=test)
