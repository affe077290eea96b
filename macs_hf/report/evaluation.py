"""EvaluationReport: everything measured about one checkpoint on one dataset, to and from JSON. Nothing but data."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from ..disk.atomic_writes import write_text_atomically
from ..disk.secrets import redact
from .checks import check_count, check_range, check_share
from .corruption_table import CorruptionTable
from .groups import ConfusionMatrix, GroupTable
from .guarantees import Guarantees
from .interval import Interval
from .leakage import Leakage
from .margins import MarginAnalysis
from .risk_coverage import RiskCoverage
from .serialization import from_plain, to_plain
from .unknowns import Unknowns


SCHEMA_VERSION = 2
# A fitted temperature lies within these bounds.
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
# The metrics that every measurement has, with their bounds.
METRIC_BOUNDS = {"accuracy": (0.0, 1.0), "nll": (0.0, float("inf")), "ece": (0.0, 1.0), "brier": (0.0, 2.0)}
INNERMOST = re.compile(r"[\[{][^\[\]{}]*[\]}]")

PlainValue = bool | int | float | str | None


@dataclass(frozen=True)
class ReliabilityTable:
    """
    A reliability diagram as numbers, one entry per bin `(lower, upper]`; an empty bin has zeros.

    Args:
        lower, upper (`tuple[float, ...]`): Edges of the bins.
        count (`tuple[int, ...]`): Number of samples.
        confidence, accuracy (`tuple[float, ...]`): Means over the samples of the bin.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    count: tuple[int, ...]
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]

    def __post_init__(self) -> None:
        columns = {name: getattr(self, name) for name in ("lower", "upper", "confidence", "accuracy")}
        for name, column in columns.items():
            if len(column) != len(self.count):
                raise ValueError(f"{name} must have one entry per bin, {len(self.count)}, got {len(column)}")
            for place, value in enumerate(column):
                check_share(f"{name}[{place}]", value)
        for place, (low, high, count) in enumerate(zip(self.lower, self.upper, self.count, strict=True)):
            check_count(f"count[{place}]", count)
            if low >= high:
                raise ValueError(f"upper[{place}] must be above lower[{place}], {low}, got {high}")


@dataclass(frozen=True)
class Measurement:
    """
    Args:
        metrics (`dict[str, Interval]`): `accuracy`, `nll`, `ece`, `brier`, `logit_margin`, as fractions and nats.
        noise_floor (`float`): The ECE that a perfectly calibrated model with the same confidences would get.
        bins ([`ReliabilityTable`]): The bins of that ECE.
    """

    metrics: dict[str, Interval]
    noise_floor: float
    bins: ReliabilityTable

    def __post_init__(self) -> None:
        check_share("noise_floor", self.noise_floor)
        for name, bounds in METRIC_BOUNDS.items():
            if name not in self.metrics:
                raise ValueError(f"metrics.{name} is missing")
            for part in ("value", "low", "high"):
                check_range(f"metrics.{name}.{part}", getattr(self.metrics[name], part), *bounds)


@dataclass(frozen=True)
class Temperature:
    """
    Args:
        value (`float`): The fitted temperature; 1 if none could be fitted.
        reason (`str`, *optional*): Why it stayed 1.
        calibration_split (`str`, *optional*): The split on which it was fitted.
        n (`int`, *optional*): Number of samples of that split.
        standard_error (`float`, *optional*): Of the temperature, over the draw of these samples.
        confidence_shift (`float`, *optional*): By how much the mean confidence changes if the temperature moves by one
            standard error.
        nll_before, nll_after (`float`, *optional*): Of these samples, without and with the temperature.
        nll_gain ([`Interval`], *optional*): By how much it lowered the NLL of the test samples, which did not fit it.
    """

    value: float
    reason: str | None = None
    calibration_split: str | None = None
    n: int | None = None
    standard_error: float | None = None
    confidence_shift: float | None = None
    nll_before: float | None = None
    nll_after: float | None = None
    nll_gain: Interval | None = None

    def __post_init__(self) -> None:
        check_range("value", self.value, MIN_TEMPERATURE, MAX_TEMPERATURE)
        check_count("n", self.n)
        for name in ("standard_error", "confidence_shift", "nll_before", "nll_after"):
            check_range(name, getattr(self, name), 0)

    @property
    def helped(self) -> bool:
        """Whether it lowered the NLL of the test samples beyond chance; older reports do not say, and are believed."""
        return self.nll_gain is None or self.nll_gain.low > 0


@dataclass(frozen=True)
class EvaluationReport:
    """
    Everything about one checkpoint on one dataset.

    A new part is a new field: a dataclass, or plain values. It is written and read by its type hints, and checked by
    its own `__post_init__`.

    Args:
        model, dataset, split (`str`): Hub ids or local names.
        n (`int`): Number of samples.
        before ([`Measurement`]): Without temperature scaling.
        after ([`Measurement`], *optional*): With `temperature`.
        temperature ([`Temperature`], *optional*): The temperature of `after`, or why there is none.
        model_revision, dataset_revision, dataset_config (`str`, *optional*): What exactly was evaluated.
        corruptions ([`CorruptionTable`], *optional*): Scores under corruption; its `rows` are in the file of samples.
        margins ([`MarginAnalysis`], *optional*): Margins and sensitivity.
        guarantees ([`Guarantees`], *optional*): What the published model promises on new images, and what came true.
        risk_coverage ([`RiskCoverage`], *optional*): How well confidence ranks the answers of the published model.
        image_size (`tuple[int, int]`, *optional*): Height and width of the images that the network was given.
        classes ([`GroupTable`], *optional*): The published model on the images of each class, worst first.
        confusion ([`ConfusionMatrix`], *optional*): How often each class was taken for each.
        groups ([`GroupTable`], *optional*): As `classes`, for the values of another column of the dataset.
        unknowns ([`Unknowns`], *optional*): How the model reacts to images that belong to none of its classes.
        leakage ([`Leakage`], *optional*): Images that are in two splits at once.
        renamed_classes (`tuple`): The model's and the dataset's name of each class for which the two differ.
        training_arguments (`dict`, *optional*): Arguments of the training run, as plain values or lists of them.
        data_arguments (`dict`, *optional*): Which images a measurement without training took: columns, the largest
            number of images, whether unreadable ones were left out.
        command (`str`, *optional*): The command that made the report.
        seeds (`dict[str, int]`), versions (`dict[str, str]`): Seeds and versions of the libraries.
    """

    model: str
    dataset: str
    split: str
    n: int
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
    image_size: tuple[int, int] | None = None
    classes: GroupTable | None = None
    confusion: ConfusionMatrix | None = None
    groups: GroupTable | None = None
    unknowns: Unknowns | None = None
    leakage: Leakage | None = None
    renamed_classes: tuple[tuple[str, str], ...] = ()
    training_arguments: dict[str, PlainValue | list[PlainValue]] = field(default_factory=dict)
    data_arguments: dict[str, PlainValue] = field(default_factory=dict)
    command: str | None = None
    seeds: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("n", self.n, at_least=1)
        if self.after is not None and self.temperature is None:
            raise ValueError("temperature must be given where there is after, which is with it")
        for name in ("before", "after"):
            part = getattr(self, name)
            if part is not None and sum(part.bins.count) != self.n:
                raise ValueError(f"{name}.bins.count must add up to n = {self.n}, got {sum(part.bins.count)}")
        if self.guarantees is not None and self.guarantees.prediction_sets and self.guarantees.num_test != self.n:
            raise ValueError(f"guarantees.num_test must be n = {self.n}, got {self.guarantees.num_test}")
        for name in ("classes", "groups"):
            table = getattr(self, name)
            if table is not None and table.n != self.n:
                raise ValueError(f"{name} must be about n = {self.n} images, got {table.n}")
        if self.confusion is not None and sum(self.confusion.count) != self.n:
            raise ValueError(f"confusion.count must add up to n = {self.n}, got {sum(self.confusion.count)}")
        for place, side in enumerate(self.image_size or ()):
            check_count(f"image_size[{place}]", side, at_least=1)
        from_plain(dict[str, PlainValue | list[PlainValue]], self.training_arguments, "training_arguments")
        from_plain(dict[str, PlainValue], self.data_arguments, "data_arguments")

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
        """Whether a temperature was fitted that lowered the NLL of the test samples beyond chance."""
        return self.has_temperature and self.temperature.helped

    def _repr_html_(self) -> str:
        from .notebook import report_shown  # which needs this module

        return report_shown(self)

    def to_json(self) -> str:
        text = json.dumps({"schema_version": SCHEMA_VERSION} | to_plain(self), indent=2, allow_nan=False)
        # An object or a list of numbers on one line. JSON has line breaks between its words only, never inside.
        return INNERMOST.sub(lambda part: re.sub(r"\n\s*", " ", part[0]), text) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EvaluationReport:
        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply for a report") from None
        version = data.pop("schema_version", None) if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema_version is {version!r}, but this version of macs_hf reads {SCHEMA_VERSION}")
        return from_plain(cls, data)

    def save(self, path: str | PathLike[str]) -> None:
        write_text_atomically(path, redact(self.to_json()))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EvaluationReport:
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a report that can be used: {error}") from error
