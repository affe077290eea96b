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

    @property
    def is_known(self) -> bool:
        return self.temperature != 1


def stored_calibration(config: Any, temperature: float) -> Calibration:
    """
    What a model's config has.

    Args:
        config (`PreTrainedConfig`): Of the model, with the thresholds of its guarantees.
        temperature (`float`): What is folded into its head, from [`folded_temperature`].
    """
    stored = vars(config)
    sets = stored.get("prediction_set_thresholds", {}).get("lac", {})
    answers = stored.get("abstention_thresholds", {})
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
    def temperature(self) -> float:
        """What is folded into its head; 1.0 if nothing is."""
        return folded_temperature(self.model)


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
    """

    label_names: tuple[str, ...]
    pictures: tuple[Image.Image, ...]
    before: Tensor
    after: Tensor
    calibration: Calibration

    def likeliest(self, severity: int, most: int | None = None) -> list[int]:
        """The classes, the likeliest first."""
        return self.after[severity].argsort(descending=True).tolist()[:most]

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
    """
    Args:
        model ([`Classifier`]): The model.
        image (`Image`): In RGB.
        corruption (`str`, *optional*): One of `CORRUPTIONS`, for an answer at all severities.
        calibration ([`Calibration`]): Its temperature and guarantees.
    """
    stats = PixelStats.from_processor(model.processor)
    if stats is None:
        raise ValueError(f"How {type(model.processor).__name__} normalises images is not known.")
    prepared = EvalTransform(model.processor)(image)["pixel_values"]
    images = to_levels(stats.to_pixels(prepared))[None]
    if corruption is not None:
        height, width = images.shape[2:]
        if min(height, width) < SMALLEST:
            raise ValueError(
                f"The network takes images of {width} x {height} pixels, fewer than the {SMALLEST} x {SMALLEST} that "
                "corruptions need."
            )
        images = torch.cat([images, *(corrupt(images, corruption, severity) for severity in SEVERITIES)])
    logits = forward_of(model.model, stats)(images).double().cpu()
    # Both are counted from the model before anything was folded into its head.
    before, after = (
        (logits * (model.temperature / temperature)).log_softmax(1) for temperature in (1.0, calibration.temperature)
    )
    names = class_names(model.model, logits.shape[1])
    return Answer(names, tuple(map(to_pil_image, images)), before, after, calibration)


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


def answer_page(found: Answer, severity: int, corruption: str | None, coverage: float, accuracy: float) -> str:
    """
    Args:
        found ([`Answer`]): At all severities.
        severity (`int`): The one to show.
        corruption (`str`, *optional*): Its name.
        coverage (`float`): With which probability the prediction set shall hold the right class.
        accuracy (`float`): Which share of answers shall be right; below its threshold the model does not answer.
    """
    severity = min(severity, len(found.after) - 1)
    said = _bars(found, severity) + _prediction_set(found, coverage, severity)
    body = f'<div class="pair top">{_sees(found, severity, corruption)}<div>{said}</div></div>'
    return f'<article class="macs answer">{_headline(found, severity, accuracy)}{body}</article>'


def _headline(found: Answer, severity: int, accuracy: float) -> str:
    name, confidence = found.prediction(severity)
    threshold, exact = found.calibration.answers.get(accuracy), found.calibration.exact
    share = f"{'at least' if exact else 'about'} {exact_percent(accuracy)}"
    if threshold is not None and confidence < threshold:
        said = f"The likeliest class is <b>{text(name)}</b>, with {sureness(confidence)}. It answers from "
        said += f"{exact_percent(threshold)} on, where {share} of the answers are right."
        return f'<header class="verdict neutral"><h2>I would not answer</h2><p>{said}</p></header>'
    said, kind = f"{sureness(confidence)} sure.", "good"
    was, before = found.prediction(0)
    if was != name:
        said, kind = f"{said} Not corrupted, it was <b>{text(was)}</b>, with {sureness(before)}.", "bad"
    if threshold is not None:
        which = f"answers from {exact_percent(threshold)} on" if threshold > 0 else "all answers"
        guarantee = f"{share.capitalize()} of {which} are right.{'' if exact else f' {APPROXIMATE}'}"
        said += f" {CORRUPTED if severity else guarantee}"
    elif found.calibration.answers:
        said += f" How sure it must be for {exact_percent(accuracy)} of answers to be right is not known."
    return f'<header class="verdict {kind}"><h2>{text(name)}</h2><p>{said}</p></header>'


def _sees(found: Answer, severity: int, corruption: str | None) -> str:
    image = found.pictures[severity]
    kind = "sees pixels" if min(image.size) < SMALLEST_SHOWN else "sees"
    name = f"{corruption.replace('_', ' ')}, severity {severity}" if corruption and severity else "not corrupted"
    caption = f"What the network sees: {image.width} x {image.height} pixels, {name}"
    return f"<figure>{picture(image, caption, kind)}<figcaption>{caption}</figcaption></figure>"


def _bars(found: Answer, severity: int) -> str:
    """The likeliest classes, as text and bars; before and after calibration, if a temperature is known."""
    columns, hint = {"probabilities": found.after}, "No temperature is known for this model: audit it to get one."
    if found.calibration.is_known:
        columns, hint = {BEFORE: found.before, "after calibration": found.after}, ""
    drawn = ""
    for title, shares in columns.items():
        rows = ""
        for index in found.likeliest(severity, SHOWN_CLASSES):
            share, kind = float(shares[severity, index].exp()), "bar before" if title == BEFORE else "bar"
            rows += f'<li><span class="name">{text(found.label_names[index])}</span><span class="value">'
            rows += (
                f'{sureness(share)}</span><span class="{kind}"><i style="width:{100 * share:.2f}%"></i></span></li>'
            )
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
    The confidence in the answer to one image as it gets worse: columns `severity`, `confidence` and `curve`.

    Args:
        found ([`Answer`]): At all severities.
        accuracy (`float`): Which share of answers shall be right; its threshold is a curve too, if there is one.
    """
    curves = {AFTER: found.after.amax(1).exp().tolist()}
    if found.calibration.is_known:
        curves[BEFORE] = found.before.amax(1).exp().tolist()
    if threshold := found.calibration.answers.get(accuracy):  # from 0 on it answers all
        curves[ANSWERS] = [threshold] * len(found.after)
    rows = [(str(severity), value, name) for name, values in curves.items() for severity, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["severity", "confidence", "curve"])
