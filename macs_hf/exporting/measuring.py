"""What quantisation did to a model: its metrics, its temperature and its prediction sets, image by image."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ..calibration.conformal_sets import label_scores, prediction_sets, threshold_of_scores
from ..calibration.drift import temperature_drift
from ..calibration.guarantees import COVERAGES, share, split_held_out
from ..calibration.stored_thresholds import promised_levels
from ..metrics import compare, measure
from ..metrics.difference import Comparison, paired_difference
from ..report.rows import SampleRows
from .report import Difference, Drift, QuantizedPart, SetCoverage


# Of all paired comparisons, those that the card shows.
COMPARED = ("accuracy", "ece", "debiased_ece", "nll", "brier")


class Predictions(NamedTuple):
    """Logits of both files on the same images, and the labels."""

    float32: np.ndarray
    int8: np.ndarray
    labels: np.ndarray


def drift_of(held_out: Predictions) -> Drift:
    """Whether int8 needs another temperature than float32, from the half of the images that fits temperatures."""
    fitting, _ = split_held_out(len(held_out.labels))
    found = temperature_drift(held_out.float32[fitting], held_out.int8[fitting], held_out.labels[fitting])
    folded = found.ratio if found.is_beyond_chance else 1.0
    return Drift(found.ratio, found.low, found.high, found.num_samples, folded, found.reason)


def compared(
    test: Predictions,
    held_out: Predictions,
    drift: Drift,
    thresholds: Mapping[str, Any] | None,
    *,
    range_images: int,
    float_layers: tuple[str, ...],
) -> QuantizedPart:
    """
    Both files on the test images.

    Args:
        test, held_out ([`Predictions`]): Logits of int8 before its temperature.
        drift ([`Drift`]): From [`drift_of`].
        thresholds (`Mapping`, *optional*): `prediction_set_thresholds` of the model's config. Without them, thresholds
            come from the held-out images that fit no temperature, if there are enough.
        range_images, float_layers: See [`QuantizedPart`].
    """
    rows = [rows_of(logits, test.labels) for logits in (test.float32, test.int8, test.int8 / drift.folded)]
    differences = compare(rows[2], rows[0])
    limits, origin = _limits(thresholds, held_out)
    return QuantizedPart(
        range_images=range_images,
        float_layers=float_layers,
        before=measure(rows[1]),
        after=measure(rows[2]) if drift.folded != 1.0 else None,
        drift=drift,
        differences={name: _difference(differences[name]) for name in COMPARED},
        thresholds_from=origin,
        sets=tuple(_sets(test, drift, *limit) for limit in limits),
    )


def rows_of(logits: np.ndarray, labels: np.ndarray) -> SampleRows:
    """The rows of predictions, to be measured."""
    return SampleRows.from_logits(torch.from_numpy(logits), torch.from_numpy(labels))


def _limits(
    thresholds: Mapping[str, Any] | None, held_out: Predictions
) -> tuple[list[tuple[str, float, float]], str | None]:
    """Method, promised coverage and threshold of each kind of set."""
    if thresholds is not None:
        found = [
            (method, *level) for method, stored in thresholds.items() for level in promised_levels(stored).items()
        ]
        return found, "the model's config"
    _, promising = split_held_out(len(held_out.labels))
    if not len(promising):
        return [], None
    scores = label_scores(held_out.float32[promising], held_out.labels[promising], "lac")
    found = [("lac", coverage, threshold_of_scores(scores, coverage)) for coverage in COVERAGES]
    return found, f"{len(promising)} held-out images, with the float32 file"


def _sets(test: Predictions, drift: Drift, method: str, coverage: float, threshold: float) -> SetCoverage:
    sets = [prediction_sets(logits, threshold, method) for logits in (test.float32, test.int8 / drift.folded)]
    own = torch.from_numpy(test.labels)[:, None]
    hits = [part.gather(1, own)[:, 0].numpy() for part in sets]
    return SetCoverage(
        method=method,
        coverage=coverage,
        threshold=threshold,
        float32=share(hits[0].sum(), len(hits[0])),
        int8=share(hits[1].sum(), len(hits[1])),
        float32_size=sets[0].sum(1).double().mean().item(),
        int8_size=sets[1].sum(1).double().mean().item(),
        difference=_difference(paired_difference(hits[1][None], hits[0][None])),
    )


def _difference(found: Comparison) -> Difference:
    return Difference(found.difference, found.low, found.high, found.verdict)
