"""Images out of distribution (OOD): of none of a model's classes, from any dataset, whose labels only say which of its
images are left out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from transformers.utils import logging

from ..exceptions import ArgumentError
from .images import CACHE_BYTES, ImageDataset
from .sources import DatasetSource, listed, load_raw, named_label_column, source_of, values_of
from .transforms import EvalTransform, drop_unreadable


logger = logging.get_logger(__name__)

AT_MOST = 10_000  # more make the numbers no surer, since the test images are a sample too


class OodImages(NamedTuple):
    """
    Args:
        images ([`ImageDataset`]): Without labels.
        dataset (`str`): Hub id or folder.
        split (`str`): The split that they are from.
        total (`int`): How many images of the split could have been taken.
        left_out (`tuple[str, ...]`): Classes that the model has too, whose images were left out.
    """

    images: ImageDataset
    dataset: str
    split: str
    total: int
    left_out: tuple[str, ...] = ()


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
        raise ArgumentError(
            "ood_dataset",
            "is the dataset that the model is measured on, whose classes it knows. Name one with images of none of "
            "them.",
            source.path,
        )
    raw = load_raw(source)
    name = _split(raw, source, split)
    rows, image_column = raw[name], _image_column(raw[name].features, source)
    rows, left_out = _without_known(rows, source, class_names)
    if skip_bad_images:
        rows = drop_unreadable(rows, image_column, name)
    total = len(rows)
    if total > AT_MOST:
        rows = rows.select(np.sort(np.random.default_rng(0).choice(total, AT_MOST, replace=False)))
    images = ImageDataset(rows, image_column, None, EvalTransform(processor), f"{name} of {source.path}", cache_bytes)
    images.check_images()
    return OodImages(images, source.path, name, total, left_out)


load_unknowns = load_ood  # its first name


def _split(raw: DatasetDict, source: DatasetSource, wanted: str | None) -> str:
    name = wanted or (source.test_split if source.test_split in raw or len(raw) > 1 else next(iter(raw)))
    if name not in raw:
        raise ArgumentError(
            "ood_split", f"Dataset {source.path!r} has no split {name!r}, only {sorted(raw)}. Name one with"
        )
    if not len(raw[name]):
        raise ArgumentError("ood_split", f"Split {name!r} of dataset {source.path!r} is empty. Name another with")
    return name


def _image_column(features: Features, source: DatasetSource) -> str:
    columns = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    if source.image_column in columns:
        return source.image_column
    if len(columns) != 1:
        raise ValueError(
            f"Dataset {source.path!r} has {len(columns)} image columns ({', '.join(columns) or 'none'}), and exactly "
            "one is needed. Remove the others, or choose another ood_dataset."
        )
    return columns[0]


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
    own = {_plain(name) for name in class_names}
    named = isinstance(feature, ClassLabel)
    present = sorted({label for label in labels if label is not None and label != -1})
    names = {label: feature.int2str(label) if named else str(label) for label in present}
    shared = {label: name for label, name in names.items() if _plain(name) in own}
    if not shared:
        return rows, ()
    if all(name.isdecimal() for name in shared.values()):
        # Numbers are names of digits in one dataset and of anything in another.
        logger.warning(
            f"Dataset {source.path!r} has classes with the same numbers as the model's ({listed(shared.values())}). "
            "If they mean the same, its images are not unknown: choose another ood_dataset."
        )
        return rows, ()
    if len(shared) == len(names):
        raise ValueError(
            f"All classes of ood_dataset={source.path!r} are classes of the model ({listed(shared.values())}), so its "
            "images are not unknown. Name a dataset with images of none of them."
        )
    kept = [place for place, label in enumerate(labels) if label not in shared]
    logger.warning(
        f"{len(labels) - len(kept):,} of {len(labels):,} images of {source.path!r} are left out, since the model has "
        f"their classes: {listed(shared.values())}."
    )
    return rows.select(kept), tuple(sorted(shared.values()))


def _plain(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ").strip()
