"""How a model reacts to images that belong to none of its classes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from ..calibration.stored_thresholds import promised_levels
from ..data.images import ImageDataset
from ..data.unknowns import UnknownImages
from ..disk.public_names import public_name
from ..metrics import detection, wilson
from ..report.guarantees import Guarantees
from ..report.interval import Interval
from ..report.unknowns import Answered, Detection, Unknowns
from ..training.temporary_attributes import temporarily
from ..training.trainer import MaCSTrainer


# Columns of `unknown_scores`, for each temperature.
LOG_ODDS, MAX_LOGIT, ENERGY = range(3)
WIDTH = 3


def unknown_scores(temperature: float | None) -> Callable[[Tensor], Tensor]:
    """
    From logits to scores that are high for known images: without a temperature, and with it.

    The maximum probability p is given as log(p / (1 - p)), which has the same order and does not round to 1. The
    maximum logit has the same order at any temperature.
    """
    temperatures = (1.0,) if temperature is None else (1.0, temperature)

    def scores(logits: Tensor) -> Tensor:
        return torch.cat([_scores(logits.float() / each) for each in temperatures], dim=1)

    return scores


def measure_unknowns(
    trainer: MaCSTrainer,
    unknown: UnknownImages,
    known_scores: np.ndarray,
    test: Any,
    guarantees: Guarantees | None,
) -> Unknowns:
    """
    Compare unknown images with the test images.

    Args:
        trainer ([`MaCSTrainer`]): Holds the model and runs it.
        unknown ([`UnknownImages`]): What it has not learned.
        known_scores (`np.ndarray`): The [`unknown_scores`] of the test images.
        test: The test images; exact copies of them among the unknown ones are counted.
        guarantees ([`Guarantees`], *optional*): With the temperature, and the confidences from which on the model
            answers. Without it, those in the model's config count.
    """
    scores = unknown_scores(None if guarantees is None else guarantees.temperature)
    reduced = {"compute_metrics": None, "preprocess_logits_for_metrics": lambda logits, _: scores(logits)}
    with temporarily(trainer, **reduced):
        found = trainer.predict(unknown.images).predictions
    known, new = (np.split(part.astype(np.float64), found.shape[1] // WIDTH, axis=1) for part in (known_scores, found))
    detections = [_detections(*pair) for pair in zip(known, new, strict=True)]
    known_confidence, confidence = (expit(side[-1][:, LOG_ODDS]) for side in (known, new))
    copies = 0
    if isinstance(test, ImageDataset):
        copies = len(set(unknown.images.hashes.values()) & set(test.hashes.values()))
    return Unknowns(
        dataset=public_name(unknown.dataset),
        split=unknown.split,
        n=len(unknown.images),
        total=unknown.total,
        confidence=float(confidence.mean()),
        known_confidence=float(known_confidence.mean()),
        before=detections[0],
        after=detections[1] if guarantees is not None else None,
        answered=tuple(
            Answered(accuracy, threshold, _share(confidence >= threshold), _share(known_confidence >= threshold))
            for accuracy, threshold in _thresholds(trainer, guarantees).items()
        ),
        left_out=unknown.left_out,
        copies=copies,
    )


def _scores(logits: Tensor) -> Tensor:
    top, place = logits.max(dim=1)
    others = logits.scatter(1, place[:, None], -torch.inf).logsumexp(dim=1)
    return torch.stack([top - others, top, logits.logsumexp(dim=1)], dim=1)


def _detections(known: np.ndarray, new: np.ndarray) -> tuple[Detection, ...]:
    columns = {"max_probability": LOG_ODDS, "max_logit": MAX_LOGIT, "energy": ENERGY}
    return tuple(detection(known[:, column], new[:, column], name) for name, column in columns.items())


def _thresholds(trainer: MaCSTrainer, guarantees: Guarantees | None) -> Mapping[float, float]:
    """By promised accuracy, the confidence from which on the published model answers."""
    if guarantees is not None:
        return {p.accuracy: p.threshold for p in guarantees.abstentions if p.threshold is not None}
    config = getattr(trainer.model, "config", None) or trainer.model  # a network without one keeps them itself
    return promised_levels(getattr(config, "abstention_thresholds", None) or {})


def _share(accepted: np.ndarray) -> Interval:
    number, n = int(accepted.sum()), len(accepted)
    return Interval(number / n, *wilson(number, n))
