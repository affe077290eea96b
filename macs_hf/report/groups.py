"""Measures of each class or group, and the confusion matrix, for the report. Nothing but data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .checks import check_count, check_share
from .interval import Interval


@dataclass(frozen=True)
class GroupMeasures:
    """
    What the model does on the images of one group.

    Args:
        name (`str`):
            The class or group.
        n (`int`):
            Number of its images.
        few (`bool`):
            Whether there are fewer than 30 of them, too few to say much.
        accuracy ([`Interval`]):
            With Wilson's interval.
        ece, noise_floor (`float`):
            The calibration error on these images, and what a perfectly calibrated model with these confidences would
            score.
        gap ([`Interval`]):
            Mean confidence minus accuracy: above 0 is overconfident. The interval is that of the accuracy.
        significant (`bool`):
            Whether the accuracy differs from that of all other images, after Holm's correction for the number of
            groups.
        gap_significant (`bool`):
            Whether the gap differs from that of perfect calibration, after Holm's correction.
        coverage ([`Interval`], *optional*):
            The share of its images whose prediction set holds the right class, with Wilson's interval.
        coverage_significant (`bool`):
            Whether that share differs from the one of all other images, after Holm's correction.
    """

    name: str
    n: int
    few: bool
    accuracy: Interval
    ece: float
    noise_floor: float
    gap: Interval
    significant: bool
    gap_significant: bool
    coverage: Interval | None = None
    coverage_significant: bool = False

    def __post_init__(self) -> None:
        check_count("n", self.n, at_least=1)
        for name in ("ece", "noise_floor"):
            check_share(name, getattr(self, name))
        for name in ("value", "low", "high"):
            check_share(f"accuracy.{name}", getattr(self.accuracy, name))
            if self.coverage is not None:
                check_share(f"coverage.{name}", getattr(self.coverage, name))


@dataclass(frozen=True)
class GroupTable:
    """
    Args:
        column (`str`):
            What the images are grouped by, such as `"label"`.
        groups (`tuple[GroupMeasures, ...]`):
            The groups, worst first: in ascending order of the upper end of the accuracy's interval, so that a group of
            a few images is not the worst by chance.
        promised_coverage (`float`, *optional*):
            The coverage that the prediction sets promise for all images together.
    """

    column: str
    groups: tuple[GroupMeasures, ...]
    promised_coverage: float | None = None

    def __post_init__(self) -> None:
        if self.promised_coverage is None:
            return
        check_share("promised_coverage", self.promised_coverage)
        for group in self.groups:
            if group.coverage is None:
                raise ValueError(f"group {group.name!r} must have a coverage, since one is promised")

    @property
    def n(self) -> int:
        """Number of images in all groups."""
        return sum(group.n for group in self.groups)

    def _repr_html_(self) -> str:
        from .notebook import groups_shown  # which needs this module

        return groups_shown(self)


@dataclass(frozen=True)
class ConfusionMatrix:
    """
    How often each label got each prediction; only pairs that occurred are kept.

    Args:
        n_classes (`int`):
            Number of classes.
        label, prediction, count (`tuple[int, ...]`):
            The pairs and their numbers of images.
        names (`tuple[str, ...]`):
            What the classes are called; empty if that is not known.
    """

    n_classes: int
    label: tuple[int, ...]
    prediction: tuple[int, ...]
    count: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count("n_classes", self.n_classes, at_least=1)
        if self.names and len(self.names) != self.n_classes:
            raise ValueError(f"names must be one for each of the {self.n_classes} classes, got {len(self.names)}")
        if not len(self.label) == len(self.prediction) == len(self.count):
            raise ValueError("label, prediction and count must have one entry per pair")
        for name in ("label", "prediction"):
            if any(not 0 <= number < self.n_classes for number in getattr(self, name)):
                raise ValueError(f"{name} must hold class ids below {self.n_classes}")
        for place, count in enumerate(self.count):
            check_count(f"count[{place}]", count, at_least=1)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names, or the numbers of the classes as text."""
        return self.names or tuple(map(str, range(self.n_classes)))

    def mistakes(self) -> list[tuple[int, int, int]]:
        """Count, label and prediction of the pairs of different classes, the most frequent first."""
        pairs = zip(self.count, self.label, self.prediction, strict=True)
        return sorted((pair for pair in pairs if pair[1] != pair[2]), key=lambda pair: (-pair[0], *pair[1:]))

    def to_array(self) -> np.ndarray:
        """`(classes, classes)`, one row per label."""
        matrix = np.zeros((self.n_classes, self.n_classes), dtype=np.int64)
        matrix[list(self.label), list(self.prediction)] = self.count
        return matrix
