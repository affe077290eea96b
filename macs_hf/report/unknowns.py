"""Unknowns: how well a model's scores tell images of its classes from images of none, for the report. Only data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .checks import check_count, check_share
from .interval import Interval


ScoreName = Literal["max_probability", "max_logit", "energy"]
# What readers see.
SCORE_NAMES = {"max_probability": "maximum probability", "max_logit": "maximum logit", "energy": "energy"}


@dataclass(frozen=True)
class Detection:
    """
    How well one score tells known from unknown images.

    Args:
        score (`str`): `"max_probability"`, `"max_logit"` or `"energy"` (the logarithm of the sum of the exponentials
            of the logits). Higher means known.
        auroc ([`Interval`]): Probability that a known image scores higher than an unknown one; ties count half.
        fpr95 ([`Interval`]): Share of the unknown images that are accepted at the highest threshold that accepts at
            least 95 % of the known ones; a score equal to the threshold is accepted.
    """

    score: ScoreName
    auroc: Interval
    fpr95: Interval

    def __post_init__(self) -> None:
        for name in ("auroc", "fpr95"):
            for part in ("value", "low", "high"):
                check_share(f"{name}.{part}", getattr(getattr(self, name), part))


@dataclass(frozen=True)
class Answered:
    """
    What happens to unknown images if the model answers only where its confidence reaches a threshold.

    Args:
        accuracy (`float`): What the threshold promises for known images.
        threshold (`float`): The lowest confidence that is answered.
        unknown ([`Interval`]): Share of the unknown images that are answered, with Wilson's interval.
        known ([`Interval`]): The same of the known ones.
    """

    accuracy: float
    threshold: float
    unknown: Interval
    known: Interval

    def __post_init__(self) -> None:
        check_share("accuracy", self.accuracy)
        check_share("threshold", self.threshold)


@dataclass(frozen=True)
class Unknowns:
    """
    Images that belong to none of the model's classes, against the test images.

    Args:
        dataset (`str`): Hub id or name of the folder.
        split (`str`): Its split.
        n (`int`): Number of its images.
        total (`int`): Number of images that the split has, of which `n` were drawn at random.
        confidence, known_confidence (`float`): Mean confidence of the published model on them, and on test images.
        before (`tuple[Detection, ...]`): One per score, without temperature.
        after (`tuple[Detection, ...]`, *optional*): The same with the temperature.
        answered (`tuple[Answered, ...]`): One per threshold that the model promises an accuracy with.
        left_out (`tuple[str, ...]`): Classes of that dataset that the model has too: their images were left out.
        copies (`int`): Of these images, how many are exact copies of test images.
    """

    dataset: str
    split: str
    n: int
    total: int
    confidence: float
    known_confidence: float
    before: tuple[Detection, ...]
    after: tuple[Detection, ...] | None = None
    answered: tuple[Answered, ...] = ()
    left_out: tuple[str, ...] = ()
    copies: int = 0

    def __post_init__(self) -> None:
        check_count("n", self.n, at_least=1)
        check_count("total", self.total, at_least=self.n)
        check_count("copies", self.copies)
        for name in ("confidence", "known_confidence"):
            check_share(name, getattr(self, name))

    @property
    def published(self) -> tuple[Detection, ...]:
        """Of the model as it is published: with its temperature, if it has one."""
        return self.before if self.after is None else self.after
