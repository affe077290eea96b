"""One image through a classifier, corrupted or not: its probabilities before and after calibration."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import to_pil_image
from transformers import PreTrainedConfig, PreTrainedModel

from ..calibration import store_guarantees
from ..calibration.folding import folded_temperature
from ..calibration.guarantees import guaranteed_levels
from ..calibration.prediction_sets import prediction_sets
from ..corruptions.corrupt import corrupt, to_levels
from ..data.transforms import EvalTransform
from ..evaluation.corruption_benchmark import forward_of
from ..evaluation.evaluate import class_names
from ..models.loading import load_pretrained
from ..pixels import PixelStats
from ..report.report import EvaluationReport
from ..report.text import html_level, html_percent, html_text, section_markup
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
    return Calibration(temperature, guaranteed_levels(sets), guaranteed_levels(answers), exact)


def audited_calibration(report: EvaluationReport, folded: float) -> Calibration:
    """What an audit found: a temperature on top of what is `folded` in already, and guarantees."""
    config = PreTrainedConfig()
    if report.guarantees is not None:
        store_guarantees(config, report.guarantees)
    return stored_calibration(config, folded * report.temperature.value)


# ---- Prediction ----


KEPT_MODELS = 2  # in memory, for all visitors together


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
    What a model says of an image; if it was corrupted, also of the image as it was.

    Args:
        label_names (`tuple[str, ...]`): The model's classes.
        picture (`Image`): What the network gets.
        before, after (`Tensor` of shape `(rows, classes)`): Logarithms of probabilities, without and with its
            temperature. The last row is the answer; the first, if there are two, that to the image as it was.
        calibration ([`Calibration`]): Where `after` and the guarantees come from.
        corruption (`str`): Its name and severity; empty for none.
    """

    label_names: tuple[str, ...]
    picture: Image.Image
    before: Tensor
    after: Tensor
    calibration: Calibration
    corruption: str = ""

    def likeliest(self) -> list[int]:
        """The classes, the likeliest first."""
        return self.after[-1].argsort(descending=True).tolist()

    def prediction(self, row: int = -1) -> tuple[str, float]:
        """The likeliest class, and how sure the model is of it."""
        confidence, index = self.after[row].max(0)
        return self.label_names[index], float(confidence.exp())

    def prediction_set(self, coverage: float) -> list[str] | None:
        """The classes of the prediction set, the likeliest first; `None` if this coverage is not guaranteed."""
        if (threshold := self.calibration.sets.get(coverage)) is None:
            return None
        members = prediction_sets(self.after, threshold)[-1]
        return [self.label_names[index] for index in self.likeliest() if members[index]]


def classifier(name: str, revision: str | None = None, image_size: int | None = None) -> Classifier:
    """The model of this name and size of images, of those that are kept in memory if it is one of them."""
    config = Path(name, "config.json")
    return _classifier(name, revision, image_size, config.stat().st_mtime_ns if config.is_file() else None)


@lru_cache(maxsize=KEPT_MODELS)
def _classifier(name: str, revision: str | None, image_size: int | None, saved: int | None) -> Classifier:
    """`saved` is when a folder's model was written: one that was written again is loaded again."""
    model, processor = load_pretrained(name, revision, image_size)
    return Classifier(model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), processor)


def answer(model: Classifier, image: Image.Image, corruption: str, severity: int, calibration: Calibration) -> Answer:
    """What a model says of an image in RGB, corrupted unless the severity is 0."""
    stats = PixelStats.from_processor(model.processor)
    if stats is None:
        raise ValueError(f"How {type(model.processor).__name__} normalises images is not known.")
    images, name = to_levels(stats.to_pixels(EvalTransform(model.processor)(image)["pixel_values"]))[None], ""
    if severity > 0:
        images = torch.cat([images, corrupt(images, corruption, severity)])
        name = f"{corruption.replace('_', ' ')}, severity {severity}"
    # Both are counted from the model before anything was folded into its head.
    logits = forward_of(model.model, stats)(images).double().cpu() * model.stored.temperature
    before, after = logits.log_softmax(1), (logits / calibration.temperature).log_softmax(1)
    names = class_names(model.model, logits.shape[1])
    return Answer(names, to_pil_image(images[-1]), before, after, calibration, name)


# ---- The answer on the page ----


SHOWN_CLASSES = 5
CORRUPTED = "Guarantees are for images like those of the audit, not for corrupted ones."
APPROXIMATE = "This is approximate: the images that it rests on also chose the checkpoint."
SMALLEST_SHOWN = 240  # pixels; smaller images are enlarged without smoothing


def sureness(share: float) -> str:
    """A confidence in percent; one that is nearly 0 or 1 is not shown as if it were certain."""
    if 0 < share < 0.0005:
        return f"&lt;{html_percent(0.001)}"
    return f"&gt;{html_percent(0.999)}" if 0.9995 <= share < 1 else html_percent(share)


def answer_page(found: Answer, coverage: float, accuracy: float) -> str:
    """
    Args:
        found ([`Answer`]): To one image.
        coverage (`float`): With which probability the prediction set shall hold the right class.
        accuracy (`float`): Which share of answers shall be right; below its threshold the model does not answer.
    """
    image = found.picture
    caption = f"What the network sees: {image.width} x {image.height} pixels, {found.corruption or 'not corrupted'}"
    kind = "sees pixels" if min(image.size) < SMALLEST_SHOWN else "sees"
    sees = f"<figure>{picture(image, caption, kind)}<figcaption>{caption}</figcaption></figure>"
    body = f'<div class="pair top">{sees}<div>{_bars(found)}{_prediction_set(found, coverage)}</div></div>'
    return f'<article class="macs answer">{_headline(found, accuracy)}{body}</article>'


def _headline(found: Answer, accuracy: float) -> str:
    name, confidence = found.prediction()
    title, kind, said = html_text(name), "good", f"{sureness(confidence)} sure."
    threshold, exact = found.calibration.answers.get(accuracy), found.calibration.exact
    share = f"{'at least' if exact else 'about'} {html_level(accuracy)}"
    was, before = found.prediction(0)
    if was != name:
        kind, said = "bad", f"{said} Not corrupted, it was <b>{html_text(was)}</b>, with {sureness(before)}."
    if threshold is not None and confidence < threshold:
        title, kind = "I would not answer", "neutral"
        said = f"The likeliest class is <b>{html_text(name)}</b>, with {sureness(confidence)}. It answers from "
        said += f"{html_level(threshold)} on, where {share} of the answers are right."
    elif threshold is not None:
        which = f"answers from {html_level(threshold)} on" if threshold > 0 else "all answers"
        guarantee = f"{share.capitalize()} of {which} are right.{'' if exact else f' {APPROXIMATE}'}"
        said += f" {CORRUPTED if found.corruption else guarantee}"
    elif found.calibration.answers:
        said += f" How sure it must be for {html_level(accuracy)} of answers to be right is not known."
    return f'<header class="verdict {kind}"><h2>{title}</h2><p>{said}</p></header>'


def _bars(found: Answer) -> str:
    """The likeliest classes, as text and bars; before and after calibration, if a temperature is known."""
    columns, hint = {"probabilities": found.after}, "No temperature is known for this model: audit it to get one."
    if found.calibration.temperature != 1:
        columns, hint = {"before calibration": found.before, "after calibration": found.after}, ""
    drawn = ""
    for title, shares in columns.items():
        kind, rows = "bar before" if shares is found.before else "bar", ""
        for index in found.likeliest()[:SHOWN_CLASSES]:
            share = float(shares[-1, index].exp())
            rows += f'<li><span class="name">{html_text(found.label_names[index])}</span><span class="value">'
            rows += f'{sureness(share)}</span><span class="{kind}"><i style="width:{share:.2%}"></i></span></li>'
        drawn += f'<div><h4>{title}</h4><ol class="bars">{rows}</ol></div>'
    return section_markup("How sure it is", f'<div class="columns">{drawn}</div>', hint)


def _prediction_set(found: Answer, coverage: float) -> str:
    if not found.calibration.sets:
        return ""
    members = found.prediction_set(coverage)
    if members is None:
        known = ", ".join(html_level(level) for level in found.calibration.sets)
        said = f"<p>No coverage is guaranteed at {html_level(coverage)}, only at {known}.</p>"
        return section_markup("Prediction set", said)
    chips = "".join(f'<span class="chip">{html_text(name)}</span>' for name in members)
    hint = f"It holds the right class with a probability of {html_level(coverage)}, for images like those of the "
    hint += f"audit: its coverage guarantee.{'' if found.calibration.exact else f' {APPROXIMATE}'}"
    return section_markup("Prediction set", f'<p class="chips">{chips}</p>', CORRUPTED if found.corruption else hint)
