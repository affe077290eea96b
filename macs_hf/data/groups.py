"""The column that test images are grouped by, such as a camera or a hospital: checked, and as text."""

import math
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, Features, Value
from transformers.utils import logging

from .columns import values_of
from .sources import DatasetSource


logger = logging.get_logger(__name__)

MAX_GROUPS = 100
NO_VALUE = "(no value)"


def check_group_column(features: Features, source: DatasetSource, split: str) -> None:
    """Refuse a column that does not exist or has no single value per image."""
    name = source.group_column
    if name not in features:
        raise ValueError(
            f"Split {split!r} of dataset {source.path!r} has no column {name!r} to group by; its columns are "
            f"{', '.join(sorted(features))}. Name one of them with group_column=..."
        )
    if not isinstance(features[name], ClassLabel | Value) or "binary" in features[name].dtype:
        raise ValueError(
            f"Column {name!r} of dataset {source.path!r} holds {features[name]}, not one value per image. Name "
            "another with group_column=..."
        )


def group_values(dataset: Dataset, column: str) -> np.ndarray:
    """
    The group of each row, as text.

    Rows without a value are a group of their own, with a warning.

    Raises:
        `ValueError`: If there are more than 100 groups, or no values at all.
    """
    feature = dataset.features[column]
    groups = np.array([_text(value, feature) for value in values_of(dataset, column)])
    number = len(np.unique(groups))
    if number > MAX_GROUPS:
        raise ValueError(
            f"Column {column!r} has {number:,} different values in {len(groups):,} images; at most {MAX_GROUPS} "
            "groups can be compared. Name a column of fewer values with group_column=..., or one with ranges of them."
        )
    missing = np.count_nonzero(groups == NO_VALUE)
    if missing == len(groups):
        raise ValueError(f"No image has a value in column {column!r}. Name another with group_column=...")
    if missing:
        logger.warning(
            f"{missing:,} of {len(groups):,} images have no value in column {column!r}; they are the group "
            f"{NO_VALUE!r}."
        )
    return groups


def _text(value: Any, feature: ClassLabel | Value) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NO_VALUE
    if isinstance(feature, ClassLabel):
        return feature.int2str(value) if value >= 0 else NO_VALUE
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or NO_VALUE
