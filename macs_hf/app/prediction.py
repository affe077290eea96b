"""One image through a classifier: its probabilities before and after calibration, also while it gets worse."""

import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import to_pil_image

from ..calibration.conformal_sets import prediction_sets
from ..calibration.folding import folded_temperature
from ..corruptions.corrupt import SMALLEST, corrupt, to_levels
from ..data.transforms import EvalTransform
from ..evaluation.corruption_benchmark import Forward, forward_of
from ..models.loading import load_pretrained
from ..pixels import PixelStats
from ..report.corruption_names import SEVERITIES
from .limits import KEPT_MODELS
from .model_calibration import Calibration


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


def classifier(name: str, revision: str | None = None) -> Classifier:
    """The model of this name, of those that are kept in memory if it is one of them."""
    with _loading:  # two visitors who ask for the same model at once do not load it twice
        config = Path(name, "config.json")
        return _classifier(name, revision, config.stat().st_mtime_ns if config.is_file() else None)


@lru_cache(maxsize=KEPT_MODELS)
def _classifier(name: str, revision: str | None, saved: int | None) -> Classifier:
    """`saved` is when a folder's model was written: one that was written again is loaded again."""
    model, processor = load_pretrained(name, revision)
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
