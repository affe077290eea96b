"""One image through a classifier: its probabilities before and after calibration, also while it gets worse."""

import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import to_pil_image

from ..calibration.folding import folded_temperature
from ..calibration.prediction_sets import prediction_sets
from ..calibration.promises import promised_levels
from ..corruptions.corrupt import SMALLEST, corrupt, to_levels
from ..data.transforms import EvalTransform
from ..evaluation.corruption_benchmark import Forward, forward_of
from ..models.loading import load_pretrained
from ..pixels import PixelStats
from ..report.report import EvaluationReport
from ..report.rows import SEVERITIES
from ..report.text import exact_percent, percent, section, text
from .jobs import KEPT_MODELS, picture


# ---- Calibration ----


@dataclass(frozen=True)
class Calibration:
    """
    Args:
        before, after (`float`): Temperatures of the two readings that the page shows, counted from the model before
            any was folded into it. They are equal if no temperature is known.
        sets (`dict[float, float]`): For each promised coverage, the threshold of the prediction sets (LAC).
        answers (`dict[float, float]`): For each promised accuracy, the confidence from which on to answer.
        exact (`bool`): `False` if the promises are approximate, since the same images also chose the checkpoint.
    """

    before: float = 1.0
    after: float = 1.0
    sets: dict[float, float] = field(default_factory=dict)
    answers: dict[float, float] = field(default_factory=dict)
    exact: bool = True

    @property
    def is_known(self) -> bool:
        return self.before != self.after


def stored_calibration(config: Any, folded: float) -> Calibration:
    """
    What a model's config has: the temperature `folded` into its head, and the thresholds of its promises.

    Args:
        config (`PreTrainedConfig`): Of the model.
        folded (`float`): From [`folded_temperature`].
    """
    stored = vars(config)
    sets = stored.get("prediction_set_thresholds", {}).get("lac", {})
    answers = stored.get("abstention_thresholds", {})
    exact = sets.get("exact", True) and answers.get("exact", True)
    return Calibration(1.0, folded, promised_levels(sets), promised_levels(answers), exact)


def audited_calibration(report: EvaluationReport, folded: float) -> Calibration:
    """What an audit found: the temperature that was fitted, on top of what is folded in already, and its promises."""
    after = folded * report.temperature.value
    if report.guarantees is None:
        return Calibration(1.0, after)
    sets = {
        promise.coverage: promise.threshold for promise in report.guarantees.prediction_sets if promise.method == "lac"
    }
    answers = {p.accuracy: p.threshold for p in report.guarantees.abstentions if p.threshold is not None}
    return Calibration(1.0, after, sets, answers, report.guarantees.exact)


# ---- Prediction ----


_loading = threading.Lock()


@dataclass(frozen=True, eq=False)
class Classifier:
    """
    A model that is only read, so that visitors can share it.

    Args:
        forward (`Callable`): From uint8 images to logits.
        stats ([`PixelStats`]): How its processor normalises pixels.
        transform ([`EvalTransform`]): From an image to what the network takes.
        label_names (`tuple[str, ...]`): Its classes.
        config (`PreTrainedConfig`): With what it promises, if it does.
        temperature (`float`): What is folded into its head; 1.0 if nothing is.
    """

    forward: Forward
    stats: PixelStats
    transform: EvalTransform
    label_names: tuple[str, ...]
    config: Any
    temperature: float


@dataclass(frozen=True)
class Reading:
    """
    What the model says of an image at one severity.

    Args:
        before, after (`tuple[float, ...]`): Probabilities of the classes, without and with its temperature.
        members (`dict[float, tuple[int, ...]]`): The prediction set at each coverage that is promised, surest first.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    members: dict[float, tuple[int, ...]]

    @property
    def prediction(self) -> int:
        return max(range(len(self.after)), key=self.after.__getitem__)

    @property
    def confidence(self) -> float:
        return max(self.after)


@dataclass(frozen=True, eq=False)
class Answer:
    """
    Args:
        label_names (`tuple[str, ...]`): The model's classes.
        pictures (`tuple[Image, ...]`): What the network gets at severity 0 (the image itself), 1, 2, ...
        readings (`tuple[Reading, ...]`): What it says at each.
        calibration ([`Calibration`]): Where `after` and the promises come from.
    """

    label_names: tuple[str, ...]
    pictures: tuple[Image.Image, ...]
    readings: tuple[Reading, ...]
    calibration: Calibration


def classifier(name: str, revision: str | None = None, image_size: int | None = None) -> Classifier:
    """The model of this name and size of images, of those that are kept in memory if it is one of them."""
    with _loading:  # two visitors who ask for the same model at once do not load it twice
        config = Path(name, "config.json")
        return _classifier(name, revision, image_size, config.stat().st_mtime_ns if config.is_file() else None)


@lru_cache(maxsize=KEPT_MODELS)
def _classifier(name: str, revision: str | None, image_size: int | None, saved: int | None) -> Classifier:
    """`saved` is when a folder's model was written: one that was written again is loaded again."""
    model, processor = load_pretrained(name, revision, image_size)
    stats = PixelStats.from_processor(processor)
    if stats is None:
        raise ValueError(f"How {type(processor).__name__} normalises images is not known.")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    labels = tuple(str(model.config.id2label[index]) for index in range(model.config.num_labels))
    return Classifier(
        forward_of(model.to(device).eval(), stats),
        stats,
        EvalTransform(processor),
        labels,
        model.config,
        folded_temperature(model),
    )


def answer(model: Classifier, image: Image.Image, corruption: str | None, calibration: Calibration) -> Answer:
    """
    What a model says of an image, and of the same image under a corruption at all severities.

    Args:
        model ([`Classifier`]): The model.
        image (`Image`): In RGB.
        corruption (`str`, *optional*): One of `CORRUPTIONS`.
        calibration ([`Calibration`]): Its temperature and promises.
    """
    prepared = model.transform(image)["pixel_values"]
    images = to_levels(model.stats.to_pixels(prepared))[None]
    if corruption is not None:
        height, width = images.shape[2:]
        if min(height, width) < SMALLEST:
            raise ValueError(
                f"The network takes images of {width} x {height} pixels, fewer than the {SMALLEST} x {SMALLEST} that "
                "corruptions need."
            )
        images = torch.cat([images, *(corrupt(images, corruption, severity) for severity in SEVERITIES)])
    logits = model.forward(images).double().cpu()
    raw = logits * model.temperature  # as they were before anything was folded into the head
    before, after = raw / calibration.before, raw / calibration.after
    members = {coverage: prediction_sets(after, threshold) for coverage, threshold in calibration.sets.items()}
    readings = tuple(
        Reading(
            tuple(before[place].softmax(0).tolist()),
            tuple(after[place].softmax(0).tolist()),
            {coverage: _surest_first(sets[place], after[place]) for coverage, sets in members.items()},
        )
        for place in range(len(logits))
    )
    pictures = tuple(to_pil_image(levels) for levels in images)
    return Answer(model.label_names, pictures, readings, calibration)


def _surest_first(members: Tensor, logits: Tensor) -> tuple[int, ...]:
    return tuple(index for index in logits.argsort(descending=True).tolist() if members[index])


# ---- The answer on the page ----


SHOWN_CLASSES = 5
NO_PROMISE = "What it promises does not hold for corrupted images."
APPROXIMATE = "This is approximate: the images that it rests on also chose the checkpoint."
BEFORE, AFTER, ANSWERS = "before calibration", "confidence", "answers from"
SMALLEST_SHOWN = 240  # pixels; smaller images are enlarged without smoothing


def sureness(share: float) -> str:
    """A confidence in percent; one that is nearly 0 or 1 is not shown as if it were certain."""
    if 0 < share < 0.0005:
        return f"&lt;{percent(0.001)}"
    return f"&gt;{percent(0.999)}" if 0.9995 <= share < 1 else percent(share)


def answer_page(answer: Answer, severity: int, corruption: str | None, coverage: float, accuracy: float) -> str:
    """
    Args:
        answer ([`Answer`]): At all severities.
        severity (`int`): The one to show.
        corruption (`str`, *optional*): Its name.
        coverage (`float`): With which probability the prediction set shall hold the right class.
        accuracy (`float`): Which share of answers shall be right; below its threshold the model does not answer.
    """
    severity = min(severity, len(answer.readings) - 1)
    reading = answer.readings[severity]
    said = _bars(answer, reading) + _prediction_set(answer, reading, coverage, severity)
    body = f'<div class="pair top">{_sees(answer, severity, corruption)}<div>{said}</div></div>'
    return f'<article class="macs answer">{_headline(answer, severity, accuracy)}{body}</article>'


def _headline(answer: Answer, severity: int, accuracy: float) -> str:
    reading, first = answer.readings[severity], answer.readings[0]
    threshold, exact = answer.calibration.answers.get(accuracy), answer.calibration.exact
    share = f"{'at least' if exact else 'about'} {exact_percent(accuracy)}"
    name, sure = text(answer.label_names[reading.prediction]), sureness(reading.confidence)
    if threshold is not None and reading.confidence < threshold:
        said = f"The likeliest class is <b>{name}</b>, with {sure}. It answers from {exact_percent(threshold)} on, "
        said += f"where {share} of the answers are right."
        return f'<header class="verdict neutral"><h2>I would not answer</h2><p>{said}</p></header>'
    said, kind = f"{sure} sure.", "good"
    if severity and reading.prediction != first.prediction:
        was = text(answer.label_names[first.prediction])
        said, kind = f"{said} Not corrupted, it was <b>{was}</b>, with {sureness(first.confidence)}.", "bad"
    if threshold is not None:
        which = f"answers from {exact_percent(threshold)} on" if threshold > 0 else "all answers"
        promise = f"{share.capitalize()} of {which} are right.{'' if exact else f' {APPROXIMATE}'}"
        said += f" {NO_PROMISE if severity else promise}"
    elif answer.calibration.answers:
        said += f" How sure it must be for {exact_percent(accuracy)} of answers to be right is not known."
    return f'<header class="verdict {kind}"><h2>{name}</h2><p>{said}</p></header>'


def _sees(answer: Answer, severity: int, corruption: str | None) -> str:
    image = answer.pictures[severity]
    kind = "sees pixels" if min(image.size) < SMALLEST_SHOWN else "sees"
    name = f"{corruption.replace('_', ' ')}, severity {severity}" if corruption and severity else "not corrupted"
    caption = f"What the network sees: {image.width} x {image.height} pixels, {name}"
    return f"<figure>{picture(image, caption, kind)}<figcaption>{caption}</figcaption></figure>"


def _bars(answer: Answer, reading: Reading) -> str:
    """The likeliest classes, as text and bars; before and after calibration, if a temperature is known."""
    order = sorted(range(len(reading.after)), key=lambda index: -reading.after[index])[:SHOWN_CLASSES]
    columns, hint = {"probabilities": reading.after}, "No temperature is known for this model: audit it to get one."
    if answer.calibration.is_known:
        columns, hint = {BEFORE: reading.before, "after calibration": reading.after}, ""
    drawn = ""
    for title, values in columns.items():
        rows = "".join(
            f'<li><span class="name">{text(answer.label_names[index])}</span>'
            f'<span class="value">{sureness(values[index])}</span>'
            f'<span class="bar{" before" if title == BEFORE else ""}"><i style="width:{100 * values[index]:.2f}%">'
            "</i></span></li>"
            for index in order
        )
        drawn += f'<div><h4>{title}</h4><ol class="bars">{rows}</ol></div>'
    return section("How sure it is", f'<div class="columns">{drawn}</div>', hint)


def _prediction_set(answer: Answer, reading: Reading, coverage: float, severity: int) -> str:
    if not answer.calibration.sets:
        return ""
    members = reading.members.get(coverage)
    if members is None:
        known = ", ".join(exact_percent(level) for level in answer.calibration.sets)
        return section(
            "Prediction set", f"<p>Nothing is promised for {exact_percent(coverage)}, only for {known}.</p>"
        )
    chips = "".join(f'<span class="chip">{text(answer.label_names[index])}</span>' for index in members)
    hint = (
        f"With a probability of {exact_percent(coverage)} it holds the right class, for images like those of the "
        "audit."
        f"{'' if answer.calibration.exact else f' {APPROXIMATE}'}"
    )
    return section("Prediction set", f'<p class="chips">{chips}</p>', NO_PROMISE if severity else hint)


def severity_curve(answer: Answer, accuracy: float) -> pd.DataFrame:
    """
    The confidence in the answer to one image as it gets worse: columns `severity`, `confidence` and `curve`.

    Args:
        answer ([`Answer`]): At all severities.
        accuracy (`float`): Which share of answers shall be right; its threshold is a curve too, if there is one.
    """
    curves = {AFTER: [reading.confidence for reading in answer.readings]}
    if answer.calibration.is_known:
        curves[BEFORE] = [max(reading.before) for reading in answer.readings]
    if threshold := answer.calibration.answers.get(accuracy):  # from 0 on it answers all
        curves[ANSWERS] = [threshold] * len(answer.readings)
    rows = [(str(severity), value, name) for name, values in curves.items() for severity, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["severity", "confidence", "curve"])
