"""EvaluationReport: everything measured about one checkpoint on one dataset, to and from JSON. Nothing but data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any


SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Interval:
    """A value and its bootstrap confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ReliabilityTable:
    """A reliability diagram as numbers, one entry per bin `(lower, upper]`; an empty bin has zeros.

    Args:
        lower, upper (`tuple[float, ...]`):
            Edges of the bins.
        count (`tuple[int, ...]`):
            Number of samples.
        confidence, accuracy (`tuple[float, ...]`):
            Means over the samples of the bin.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    count: tuple[int, ...]
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]


@dataclass(frozen=True)
class Measurement:
    """
    Args:
        metrics (`dict[str, Interval]`):
            `accuracy`, `nll`, `ece`, `brier`, `logit_margin`, as fractions and nats.
        noise_floor (`float`):
            The ECE that a perfectly calibrated model with the same confidences would score.
        bins (`ReliabilityTable`):
            The bins of that ECE.
    """

    metrics: dict[str, Interval]
    noise_floor: float
    bins: ReliabilityTable


@dataclass(frozen=True)
class Temperature:
    """
    Args:
        value (`float`):
            The fitted temperature; 1 if none could be fitted.
        reason (`str`, *optional*):
            Why it stayed 1.
        calibration_split (`str`, *optional*):
            The split on which it was fitted.
        n (`int`, *optional*):
            Number of samples of that split.
    """

    value: float
    reason: str | None = None
    calibration_split: str | None = None
    n: int | None = None


@dataclass(frozen=True)
class EvaluationReport:
    """
    Everything about one checkpoint on one dataset.

    Args:
        model, dataset, split (`str`):
            Hub ids or local names.
        n (`int`):
            Number of samples.
        before (`Measurement`):
            Without temperature scaling.
        after (`Measurement`, *optional*):
            With `temperature`.
        temperature (`Temperature`, *optional*):
            The temperature of `after`, or why there is none.
        model_revision, dataset_revision, dataset_config (`str`, *optional*):
            What exactly was evaluated.
        corruptions, margins (`dict`, *optional*):
            Accuracy under corruption; margin and sensitivity statistics.
        training_arguments (`dict`, *optional*):
            The arguments of the training run that differ from the defaults.
        command (`str`, *optional*):
            The command that made the report.
        seeds (`dict[str, int]`), versions (`dict[str, str]`):
            Seeds and versions of the libraries.
        samples (`str`, *optional*):
            File name of the per-sample rows beside the report.
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
    corruptions: dict[str, Any] | None = None
    margins: dict[str, Any] | None = None
    training_arguments: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    seeds: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    samples: str | None = None

    def to_json(self) -> str:
        """JSON with plain numbers; NaN and infinity are refused, since JSON has none."""
        try:
            return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(self), indent=2, allow_nan=False) + "\n"
        except ValueError as error:
            raise ValueError(f"the report of {self.model} holds a number that is not finite: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> EvaluationReport:
        data = json.loads(text)
        version = data.pop("schema_version", None) if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema_version is {version!r}, but this version of macs_hf reads {SCHEMA_VERSION}")
        return _report(data)

    def save(self, path: str | PathLike[str]) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> EvaluationReport:
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def _report(data: Mapping[str, Any]) -> EvaluationReport:
    values = _checked(EvaluationReport, data)
    for name in ("before", "after"):
        if values.get(name) is not None:
            values[name] = _measurement(values[name])
    if values.get("temperature") is not None:
        values["temperature"] = Temperature(**_checked(Temperature, values["temperature"]))
    return EvaluationReport(**values)


def _measurement(data: Mapping[str, Any]) -> Measurement:
    values = _checked(Measurement, data)
    metrics = {name: Interval(**_checked(Interval, value)) for name, value in values["metrics"].items()}
    bins = {name: tuple(column) for name, column in _checked(ReliabilityTable, values["bins"]).items()}
    return Measurement(metrics, values["noise_floor"], ReliabilityTable(**bins))


def _checked(kind: type, data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{kind.__name__} must be an object, got {data!r}")
    known = {f.name for f in fields(kind)}
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if unknown := sorted(data.keys() - known):
        raise ValueError(
            f"{kind.__name__} has no field {unknown[0]!r}; a newer version of macs_hf may have written it"
        )
    if missing := sorted(needed - data.keys()):
        raise ValueError(f"{kind.__name__} lacks the field {missing[0]!r}")
    return dict(data)
