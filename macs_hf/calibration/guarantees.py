"""All guarantees of a model: made from held-out samples that fitted nothing else, compared with test samples, stored.

fit, guarantees = calibrate_logits(held_out_logits, held_out_labels)
guarantees = measure_guarantees(guarantees, test_logits, test_labels)  # what came true; it decides nothing
fold_temperature(model, fit.value)
store_guarantees(model.config, guarantees)
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from ..metrics.intervals import wilson
from ..report.report import Guarantees, PredictionSetGuarantee, Share, Temperature, forget_guarantees
from ..report.rows import SampleRows
from .abstention import abstention_report
from .prediction_sets import RAPS_K_REG, RAPS_LAMBDA, Method, class_scores, label_scores, threshold_of_scores
from .temperature import ArrayLike, checked_samples, choose_temperature, chunks


logger = logging.getLogger(__name__)

COVERAGES = (0.8, 0.9, 0.95, 0.99)
ACCURACIES = (0.9, 0.95, 0.99)
DELTA = 0.05  # the probability with which the guarantee of an accuracy may be broken
MIN_HELD_OUT = 400  # from here on, half of the held-out samples fit the temperature and half make guarantees


def split_held_out(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """
    Which held-out samples fit the temperature, and which make guarantees: a random half each, from 400 samples on.

    Below that, all go to the temperature, and the second part is empty. Two arrays of positions, ascending.

    ```python
    >>> [len(part) for part in split_held_out(401)], [len(part) for part in split_held_out(399)]
    ([201, 200], [399, 0])

    ```
    """
    if samples < MIN_HELD_OUT:
        return np.arange(samples), np.arange(0)
    order = np.random.default_rng(0).permutation(samples)
    return np.sort(order[samples // 2 :]), np.sort(order[: samples // 2])


def calibrate_logits(
    logits: ArrayLike, labels: ArrayLike, *, exact: bool = True, force_temperature: bool = False
) -> tuple[Temperature, Guarantees]:
    """
    A temperature from one part of the held-out samples, if it helps there (see [`choose_temperature`]), and guarantees
    from the other part (see [`split_held_out`]).

    Args:
        logits (`torch.Tensor`, `np.ndarray` or nested list of shape `(samples, classes)`): Logits of samples that
            neither trained the model nor test it.
        labels (`torch.Tensor`, `np.ndarray` or list of shape `(samples,)`): Class indices.
        exact (`bool`, *optional*, defaults to `True`): `False` if these samples also chose the checkpoint.
        force_temperature (`bool`, *optional*, defaults to `False`): Use the temperature that fits best even where it
            does not help beyond chance.
    """
    logits, labels = checked_samples(logits, labels)
    fitting, others = split_held_out(len(labels))
    fit = choose_temperature(logits[fitting], labels[fitting], force=force_temperature)
    return fit, make_guarantees(logits[others], labels[others], fit.value, num_temperature=fit.n, exact=exact)


def make_guarantees(
    logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0, *, num_temperature: int = 0, exact: bool = True
) -> Guarantees:
    """
    Prediction sets by both methods at each of `COVERAGES`, and a threshold of the confidence for each of `ACCURACIES`.

    The samples are the second part of [`split_held_out`], and fitted nothing else; `num_temperature` others fitted the
    temperature. With no samples nothing is guaranteed, and the reason is part of the outcome. [`measure_guarantees`]
    adds what came true.
    """
    n = len(labels)
    facts = {"num_temperature": num_temperature, "num_guarantee": n, "num_test": 0}
    facts |= {"temperature": float(temperature), "exact": exact}
    if not n:
        reason = (
            f"{num_temperature} held-out samples are too few: coverage guarantees take at least {MIN_HELD_OUT}, half "
            "of them for the temperature"
        )
        logger.warning("no guarantees: %s", reason)
        return Guarantees(**facts, reason=reason)
    logits, labels = _scaled(logits, labels, temperature)
    if missing := (labels.bincount(minlength=logits.shape[1]) == 0).nonzero().flatten().tolist():
        logger.warning(
            "%d of %d classes have no held-out samples (class %d, for one): the guarantee is for all images together, "
            "and nothing is known about these classes.",
            *(len(missing), logits.shape[1], missing[0]),
        )
    sets = []
    for method in get_args(Method):
        scores = label_scores(logits, labels, method)
        sets += [PredictionSetGuarantee(method, c, threshold_of_scores(scores, c), n) for c in COVERAGES]
    confidence = torch.cat([part.softmax(1).amax(1) for (part,) in chunks(logits)])
    right = logits.argmax(1) == labels
    abstentions = tuple(abstention_report(confidence, right, accuracy, DELTA) for accuracy in ACCURACIES)
    return Guarantees(**facts, prediction_sets=tuple(sets), abstentions=abstentions)


def measure_guarantees(guarantees: Guarantees, logits: ArrayLike, labels: ArrayLike) -> Guarantees:
    """
    What became of the guarantees on test samples, which must not be those that the guarantees come from.

    Args:
        guarantees ([`Guarantees`]): From [`make_guarantees`] or [`calibrate_logits`].
        logits, labels: Of the test samples; the logits without the temperature of the guarantees.
    """
    logits, labels = _scaled(logits, labels, guarantees.temperature)
    rows = SampleRows.from_logits(logits, labels)
    outcome = torch.cat([set_outcome(part, own, guarantees) for part, own in chunks(logits, labels)])
    return with_test_outcome(guarantees, rows, outcome.numpy(), logits.shape[1])


def set_outcome(logits: Tensor, labels: Tensor, guarantees: Guarantees) -> Tensor:
    """
    Whether the prediction set of each sample holds its class, and how large it is, from logits with their temperature.

    `(n, 2 * sets)`, float32, on the device of the logits: a column of 0 and 1 for each of the guarantees' sets, then a
    column of sizes for each.
    """
    device, sets = logits.device, guarantees.prediction_sets
    logits = (logits.cpu() if device.type == "mps" else logits).double()  # MPS has no float64
    labels = labels.to(logits.device)[:, None]
    scores = {method: class_scores(logits, method) for method in {guarantee.method for guarantee in sets}}
    own = {method: scores[method].gather(1, labels)[:, 0] for method in scores}
    # The most probable class has the lowest score: in every set that is not empty, and added to those that are.
    right = logits.argmax(1) == labels[:, 0]
    columns = [(own[guarantee.method] <= guarantee.threshold) | right for guarantee in sets]
    columns += [(scores[guarantee.method] <= guarantee.threshold).sum(1).clamp(min=1) for guarantee in sets]
    if not columns:
        return logits.new_zeros((len(logits), 0), dtype=torch.float32, device=device)
    return torch.stack(columns, dim=1).to(device, torch.float32)


def with_test_outcome(guarantees: Guarantees, rows: SampleRows, outcome: np.ndarray, num_classes: int) -> Guarantees:
    """The guarantees with what came true: rows of the test samples with the temperature, and their [`set_outcome`]."""
    counts = partial(np.bincount, minlength=num_classes)
    covered, sizes = np.split(outcome.astype(np.float64), 2, axis=1)
    sets = [
        replace(
            guarantee,
            test_coverage=share(float(held.sum()), len(rows)),
            mean_size=float(size.mean()),
            class_covered=tuple(counts(rows.label[held > 0]).tolist()),
        )
        for guarantee, held, size in zip(guarantees.prediction_sets, covered.T, sizes.T, strict=True)
    ]
    abstentions = []
    for guarantee in guarantees.abstentions:
        if guarantee.threshold is not None:
            right = rows.correct[rows.confidence >= guarantee.threshold]
            accuracy = share(float(right.sum()), len(right)) if len(right) else None
            guarantee = replace(guarantee, test_answered=share(len(right), len(rows)), test_accuracy=accuracy)
        abstentions.append(guarantee)
    found = {"prediction_sets": tuple(sets), "abstentions": tuple(abstentions)}
    return replace(guarantees, num_test=len(rows), class_counts=tuple(counts(rows.label).tolist()), **found)


def share(hits: float, n: int) -> Share:
    """`hits` of `n` images; a fraction if images count for several outcomes, of which the mean is taken."""
    low, high = wilson(round(hits), n)
    return Share(hits / n, min(low, hits / n), max(high, hits / n), n)


def _scaled(logits: ArrayLike, labels: ArrayLike, temperature: float) -> tuple[Tensor, Tensor]:
    logits, labels = checked_samples(logits, labels)
    return (logits if logits.dtype == torch.float64 else logits.float()) / temperature, labels


# ---- In the model's config ----


FACTS = ("delta", "exact", "lambda", "k_reg")  # in the tables beside the levels


def store_guarantees(config: Any, guarantees: Guarantees) -> None:
    """
    Write the thresholds into a model's config, after its temperature was folded into the head.

    `config.prediction_set_thresholds` becomes `{"lac": {"0.9": threshold, ...}, "raps": {..., "lambda": 0.01, "k_reg":
    5}}`, and `config.abstention_thresholds` `{"0.95": threshold, ..., "delta": 0.05}`, without the accuracies that
    cannot be guaranteed. If the guarantees are approximate, each of these tables has `"exact": false` too. Where
    nothing can be guaranteed they are there and empty, and `config.guarantee_reason` says why. What an earlier call
    wrote is replaced.

    Args:
        config (`PreTrainedConfig`): That of the calibrated model, or a model without config.
        guarantees ([`Guarantees`]): From [`make_guarantees`].
    """
    forget_guarantees(config)
    kind = {} if guarantees.exact else {"exact": False}
    sets: dict[str, dict[str, float]] = {}
    for guarantee in guarantees.prediction_sets:
        sets.setdefault(guarantee.method, dict(kind))[str(guarantee.coverage)] = guarantee.threshold
    if "raps" in sets:
        sets["raps"] |= {"lambda": RAPS_LAMBDA, "k_reg": RAPS_K_REG}
    answers = {str(p.accuracy): p.threshold for p in guarantees.abstentions if p.threshold is not None}
    if answers:
        answers |= {"delta": guarantees.abstentions[0].delta} | kind
    config.prediction_set_thresholds, config.abstention_thresholds = sets, answers
    reasons = [guarantees.reason, *(guarantee.reason for guarantee in guarantees.abstentions)]
    if not answers and (reason := next(filter(None, reasons), None)) is not None:
        config.guarantee_reason = reason


def stored_abstention_threshold(config: Any, accuracy: float) -> float | None:
    """
    The confidence from which on a model guarantees an accuracy: that stored for the lowest accuracy not below it.

    `None` if the config guarantees no such accuracy.
    """
    stored = guaranteed_levels(vars(config).get("abstention_thresholds", {}))
    return next((threshold for level, threshold in stored.items() if level >= accuracy), None)


def guaranteed_levels(stored: Mapping[str, float]) -> dict[float, float]:
    """The thresholds of a table that [`store_guarantees`] wrote, lowest level first, without what else it holds."""
    levels = {float(key): float(value) for key, value in stored.items() if key not in FACTS}
    return dict(sorted(levels.items()))
