"""EvaluationReport: everything measured about one checkpoint on one dataset, to and from JSON. Nothing but data.

Its parts come first, the smallest at the top: intervals, the corruption table, classes and groups, images of no class,
risk and coverage, guarantees, margins, leakage. The report, which holds them, comes after them, and the run, which has
the rows too, last. All parts are dataclasses that pydantic checks: types and bounds by their hints, unknown fields are
refused, and what several fields must agree on is in `_rules`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    InstanceOf,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass

from .rows import (
    CORRUPTIONS,
    FAMILIES,
    MEANS,
    SEVERITIES,
    CorruptionRows,
    SampleRows,
    check_belongs,
    read_table,
    rows_of_table,
    write_rows,
)
from .run_folder import REPORT_FILE, ROWS_FILE, redact, sha256, weight_files, write_text_atomically


T = TypeVar("T")
# A renamed field keeps the name that it has in stored reports as an alias.
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, validate_by_alias=True)
ROUNDING = 1e-6  # means and quantiles of the same numbers may differ in the last digits

Fraction = Annotated[float, Field(ge=-ROUNDING, le=1 + ROUNDING)]
NonNegative = Annotated[float, Field(ge=-ROUNDING)]
Level = Annotated[float, Field(gt=0, lt=1)]


class Part:
    """What all parts of a report have in common."""

    __pydantic_config__ = STRICT

    @model_validator(mode="after")
    def _check(self) -> Self:
        for holds, message in self._rules():
            if not holds:
                raise ValueError(message)
        return self

    def _rules(self) -> Iterator[tuple[bool, str]]:
        """What fields must agree on: whether they do, and what to say if not."""
        yield from ()


def read_json(kind: type[T], text: str) -> T:
    """A dataclass from JSON, checked; the `ValueError` names the field that is wrong, and says how."""
    try:
        if "\\ud" in text:  # half of a surrogate pair, as names of files may have, which pydantic's reader refuses
            text = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        if first["type"] == "unexpected_keyword_argument":
            message = "not a known field; a newer version of macs_hf may have written it"
        raise ValueError(f"{place}: {message}" if place else message) from None


def to_plain(value: Any) -> dict[str, Any]:
    """A dataclass as what JSON holds."""
    return TypeAdapter(type(value)).dump_python(value, mode="json", by_alias=True)


# ---- Intervals ----


@dataclass(frozen=True)
class Interval(Part):
    """A value and its confidence interval."""

    value: float
    low: float
    high: float

    def _rules(self) -> Iterator[tuple[bool, str]]:
        slack = ROUNDING * max(1.0, abs(self.value))
        yield self.low - slack <= self.value <= self.high + slack, "value must lie between low and high"

    def is_within(self, low: float, high: float) -> bool:
        return low - ROUNDING <= self.low and self.high <= high + ROUNDING


def _is_share(found: Interval) -> Interval:
    if not found.is_within(0, 1):
        raise ValueError("value must lie within [0, 1]")
    return found


FractionInterval = Annotated[Interval, AfterValidator(_is_share)]


@dataclass(frozen=True)
class Share(Interval):
    """
    A share of `n` images and its 95 % Wilson interval. Images seen under several corruptions count once: their
    outcomes depend on each other, so the interval is rather too wide than too narrow.
    """

    value: Fraction
    low: Fraction
    high: Fraction
    n: PositiveInt


# ---- Corruptions ----


Score = Literal["accuracy", "nll", "ece", "scaled_nll", "scaled_ece"]
Corruption = Literal[CORRUPTIONS]
Severity = Annotated[int, Field(ge=1, le=len(SEVERITIES))]


@dataclass(frozen=True)
class Cell(Part):
    """
    The scores of one corruption at one severity on `n` images, as fractions and nats; the `scaled_` ones with the
    table's temperature. The noise floor is the ECE that a calibrated model with the same confidences would get.
    """

    n: NonNegativeInt
    accuracy: Fraction
    nll: NonNegative
    ece: Fraction
    scaled_nll: NonNegative | None = None
    scaled_ece: Fraction | None = None
    noise_floor: Fraction | None = None
    scaled_noise_floor: Fraction | None = None


@dataclass(frozen=True)
class CorruptionTable(Part):
    """The scores of one classifier under corruption, by corruption and severity."""

    params: str  # the parameter set, "cifar" or "imagenet": part of every key of `summary`
    source: str  # "generated", or the published data that were read
    n: NonNegativeInt  # number of images; a cell has its own
    cells: dict[Corruption, dict[Severity, Cell]]
    clean: Cell | None = None  # of the images without corruption
    when: str = "after_resize"  # at the network's input size, or "before_resize": on the original image
    seed: int | None = None  # of generated corruptions, of the subset of images, and of the spread design
    frost: str | None = None  # where generated frost took its textures from
    temperature: NonNegative | None = None  # of the scaled scores
    # Of the mean accuracies that are complete: mean15, mean19, the families, and severity_1 to severity_5 over the
    # standard 15. Over images, as the design has it.
    standard_error: dict[str, NonNegative] | None = None
    size: tuple[int, int] | None = None  # height and width of the images as the network got them
    # Every image under every corruption, or (spread) every image under one, drawn by `seed`.
    design: Literal["crossed", "spread"] = "crossed"
    # Mean confidence minus accuracy, above 0 where the model is overconfident, with the temperature if there is one:
    # "clean", and the keys of `standard_error`.
    confidence_gap: dict[str, Interval] | None = None
    # Image by image, to compare two tables: columns of the file of samples, and not in JSON.
    rows: Annotated[InstanceOf[CorruptionRows] | None, Field(exclude=True)] = field(
        default=None, compare=False, repr=False
    )

    def _rules(self) -> Iterator[tuple[bool, str]]:
        first = next(iter(self.cells), "")
        for name, row in self.cells.items():
            yield row.keys() == self.cells[first].keys(), f"cells.{name} must have the severities of cells.{first}"
            scaled = all(None not in (cell.scaled_nll, cell.scaled_ece) for cell in row.values())
            yield scaled or self.temperature is None, f"cells.{name} must have scores with the temperature"

    def by_corruption(self, score: Score = "accuracy") -> dict[str, float]:
        """The mean over severities, for each corruption."""
        return {name: fmean(getattr(cell, score) for cell in row.values()) for name, row in self.cells.items()}

    def by_severity(self, score: Score = "accuracy", names: Sequence[str] | None = None) -> dict[int, float]:
        """The mean over corruptions (`names`, or all there are), for each severity; 0 is the clean images."""
        rows = [self.cells[name] for name in names or self.cells]
        means = {severity: fmean(getattr(row[severity], score) for row in rows) for severity in rows[0]}
        return means if self.clean is None else {0: getattr(self.clean, score)} | means

    def mean(self, names: Sequence[str], score: Score = "accuracy") -> float | None:
        """The mean over corruptions and severities; `None` unless all of `names` are there, at all five severities."""
        if any(tuple(self.cells.get(name, ())) != SEVERITIES for name in names):
            return None
        rows = self.by_corruption(score)
        return fmean(rows[name] for name in names)

    def interval(self, mean: str = "mean15") -> Interval | None:
        """
        The mean accuracy over all of `MEANS` or `FAMILIES` by its name, with the 95 % interval that the number of
        images implies; `None` if that is not known, or not all of the corruptions are there.
        """
        value, error = self.mean((MEANS | FAMILIES)[mean]), (self.standard_error or {}).get(mean)
        if value is None or error is None:
            return None
        return Interval(value, max(0.0, value - 1.96 * error), min(1.0, value + 1.96 * error))


# ---- Classes and groups ----


@dataclass(frozen=True)
class GroupMeasures(Part):
    """What the model does on the `n` images of one group."""

    name: str
    n: PositiveInt
    few: bool  # fewer than 30 images, too few to say much
    accuracy: FractionInterval  # Wilson's
    ece: Fraction
    noise_floor: Fraction  # what a perfectly calibrated model with these confidences would score
    gap: Interval  # mean confidence minus accuracy, with the interval of the accuracy: above 0 is overconfident
    # After Holm's correction for the number of groups: whether the accuracy differs from that of all other images, the
    # gap from that of perfect calibration, and the coverage from that of all other images.
    significant: bool
    gap_significant: bool
    coverage: FractionInterval | None = None  # images whose prediction set holds the right class, Wilson's
    coverage_significant: bool = False


@dataclass(frozen=True)
class GroupTable(Part):
    """The images by class, or by another column of the dataset."""

    column: str  # such as "label"
    # Worst first: in ascending order of the upper end of the accuracy's interval, so that a group of a few images is
    # not the worst by chance.
    groups: tuple[GroupMeasures, ...]
    # What the prediction sets guarantee for all images together.
    guaranteed_coverage: Annotated[Fraction | None, Field(alias="promised_coverage")] = None

    def _rules(self) -> Iterator[tuple[bool, str]]:
        covered = all(group.coverage is not None for group in self.groups)
        yield covered or self.guaranteed_coverage is None, "groups must have a coverage, since one is guaranteed"

    @property
    def n(self) -> int:
        """Number of images in all groups."""
        return sum(group.n for group in self.groups)


@dataclass(frozen=True)
class ConfusionMatrix(Part):
    """How often each label got each prediction; only pairs that occurred are kept."""

    n_classes: PositiveInt
    label: tuple[NonNegativeInt, ...]
    prediction: tuple[NonNegativeInt, ...]
    count: tuple[PositiveInt, ...]
    names: tuple[str, ...] = ()  # of the classes; empty if they are not known

    def _rules(self) -> Iterator[tuple[bool, str]]:
        yield len(self.names) in (0, self.n_classes), f"names must be one for each of the {self.n_classes} classes"
        same = len(self.label) == len(self.prediction) == len(self.count)
        yield same, "label, prediction and count must have one entry per pair"
        largest = max(*self.label, *self.prediction, 0, 0)
        yield largest < self.n_classes, f"label and prediction must hold class ids below {self.n_classes}"

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


# ---- Images of none of the classes (out of distribution) ----


ScoreName = Literal["max_probability", "max_logit", "energy"]


@dataclass(frozen=True)
class Detection(Part):
    """How well one score, which is high for images of the model's classes, tells them from others."""

    score: ScoreName
    auroc: FractionInterval  # probability that a test image scores higher than another one; ties count half
    fpr95: FractionInterval  # others accepted at the highest threshold that accepts at least 95 % of the test images


@dataclass(frozen=True)
class Answered(Part):
    """What happens if the model answers only where its confidence reaches the threshold of a guarantee."""

    accuracy: Fraction  # what the threshold guarantees for images of its classes
    threshold: Fraction
    unknown: FractionInterval  # share of the images of none of its classes that are answered
    known: FractionInterval  # the same of the test images


@dataclass(frozen=True)
class OutOfDistribution(Part):
    """Images that belong to none of the model's classes, against the test images."""

    dataset: str
    split: str
    n: PositiveInt
    total: PositiveInt  # images that the split has, of which `n` were drawn at random
    confidence: Fraction  # mean confidence of the published model on them
    known_confidence: Fraction  # and on the test images
    before: tuple[Detection, ...]  # one per score, without temperature
    after: tuple[Detection, ...] | None = None
    answered: tuple[Answered, ...] = ()  # one per threshold that the model guarantees an accuracy with
    left_out: tuple[str, ...] = ()  # classes of that dataset that the model has too
    copies: NonNegativeInt = 0  # images that are exact copies of test images

    @property
    def published(self) -> tuple[Detection, ...]:
        """Of the model as it is published: with its temperature, if it has one."""
        return self.before if self.after is None else self.after


# ---- Risk and coverage ----


@dataclass(frozen=True)
class RiskCoverage(Part):
    """
    A model that answers only where it is most confident: the share of answers that are wrong (risk) against the share
    of images that get an answer (coverage).
    """

    aurc: Interval  # area under that curve: the mean risk over all coverages
    excess_aurc: Interval  # less that of the best ordering at this accuracy, which has every error last
    # For "1%", "5%" and "10%", the largest coverage whose risk is at most that; 0 if there is none. Measured on these
    # images, and no guarantee for others.
    coverage_at_risk: dict[str, Interval]
    coverage: tuple[float, ...]  # at most 100 points of the curve, in ascending coverage
    risk: tuple[float, ...]


# ---- Guarantees ----


SHOWN_COVERAGE = 0.9


@dataclass(frozen=True)
class PredictionSetGuarantee(Part):
    """Sets that hold the right class of a new image with a probability of at least `coverage`."""

    method: Literal["lac", "raps"]
    coverage: Level
    threshold: float  # classes with a score of at most this are in the set
    num_samples: PositiveInt  # held-out samples that the threshold comes from
    test_coverage: Share | None = None  # test images whose set holds the right class
    mean_size: NonNegative | None = None  # classes in a set of a test image
    # For each class, how many of its test images are covered, of `Guarantees.class_counts`: the guarantee is for all
    # images together, and may be missed by a class.
    class_covered: tuple[NonNegativeInt, ...] = ()
    severity_coverage: dict[Severity, Share] = field(
        default_factory=dict
    )  # of corrupted images, where it does not hold


@dataclass(frozen=True)
class AbstentionGuarantee(Part):
    """
    A confidence from which on answers are right with a share of at least `accuracy`, unless the draw of the held-out
    samples was one of the unlucky ones, which has a probability of at most `delta`.
    """

    accuracy: Level
    delta: Level
    num_samples: NonNegativeInt  # held-out samples that the threshold comes from
    threshold: Fraction | None = None  # answer where the confidence is at least this
    reason: str | None = None  # why there is no threshold, and nothing guaranteed
    test_answered: Share | None = None  # test images that are answered
    test_accuracy: Share | None = None  # of these, the right ones; `None` if none is answered
    severity_accuracy: dict[Severity, Share] = field(
        default_factory=dict
    )  # of corrupted images, where it does not hold

    def _rules(self) -> Iterator[tuple[bool, str]]:
        given = (self.threshold is None) == (self.reason is not None)
        yield given, "reason must be given where there is no threshold, and only there"


@dataclass(frozen=True)
class Guarantees(Part):
    """Everything that a model guarantees for new images, and what came true on the test images."""

    num_temperature: NonNegativeInt  # held-out samples that fitted the temperature
    num_guarantee: NonNegativeInt  # other held-out samples, that the guarantees come from; 0 if there are none
    num_test: NonNegativeInt  # test samples on which the outcome was measured; 0 if it was not
    temperature: Annotated[float, Field(gt=0)]  # thresholds are for logits divided by this
    exact: bool  # whether the held-out samples fitted nothing else; approximate if they also chose the checkpoint
    reason: str | None = None  # why nothing is guaranteed, with the number of samples it would take
    class_counts: tuple[NonNegativeInt, ...] = ()  # test samples of each class
    class_names: tuple[str, ...] = ()  # empty if they are not known
    prediction_sets: tuple[PredictionSetGuarantee, ...] = ()
    abstentions: tuple[AbstentionGuarantee, ...] = ()

    def _rules(self) -> Iterator[tuple[bool, str]]:
        given = (self.num_guarantee == 0) == (self.reason is not None)
        yield given, "reason must be given where num_guarantee is 0, and only there"

    @property
    def shown_set(self) -> PredictionSetGuarantee | None:
        """The sets that are shown where there is room for one kind: LAC at 90 %, or else the first of LAC."""
        sets = [part for part in self.prediction_sets if part.method == "lac"]
        return next((part for part in sets if part.coverage == SHOWN_COVERAGE), sets[0] if sets else None)


# ---- Margins ----


@dataclass(frozen=True)
class MarginAnalysis(Part):
    """Means over the images, misclassified ones included; `macs_hf.evaluation.margins` has the equations."""

    __pydantic_config__ = STRICT | {"extra": "ignore"}  # earlier reports have more fields

    num_samples: PositiveInt
    logit_norm: NonNegative  # L2
    max_logit: float
    margin: float  # signed: negative where the prediction is wrong
    logit_sensitivity: NonNegative  # change of the logits in the maximum norm over the L2 length of the noise
    margin_to_sensitivity: float | None  # margin / logit_sensitivity, a ratio of means; none for a constant model
    sigma: float  # standard deviation of the noise
    num_draws: PositiveInt  # noise samples per image
    space: Literal["normalized", "pixel"]  # the units of sigma and of every length


# ---- Leakage ----


@dataclass(frozen=True)
class Copies(Part):
    """Images of `split` whose decoded pixels are equal to those of an image of `other`."""

    split: str
    other: str
    count: NonNegativeInt


@dataclass(frozen=True)
class Leakage(Part):
    """Exact copies of images between splits. Images that were scaled, cropped or compressed again are not found."""

    compared: dict[str, NonNegativeInt]  # by split, how many of its images were compared
    total: dict[str, NonNegativeInt]  # by split, how many it has: where this is more, copies may be missing
    copies: tuple[Copies, ...]  # for each two splits

    def _rules(self) -> Iterator[tuple[bool, str]]:
        yield self.compared.keys() == self.total.keys(), "total must have the splits of compared"
        named = {split for pair in self.copies for split in (pair.split, pair.other)}
        yield named <= self.compared.keys(), "copies must be of splits that were compared"

    @property
    def found(self) -> tuple[Copies, ...]:
        """The pairs of splits that have images in common."""
        return tuple(pair for pair in self.copies if pair.count)


# ---- The report ----


# A fitted temperature lies within these bounds.
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
# The metrics that every measurement has, with their bounds.
METRIC_BOUNDS = {"accuracy": (0.0, 1.0), "nll": (0.0, float("inf")), "ece": (0.0, 1.0), "brier": (0.0, 2.0)}
INNERMOST = re.compile(r"[\[{][^\[\]{}]*[\]}]")

PlainValue = bool | int | float | str | None
FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class ReliabilityTable(Part):
    """A reliability diagram as numbers, one entry per bin `(lower, upper]`; an empty bin has zeros."""

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    count: tuple[NonNegativeInt, ...]
    confidence: tuple[Fraction, ...]
    accuracy: tuple[Fraction, ...]

    def _rules(self) -> Iterator[tuple[bool, str]]:
        columns = (self.lower, self.upper, self.confidence, self.accuracy)
        yield {len(column) for column in columns} == {len(self.count)}, "all columns must have one entry per bin"
        for place, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            yield low < high, f"upper.{place} must be above lower.{place}, {low}, got {high}"


@dataclass(frozen=True)
class Measurement(Part):
    """The metrics of one model, and the bins of its ECE."""

    metrics: dict[str, Interval]  # accuracy, nll, ece, brier, logit_margin, as fractions and nats
    noise_floor: Fraction  # the ECE that a perfectly calibrated model with the same confidences would get
    bins: ReliabilityTable

    def _rules(self) -> Iterator[tuple[bool, str]]:
        for name, (low, high) in METRIC_BOUNDS.items():
            yield name in self.metrics, f"metrics.{name} is missing"
            yield self.metrics[name].is_within(low, high), f"metrics.{name} must lie within [{low:g}, {high:g}]"


@dataclass(frozen=True)
class Temperature(Part):
    """The fitted temperature, or why it stayed 1."""

    value: Annotated[float, Field(ge=MIN_TEMPERATURE - ROUNDING, le=MAX_TEMPERATURE + ROUNDING)]
    reason: str | None = None  # why none could be fitted
    calibration_split: str | None = None
    n: NonNegativeInt | None = None  # samples of that split
    standard_error: NonNegative | None = None  # over the draw of these samples
    confidence_shift: NonNegative | None = None  # of the mean confidence, if it moves by one standard error
    nll_before: NonNegative | None = None  # of these samples
    nll_after: NonNegative | None = None
    nll_gain: Interval | None = None  # by how much it lowered the NLL of the test samples, which did not fit it
    ece_rise: Interval | None = None  # by how much it raised their ECE

    @property
    def helped(self) -> bool:
        """
        Whether it lowered the NLL of the test samples beyond chance, and did not raise their ECE beyond chance; older
        reports do not say, and are believed.
        """
        return (self.nll_gain is None or self.nll_gain.low > 0) and (self.ece_rise is None or self.ece_rise.low <= 0)


@dataclass(frozen=True)
class SizeTrial(Part):
    """Where a model is hardly above chance: another size of its input at which it is right far more often."""

    size: PositiveInt  # height and width, in pixels
    n: PositiveInt  # test images that were tried at this size
    accuracy: Fraction


@dataclass(frozen=True)
class EvaluationReport(Part):
    """
    Everything about one checkpoint on one dataset.

    A new part is a new field: a dataclass, or plain values. It is written, read and checked by its type hints.

    Args:
        model, dataset, split (`str`): Hub ids or local names.
        n (`int`): Number of samples.
        before ([`Measurement`]): Without temperature scaling.
        after ([`Measurement`], *optional*): With `temperature`.
        temperature ([`Temperature`], *optional*): The temperature of `after`, or why there is none.
        model_revision, dataset_revision, dataset_config (`str`, *optional*): What exactly was evaluated.
        corruptions ([`CorruptionTable`], *optional*): Scores under corruption; its `rows` are in the file of samples.
        margins ([`MarginAnalysis`], *optional*): Margins and sensitivity.
        guarantees ([`Guarantees`], *optional*): What the published model guarantees on new images, and what came true.
        risk_coverage ([`RiskCoverage`], *optional*): How well confidence ranks the answers of the published model.
        image_size (`tuple[int, int]`, *optional*): Height and width of the images that the network was given.
        better_size ([`SizeTrial`], *optional*): Another input size, if that explains an accuracy near chance.
        classes ([`GroupTable`], *optional*): The published model on the images of each class, worst first.
        confusion ([`ConfusionMatrix`], *optional*): How often each class was taken for each.
        groups ([`GroupTable`], *optional*): As `classes`, for the values of another column of the dataset.
        ood ([`OutOfDistribution`], *optional*): How the model reacts to images that belong to none of its classes.
        leakage ([`Leakage`], *optional*): Images that are in two splits at once.
        renamed_classes (`tuple`): The model's and the dataset's name of each class for which the two differ.
        training_arguments (`dict`, *optional*): Arguments of the training run, as plain values or lists of them.
        data_arguments (`dict`, *optional*): Which images a measurement without training took: columns, the largest
            number of images, whether unreadable ones were left out.
        command (`str`, *optional*): The command that made the report.
        seeds (`dict[str, int]`), versions (`dict[str, str]`): Seeds and versions of the libraries.
        checksums (`dict[str, str]`): SHA-256 of the files that the report is about, by their names: its rows, and the
            weights of the published model. They are set when the report is saved beside them.
    """

    model: str
    dataset: str
    split: str
    n: PositiveInt
    before: Measurement
    after: Measurement | None = None
    temperature: Temperature | None = None
    model_revision: str | None = None
    dataset_revision: str | None = None
    dataset_config: str | None = None
    corruptions: CorruptionTable | None = None
    margins: MarginAnalysis | None = None
    guarantees: Guarantees | None = None
    risk_coverage: RiskCoverage | None = None
    image_size: tuple[PositiveInt, PositiveInt] | None = None
    better_size: SizeTrial | None = None
    classes: GroupTable | None = None
    confusion: ConfusionMatrix | None = None
    groups: GroupTable | None = None
    ood: Annotated[OutOfDistribution | None, Field(alias="unknowns")] = None
    leakage: Leakage | None = None
    renamed_classes: tuple[tuple[str, str], ...] = ()
    training_arguments: dict[str, PlainValue | list[PlainValue]] = field(default_factory=dict)
    data_arguments: dict[str, PlainValue] = field(default_factory=dict)
    command: str | None = None
    seeds: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    checksums: dict[FileName, Checksum] = field(default_factory=dict, compare=False)
    schema_version: Literal[2] = field(default=2, kw_only=True, repr=False)

    def _rules(self) -> Iterator[tuple[bool, str]]:
        yield self.after is None or self.temperature is not None, "temperature must be given where there is after"
        counted = {"before.bins.count": self.before.bins.count}
        if self.after is not None:
            counted["after.bins.count"] = self.after.bins.count
        for name in ("classes", "groups"):
            if (table := getattr(self, name)) is not None:
                counted[name] = (table.n,)
        if self.confusion is not None:
            counted["confusion.count"] = self.confusion.count
        for name, counts in counted.items():
            yield sum(counts) == self.n, f"{name} must add up to n = {self.n}, got {sum(counts)}"

    @property
    def published(self) -> Measurement:
        """The measurement of the model as it is published: with its temperature, if it has one."""
        return self.after or self.before

    @property
    def has_temperature(self) -> bool:
        """Whether a temperature was fitted; it stays 1, with a reason, where none could be."""
        return self.temperature is not None and self.temperature.reason is None

    @property
    def is_calibrated(self) -> bool:
        """Whether a temperature was fitted that helped on the test samples, see [`Temperature.helped`]."""
        return self.has_temperature and self.temperature.helped

    @property
    def chance_level(self) -> float | None:
        """
        The accuracy of always naming the most frequent class of the test images; `None` if the report does not have
        their classes, or they are all of one.
        """
        counts = () if self.guarantees is None else self.guarantees.class_counts
        if self.classes is not None:  # which models of very many classes do not have
            counts = [group.n for group in self.classes.groups]
        return max(counts) / self.n if sum(count > 0 for count in counts) > 1 else None

    @property
    def above_chance(self) -> bool | None:
        """Whether the whole interval of the accuracy is above `chance_level`; `None` if that is not known."""
        chance = self.chance_level
        return None if chance is None else self.published.metrics["accuracy"].low > chance

    def __repr__(self) -> str:
        """In a line: with all its parts it would fill pages."""
        facts = (f"{name}={getattr(self, name)!r}" for name in ("model", "dataset", "split", "n"))
        return f"{type(self).__name__}({', '.join(facts)}, ...)"

    def to_json(self) -> str:
        text = json.dumps({"schema_version": self.schema_version} | to_plain(self), indent=2, allow_nan=False)
        # An object or a list of numbers on one line. JSON has line breaks between its words only, never inside.
        return INNERMOST.sub(lambda part: re.sub(r"\n\s*", " ", part[0]), text) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EvaluationReport:
        return read_json(cls, text)

    def save(self, path: str | PathLike[str]) -> None:
        write_text_atomically(path, redact(self.to_json()))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EvaluationReport:
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a report that can be used: {error}") from error


# ---- The run ----


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A report and its rows, as a run's folder has them."""

    name: str  # of the folder
    report: EvaluationReport  # with the per-image rows of its corruption table
    rows: SampleRows  # of the model as it is published
    rows_before: SampleRows | None = None  # before its temperature, if it was given one


def save_run(report: EvaluationReport, rows: Sequence[SampleRows], folder: str | PathLike[str]) -> list[Path]:
    """
    Write `evaluation.json` and `samples.parquet` into `folder`, in place of what was there; returns their paths.

    Args:
        report ([`EvaluationReport`]): What was measured.
        rows (sequence of [`SampleRows`]): As `evaluate_checkpoint` returns them: of the model and, if it was given a
            temperature, of the model with it.
        folder (`str` or `Path`): Where to; made if it is not there.
    """
    *before, published = rows
    if len(before) > 1 or any(len(part) != report.n for part in rows):
        raise ValueError(f"the report is about n = {report.n} samples, the rows are {[len(part) for part in rows]}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    corrupted = None if report.corruptions is None else report.corruptions.rows
    write_rows(folder / ROWS_FILE, published, before[0] if before else None, corrupted)
    report.save(folder / REPORT_FILE)
    add_checksums(folder)
    return [folder / REPORT_FILE, folder / ROWS_FILE]


def add_checksums(folder: str | PathLike[str], *, is_folded: bool | None = None) -> None:
    """
    Have the report in a folder know its rows, and the weights of the model in it if that has the report's temperature
    folded in. By default its config tells, unless it had another temperature before.
    """
    folder = Path(folder)
    report = EvaluationReport.load(folder / REPORT_FILE)
    if is_folded is None:
        config = folder / "config.json"
        found = json.loads(config.read_text(encoding="utf-8")).get(TEMPERATURE_FIELD) if config.is_file() else None
        is_folded = not report.has_temperature or math.isclose(found or 0, report.temperature.value, rel_tol=ROUNDING)
    names = [ROWS_FILE] if (folder / ROWS_FILE).is_file() else []
    names += weight_files(folder) if is_folded else []
    replace(report, checksums={name: sha256(folder / name) for name in names}).save(folder / REPORT_FILE)


def load_run(folder: str | PathLike[str]) -> Run:
    """
    What [`save_run`] wrote into a folder (or beside an `evaluation.json`), checked: the rows are those that the report
    was written with, and give its numbers.
    """
    folder = Path(folder).parent if Path(folder).name == REPORT_FILE else Path(folder)
    if not (folder / REPORT_FILE).is_file():
        raise FileNotFoundError(f"There is no report in {str(folder)!r}: a run's folder has {REPORT_FILE}.")
    report = EvaluationReport.load(folder / REPORT_FILE)
    if not (folder / ROWS_FILE).is_file():
        raise FileNotFoundError(f"{folder / ROWS_FILE} is missing: it holds one row per sample of {REPORT_FILE}.")
    try:
        temperature = None if report.after is None else report.temperature.value
        rows, before, corrupted = rows_of_table(read_table(folder / ROWS_FILE), temperature)
        check_belongs(rows, before, corrupted, report)
        if changed := changed_files(report, folder, [ROWS_FILE]):
            raise ValueError(f"{changed[0]} was changed after {REPORT_FILE} was written")
    except ValueError as error:
        raise ValueError(f"{folder / ROWS_FILE} cannot be used: {error}") from error
    if report.corruptions is not None:
        report = replace(report, corruptions=replace(report.corruptions, rows=corrupted))
    return Run(folder.resolve().name, report, rows, before)


def changed_files(report: EvaluationReport, folder: str | PathLike[str], names: Sequence[str]) -> list[str]:
    """Those of the files in a folder that are not what they were when the report was saved, as far as it says."""
    stated = report.checksums
    return [name for name in names if name in stated and sha256(Path(folder, name)) != stated[name]]


# ---- The model's config ----
# What a calibrated model's config holds beside the fields of transformers. Whoever changes the logits removes it.


TEMPERATURE_FIELD = "calibration_temperature"
THRESHOLD_FIELDS = ("prediction_set_thresholds", "abstention_thresholds", "guarantee_reason")


def forget_guarantees(config: Any, fields: Sequence[str] = THRESHOLD_FIELDS) -> None:
    """Remove the thresholds: they were for other logits."""
    for name in fields:
        if hasattr(config, name):
            delattr(config, name)


def forget_calibration(config: Any) -> None:
    """Remove temperature and thresholds: the weights are trained on, or the head is replaced."""
    forget_guarantees(config, (TEMPERATURE_FIELD, *THRESHOLD_FIELDS))
