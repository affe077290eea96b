"""Checks of single values; messages begin with the name of the field, so that a reader can put a path before it."""

import math
from typing import Any

import numpy as np


# Means and quantiles of the same numbers may differ in the last digits.
ROUNDING = 1e-6
MAP_LABELS = "Map the labels to 0 .. classes - 1, or give the model a head of the right size."


def check_range(name: str, value: float | None, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse a number that is not finite or lies outside of [low, high], but for rounding; `None` is not checked."""
    if value is None:
        return
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    if not low - ROUNDING <= value <= high + ROUNDING:
        bounds = f"at least {low:g}" if high == math.inf else f"within [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {bounds}, got {value}")


def check_share(name: str, value: float | None) -> None:
    """Refuse what is no share, as accuracies, confidences and calibration errors are."""
    check_range(name, value, 0.0, 1.0)


def check_count(name: str, value: int | None, at_least: int = 0) -> None:
    """Refuse what is no whole number of things."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


def check_labels(labels: Any, classes: int, where: str = "labels", advice: str = MAP_LABELS) -> None:
    """
    Refuse class numbers outside [0, classes).

    Args:
        labels (`np.ndarray` or `torch.Tensor` of shape `(n,)`): On the CPU; wide enough to hold `classes`.
        classes (`int`): Number of classes.
        where (`str`, *optional*): What holds the labels, for the message.
        advice (`str`, *optional*): What to do, for the message.
    """
    wrong = np.flatnonzero(~((labels >= 0) & (labels < classes)))  # a missing label, in a stream, is NaN
    if len(wrong):
        row, others = int(wrong[0]), f" ({len(wrong)} such rows)" if len(wrong) > 1 else ""
        label = labels[row].item()
        raise ValueError(f"Label {label} of row {row} in {where} is outside [0, {classes}){others}. {advice}")
