"""ExportReport: what an exported folder holds, and how its files compare with the model, to and from JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Literal

from ..disk.atomic_writes import write_text_atomically
from ..disk.secrets import redact
from ..report.checks import check_count, check_range
from ..report.evaluation import MAX_TEMPERATURE, MIN_TEMPERATURE, Measurement
from ..report.guarantees import Share
from ..report.serialization import from_plain, to_plain


EXPORT_FILE = "export.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Agreement:
    """
    The float32 file against the model in PyTorch, on the same images.

    Args:
        images (`str`): Which images they are.
        n (`int`): How many.
        largest_difference (`float`): Of any logit.
        largest_logit (`float`): In absolute value, to compare the difference with.
        same_predictions (`int`): Images with the same most probable class.
    """

    images: str
    n: int
    largest_difference: float
    largest_logit: float
    same_predictions: int

    def __post_init__(self) -> None:
        check_count("n", self.n, at_least=1)
        check_count("same_predictions", self.same_predictions)
        check_range("largest_difference", self.largest_difference, 0)
        check_range("largest_logit", self.largest_logit, 0)


@dataclass(frozen=True)
class Difference:
    """
    int8 minus float32 in one metric, paired by image.

    Args:
        value, low, high (`float`): The difference and its 95 % interval.
        verdict (`str`): How int8 is: `"better"`, `"worse"`, `"undecided"` or `"equal"`.
    """

    value: float
    low: float
    high: float
    verdict: Literal["better", "worse", "undecided", "equal"]


@dataclass(frozen=True)
class Drift:
    """
    The temperature that int8 needs over the one that float32 needs, on the same held-out images.

    Args:
        ratio, low, high (`float`): The ratio and its 95 % interval.
        n (`int`): Held-out images.
        folded (`float`): What the logits of the int8 file are divided by: `ratio` if its interval excludes 1, else 1.
        reason (`str`, *optional*): Why no ratio could be fitted.
    """

    ratio: float
    low: float
    high: float
    n: int
    folded: float
    reason: str | None = None

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_range("folded", self.folded, MIN_TEMPERATURE / MAX_TEMPERATURE, MAX_TEMPERATURE / MIN_TEMPERATURE)


@dataclass(frozen=True)
class SetCoverage:
    """
    Prediction sets of both files at the threshold of the float32 model, on the test images.

    Args:
        method (`str`): `"lac"` or `"raps"`.
        coverage (`float`): What is promised.
        threshold (`float`): Of the score.
        float32, int8 ([`Share`]): Images whose set holds the right class.
        float32_size, int8_size (`float`): Mean number of classes in a set.
        difference ([`Difference`]): int8 minus float32.
    """

    method: Literal["lac", "raps"]
    coverage: float
    threshold: float
    float32: Share
    int8: Share
    float32_size: float
    int8_size: float
    difference: Difference


@dataclass(frozen=True)
class QuantizedPart:
    """
    Args:
        range_images (`int`): Held-out images whose activations set the ranges of the integers.
        float_layers (`tuple[str, ...]`): Layers that stay in float32: the head, whose logits would have 256 values.
        before ([`Measurement`]): As quantised.
        after ([`Measurement`], *optional*): With the temperature of `drift`, as published; `None` if it is 1.
        drift ([`Drift`]): Whether the temperature moved.
        differences (`dict[str, Difference]`): Published int8 minus float32, by metric.
        thresholds_from (`str`, *optional*): Where the thresholds of `sets` come from.
        sets (`tuple[SetCoverage, ...]`): Coverage of prediction sets; empty if there are no thresholds.
    """

    range_images: int
    float_layers: tuple[str, ...]
    before: Measurement
    after: Measurement | None
    drift: Drift
    differences: dict[str, Difference]
    thresholds_from: str | None = None
    sets: tuple[SetCoverage, ...] = ()

    @property
    def published(self) -> Measurement:
        return self.after or self.before


@dataclass(frozen=True)
class ExportReport:
    """
    Args:
        model (`str`): Hub id or name of the model that was exported.
        image_size (`tuple[int, int]`): Height and width of the input.
        num_labels (`int`): Number of classes.
        opset (`int`): Version of the ONNX operators.
        files (`dict[str, int]`): Bytes of each file, by its path in the folder.
        agreement ([`Agreement`]): With the model in PyTorch.
        model_revision (`str`, *optional*): Commit, branch or tag of the model.
        calibration_temperature (`float`, *optional*): What was folded into the model before, as its config says.
        dataset, dataset_config, split, n (*optional*): What was measured on.
        held_out_split (`str`, *optional*): Where the images for ranges and temperature come from.
        float32 ([`Measurement`], *optional*): Of `onnx/model.onnx` on these images.
        int8 ([`QuantizedPart`], *optional*): Of `onnx/model_quantized.onnx`.
        command (`str`, *optional*), versions (`dict[str, str]`): How it was made.
    """

    model: str
    image_size: tuple[int, int]
    num_labels: int
    opset: int
    files: dict[str, int]
    agreement: Agreement
    model_revision: str | None = None
    calibration_temperature: float | None = None
    dataset: str | None = None
    dataset_config: str | None = None
    split: str | None = None
    n: int | None = None
    held_out_split: str | None = None
    float32: Measurement | None = None
    int8: QuantizedPart | None = None
    command: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.float32 is None) != (self.n is None):
            raise ValueError("n must be given where float32 was measured, and only there")
        if self.int8 is not None and self.float32 is None:
            raise ValueError("int8 is compared with float32, which is missing")

    def save(self, folder: str | PathLike[str]) -> Path:
        path = Path(folder) / EXPORT_FILE
        text = json.dumps({"schema_version": SCHEMA_VERSION} | to_plain(self), indent=2, allow_nan=False)
        write_text_atomically(path, redact(text) + "\n")
        return path

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> ExportReport:
        path = Path(folder) / EXPORT_FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            version = data.pop("schema_version", None)
            if version != SCHEMA_VERSION:
                raise ValueError(f"schema_version is {version!r}, but this version of macs_hf reads {SCHEMA_VERSION}")
            return from_plain(cls, data)
        except ValueError as error:
            raise ValueError(f"{path} cannot be used: {error}") from error
