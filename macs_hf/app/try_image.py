"""One image through a classifier: its probabilities before and after calibration, also while it gets worse."""

import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import to_pil_image
from transformers import PreTrainedConfig, PreTrainedModel

from ..calibration import store_guarantees
from ..calibration.folding import folded_temperature
from ..calibration.prediction_sets import prediction_sets
from ..calibration.promises import promised_levels
from ..corruptions.corrupt import SMALLEST, corrupt, to_levels
from ..data.transforms import EvalTransform
from ..evaluation.corruption_benchmark import forward_of
from ..evaluation.evaluate import class_names
from ..models.loading import load_pretrained
from ..pixels import PixelStats
from ..report.report import EvaluationReport
from ..report.rows import SEVERITIES
from ..report.text import exact_percent, percent, section, text
from .jobs import picture


# ---- Calibration ----


@dataclass(frozen=True)
class Calibration:
    """
    Args:
        temperature (`float`): Counted from the model before any was folded into it; 1.0 if none is known.
        sets (`dict[float, float]`): For each guaranteed coverage, the threshold of the prediction sets (LAC).
        answers (`dict[float, float]`): For each guaranteed accuracy, the confidence from which on to answer.
        exact (`bool`): `False` if the guarantees are approximate, since the same images also chose the checkpoint.
    """

    temperature: float = 1.0
    sets: dict[float, float] = field(default_factory=dict)
    answers: dict[float, float] = field(default_factory=dict)
    exact: bool = True


def stored_calibration(config: Any, temperature: float) -> Calibration:
    """The guarantees that a model's config has, beside the temperature that is folded into its head."""
    sets = vars(config).get("prediction_set_thresholds", {}).get("lac", {})
    answers = vars(config).get("abstention_thresholds", {})
    exact = sets.get("exact", True) and answers.get("exact", True)
    return Calibration(temperature, promised_levels(sets), promised_levels(answers), exact)


def audited_calibration(report: EvaluationReport, folded: float) -> Calibration:
    """What an audit found: a temperature on top of what is `folded` in already, and guarantees."""
    config = PreTrainedConfig()
    if report.guarantees is not None:
        store_guarantees(config, report.guarantees)
    return stored_calibration(config, folded * report.temperature.value)


# ---- Prediction ----


KEPT_MODELS = 2  # in memory, for all visitors together
_loading = threading.Lock()


class Classifier(NamedTuple):
    """A model and its image processor, which are only read, so that visitors can share them."""

    model: PreTrainedModel
    processor: Any

    @property
    def stored(self) -> Calibration:
        return stored_calibration(self.model.config, folded_temperature(self.model))


@dataclass(frozen=True, eq=False)
class Answer:
    """
    What a model says of an image (row 0), and of the same image at severities 1, 2, ... of a corruption.

    Args:
        label_names (`tuple[str, ...]`): The model's classes.
        pictures (`tuple[Image, ...]`): What the network gets.
        before, after (`Tensor` of shape `(rows, classes)`): Logarithms of probabilities, without and with its
            temperature.
        calibration ([`Calibration`]): Where `after` and the guarantees come from.
        corruption (`str`, *optional*): Its name.
    """

    label_names: tuple[str, ...]
    pictures: tuple[Image.Image, ...]
    before: Tensor
    after: Tensor
    calibration: Calibration
    corruption: str | None = None

    def likeliest(self, severity: int) -> list[int]:
        """The classes, the likeliest first."""
        return self.after[severity].argsort(descending=True).tolist()

    def prediction(self, severity: int) -> tuple[str, float]:
        """The likeliest class, and how sure the model is of it."""
        return self.label_names[self.likeliest(severity)[0]], float(self.after[severity].max().exp())

    def prediction_set(self, severity: int, coverage: float) -> list[str] | None:
        """The classes of the prediction set, the likeliest first; `None` if this coverage is not guaranteed."""
        if (threshold := self.calibration.sets.get(coverage)) is None:
            return None
        members = prediction_sets(self.after, threshold)[severity]
        return [self.label_names[index] for index in self.likeliest(severity) if members[index]]


def classifier(name: str, revision: str | None = None, image_size: int | None = None) -> Classifier:
    """The model of this name and size of images, of those that are kept in memory if it is one of them."""
    with _loading:  # two visitors who ask for the same model at once do not load it twice
        config = Path(name, "config.json")
        return _classifier(name, revision, image_size, config.stat().st_mtime_ns if config.is_file() else None)


@lru_cache(maxsize=KEPT_MODELS)
def _classifier(name: str, revision: str | None, image_size: int | None, saved: int | None) -> Classifier:
    """`saved` is when a folder's model was written: one that was written again is loaded again."""
    model, processor = load_pretrained(name, revision, image_size)
    return Classifier(model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), processor)


def answer(model: Classifier, image: Image.Image, corruption: str | None, calibration: Calibration) -> Answer:
    """What a model says of an image in RGB; of a `corruption`, at all severities."""
    stats = PixelStats.from_processor(model.processor)
    if stats is None:
        raise ValueError(f"How {type(model.processor).__name__} normalises images is not known.")
    images = to_levels(stats.to_pixels(EvalTransform(model.processor)(image)["pixel_values"]))[None]
    if corruption is not None:
        if min(images.shape[2:]) < SMALLEST:
            raise ValueError(f"The network takes smaller images than the {SMALLEST} pixels that corruptions need.")
        images = torch.cat([images, *(corrupt(images, corruption, severity) for severity in SEVERITIES)])
    # Both are counted from the model before anything was folded into its head.
    logits = forward_of(model.model, stats)(images).double().cpu() * model.stored.temperature
    before, after = logits.log_softmax(1), (logits / calibration.temperature).log_softmax(1)
    pictures = tuple(map(to_pil_image, images))
    return Answer(class_names(model.model, logits.shape[1]), pictures, before, after, calibration, corruption)


# ---- The answer on the page ----


SHOWN_CLASSES = 5
CORRUPTED = "Guarantees are for images like those of the audit, not for corrupted ones."
APPROXIMATE = "This is approximate: the images that it rests on also chose the checkpoint."
BEFORE, AFTER, ANSWERS = "before calibration", "confidence", "answers from"
SMALLEST_SHOWN = 240  # pixels; smaller images are enlarged without smoothing


def sureness(share: float) -> str:
    """A confidence in percent; one that is nearly 0 or 1 is not shown as if it were certain."""
    if 0 < share < 0.0005:
        return f"&lt;{percent(0.001)}"
    return f"&gt;{percent(0.999)}" if 0.9995 <= share < 1 else percent(share)


def answer_page(found: Answer, severity: int, coverage: float, accuracy: float) -> str:
    """
    Args:
        found ([`Answer`]): At all severities.
        severity (`int`): The one to show.
        coverage (`float`): With which probability the prediction set shall hold the right class.
        accuracy (`float`): Which share of answers shall be right; below its threshold the model does not answer.
    """
    severity = min(severity, len(found.after) - 1)
    image = found.pictures[severity]
    name = f"{found.corruption.replace('_', ' ')}, severity {severity}" if severity else "not corrupted"
    caption = f"What the network sees: {image.width} x {image.height} pixels, {name}"
    kind = "sees pixels" if min(image.size) < SMALLEST_SHOWN else "sees"
    sees = f"<figure>{picture(image, caption, kind)}<figcaption>{caption}</figcaption></figure>"
    said = _bars(found, severity) + _prediction_set(found, coverage, severity)
    body = f'<div class="pair top">{sees}<div>{said}</div></div>'
    return f'<article class="macs answer">{_headline(found, severity, accuracy)}{body}</article>'


def _headline(found: Answer, severity: int, accuracy: float) -> str:
    name, confidence = found.prediction(severity)
    title, kind, said = text(name), "good", f"{sureness(confidence)} sure."
    threshold, exact = found.calibration.answers.get(accuracy), found.calibration.exact
    share = f"{'at least' if exact else 'about'} {exact_percent(accuracy)}"
    was, before = found.prediction(0)
    if was != name:
        kind, said = "bad", f"{said} Not corrupted, it was <b>{text(was)}</b>, with {sureness(before)}."
    if threshold is not None and confidence < threshold:
        title, kind = "I would not answer", "neutral"
        said = f"The likeliest class is <b>{text(name)}</b>, with {sureness(confidence)}. It answers from "
        said += f"{exact_percent(threshold)} on, where {share} of the answers are right."
    elif threshold is not None:
        which = f"answers from {exact_percent(threshold)} on" if threshold > 0 else "all answers"
        guarantee = f"{share.capitalize()} of {which} are right.{'' if exact else f' {APPROXIMATE}'}"
        said += f" {CORRUPTED if severity else guarantee}"
    elif found.calibration.answers:
        said += f" How sure it must be for {exact_percent(accuracy)} of answers to be right is not known."
    return f'<header class="verdict {kind}"><h2>{title}</h2><p>{said}</p></header>'


def _bars(found: Answer, severity: int) -> str:
    """The likeliest classes, as text and bars; before and after calibration, if a temperature is known."""
    columns, hint = {"probabilities": found.after}, "No temperature is known for this model: audit it to get one."
    if found.calibration.temperature != 1:
        columns, hint = {BEFORE: found.before, "after calibration": found.after}, ""
    drawn = ""
    for title, shares in columns.items():
        kind, rows = "bar before" if title == BEFORE else "bar", ""
        for index in found.likeliest(severity)[:SHOWN_CLASSES]:
            share = float(shares[severity, index].exp())
            rows += f'<li><span class="name">{text(found.label_names[index])}</span><span class="value">'
            rows += f'{sureness(share)}</span><span class="{kind}"><i style="width:{share:.2%}"></i></span></li>'
        drawn += f'<div><h4>{title}</h4><ol class="bars">{rows}</ol></div>'
    return section("How sure it is", f'<div class="columns">{drawn}</div>', hint)


def _prediction_set(found: Answer, coverage: float, severity: int) -> str:
    if not found.calibration.sets:
        return ""
    members = found.prediction_set(severity, coverage)
    if members is None:
        known = ", ".join(exact_percent(level) for level in found.calibration.sets)
        said = f"<p>No coverage is guaranteed at {exact_percent(coverage)}, only at {known}.</p>"
        return section("Prediction set", said)
    chips = "".join(f'<span class="chip">{text(name)}</span>' for name in members)
    hint = f"It holds the right class with a probability of {exact_percent(coverage)}, for images like those of the "
    hint += f"audit: its coverage guarantee.{'' if found.calibration.exact else f' {APPROXIMATE}'}"
    return section("Prediction set", f'<p class="chips">{chips}</p>', CORRUPTED if severity else hint)


def severity_curve(found: Answer, accuracy: float) -> pd.DataFrame:
    """
    The confidence in the answer to one image as it gets worse: columns `severity`, `confidence` and `curve`. The
    threshold from which on that share of answers is right is a curve too, if there is one.
    """
    curves = {AFTER: found.after.amax(1).exp().tolist()}
    if found.calibration.temperature != 1:
        curves[BEFORE] = found.before.amax(1).exp().tolist()
    if threshold := found.calibration.answers.get(accuracy):  # from 0 on it answers all
        curves[ANSWERS] = [threshold] * len(found.after)
    rows = [(str(severity), value, name) for name, values in curves.items() for severity, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["severity", "confidence", "curve"])
