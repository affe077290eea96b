"""Guarantees: what a model promises on new images of the same distribution, and what came true on the test images."""

from dataclasses import dataclass, field
from typing import Literal

from .checks import check_count, check_range, check_share


SHOWN_COVERAGE = 0.9


@dataclass(frozen=True)
class Share:
    """
    A share of samples and its 95 % Wilson interval.

    Args:
        value, low, high (`float`): Fractions.
        n (`int`): The number of images it is a share of. Images seen under several corruptions count once: their
            outcomes depend on each other, so the interval is rather too wide than too narrow.
    """

    value: float
    low: float
    high: float
    n: int

    def __post_init__(self) -> None:
        check_count("n", self.n, at_least=1)
        for name in ("value", "low", "high"):
            check_share(name, getattr(self, name))
        if not self.low <= self.value <= self.high:
            raise ValueError(f"value must lie within [{self.low}, {self.high}], got {self.value}")


@dataclass(frozen=True)
class PredictionSetGuarantee:
    """
    Sets that hold the right class of a new image with a probability of at least `coverage`.

    Args:
        method (`str`): `"lac"` or `"raps"`.
        coverage (`float`): The promised probability.
        threshold (`float`): Classes with a score of at most this are in the set.
        num_samples (`int`): Held-out samples that the threshold comes from.
        test_coverage ([`Share`], *optional*): Test images whose set holds the right class.
        mean_size (`float`, *optional*): Mean number of classes in a set of a test image.
        class_covered (`tuple[int, ...]`): For each class, how many of its test images are covered; the promise is for
            all images together and may be missed by a class. `Guarantees.class_counts` has how many there are.
        severity_coverage (`dict[int, Share]`): The same for corrupted test images, by severity, where they were
            measured: there the promise does not hold.
    """

    method: Literal["lac", "raps"]
    coverage: float
    threshold: float
    num_samples: int
    test_coverage: Share | None = None
    mean_size: float | None = None
    class_covered: tuple[int, ...] = ()
    severity_coverage: dict[int, Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in ("lac", "raps"):
            raise ValueError(f"method must be 'lac' or 'raps', got {self.method!r}")
        _check_level("coverage", self.coverage)
        check_range("threshold", self.threshold)
        check_count("num_samples", self.num_samples, at_least=1)
        check_range("mean_size", self.mean_size, 0, len(self.class_covered))
        for count in self.class_covered:
            check_count("class_covered", count)


@dataclass(frozen=True)
class AbstentionGuarantee:
    """
    A confidence from which on answers are right with a share of at least `accuracy`, unless the draw of the held-out
    samples was one of the unlucky ones, which has a probability of at most `delta`.

    Args:
        accuracy (`float`): The promised share of right answers.
        delta (`float`): The probability with which the promise may be broken.
        num_samples (`int`): Held-out samples that the threshold comes from.
        threshold (`float`, *optional*): Answer where the confidence is at least this; `None` if nothing is promised.
        reason (`str`, *optional*): Why there is no threshold.
        test_answered ([`Share`], *optional*): Test images that are answered.
        test_accuracy ([`Share`], *optional*): Of these, the right ones; `None` if none is answered.
        severity_accuracy (`dict[int, Share]`): The same for corrupted test images, by severity, where they were
            measured: there the promise does not hold.
    """

    accuracy: float
    delta: float
    num_samples: int
    threshold: float | None = None
    reason: str | None = None
    test_answered: Share | None = None
    test_accuracy: Share | None = None
    severity_accuracy: dict[int, Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_level("accuracy", self.accuracy)
        _check_level("delta", self.delta)
        check_count("num_samples", self.num_samples)
        if (self.threshold is None) == (self.reason is None):
            raise ValueError("reason must be given where there is no threshold, and only there")
        if self.threshold is None and self.test_answered is not None:
            raise ValueError("test_answered must be given only where there is a threshold")
        check_share("threshold", self.threshold)


@dataclass(frozen=True)
class Guarantees:
    """
    Everything that a model promises.

    Args:
        num_temperature (`int`): Held-out samples that fitted the temperature.
        num_guarantee (`int`): Other held-out samples, that the promises come from; 0 if nothing is promised.
        num_test (`int`): Test samples on which the outcome was measured; 0 if it was not.
        temperature (`float`): All thresholds are for logits divided by this, as those of the calibrated model are.
        exact (`bool`): Whether the held-out samples fitted nothing else. If they also chose the checkpoint, promises
            are approximate.
        reason (`str`, *optional*): Why nothing is promised, with the number of samples it would take.
        class_counts (`tuple[int, ...]`): Test samples of each class.
        class_names (`tuple[str, ...]`): What the classes are called, if that is known.
        prediction_sets (`tuple[PredictionSetGuarantee, ...]`): By method and coverage.
        abstentions (`tuple[AbstentionGuarantee, ...]`): By accuracy.
    """

    num_temperature: int
    num_guarantee: int
    num_test: int
    temperature: float
    exact: bool
    reason: str | None = None
    class_counts: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()
    prediction_sets: tuple[PredictionSetGuarantee, ...] = ()
    abstentions: tuple[AbstentionGuarantee, ...] = ()

    def __post_init__(self) -> None:
        for name in ("num_temperature", "num_guarantee", "num_test"):
            check_count(name, getattr(self, name))
        check_range("temperature", self.temperature)
        if self.temperature <= 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        if (self.num_guarantee == 0) != (self.reason is not None):
            raise ValueError("reason must be given where num_guarantee is 0, and only there")
        if self.prediction_sets and sum(self.class_counts) != self.num_test:
            raise ValueError(f"class_counts must add up to num_test, {self.num_test}, got {sum(self.class_counts)}")
        if self.class_names and len(self.class_names) != len(self.class_counts):
            raise ValueError(f"class_names must be as many as class_counts, {len(self.class_counts)}")
        for sets in self.prediction_sets:
            if len(sets.class_covered) != len(self.class_counts):
                raise ValueError("prediction_sets must have one entry of class_covered for each of class_counts")
            if any(covered > count for covered, count in zip(sets.class_covered, self.class_counts, strict=True)):
                raise ValueError("prediction_sets cover more images of a class than there are")

    @property
    def shown_set(self) -> PredictionSetGuarantee | None:
        """The sets that are shown where there is room for one kind: LAC at 90 %, or else the first of LAC."""
        sets = [promise for promise in self.prediction_sets if promise.method == "lac"]
        return next((promise for promise in sets if promise.coverage == SHOWN_COVERAGE), sets[0] if sets else None)


def _check_level(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
