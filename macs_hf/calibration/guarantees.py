"""All promises of a model in one call: from held-out samples that fitted nothing else, and checked on test samples."""

import logging
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from ..report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share
from .abstention import abstention_report
from .conformal_sets import Method, class_scores, label_scores, threshold_of_scores
from .inputs import ArrayLike, checked_samples, chunks, on_cpu


logger = logging.getLogger(__name__)

COVERAGES = (0.8, 0.9, 0.95, 0.99)
ACCURACIES = (0.9, 0.95, 0.99)
MIN_HELD_OUT = 400  # from here on, half of the held-out samples fit the temperature and half make promises


def split_held_out(samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """
    Which held-out samples fit the temperature, and which make promises: a random half each, from 400 samples on.

    Below that, all go to the temperature, and the second part is empty.

    Args:
        samples (`int`): How many held-out samples there are.
        seed (`int`, *optional*, defaults to 0): Of the random draw.

    Returns:
        Two arrays of positions, ascending.

    Example:

    ```python
    >>> [len(part) for part in split_held_out(401)], [len(part) for part in split_held_out(399)]
    ([201, 200], [399, 0])

    ```
    """
    if samples < MIN_HELD_OUT:
        return np.arange(samples), np.arange(0)
    order = np.random.default_rng(seed).permutation(samples)
    return np.sort(order[samples // 2 :]), np.sort(order[: samples // 2])


def make_guarantees(
    held_out_logits: ArrayLike,
    held_out_labels: ArrayLike,
    test_logits: ArrayLike,
    test_labels: ArrayLike,
    temperature: float = 1.0,
    *,
    num_temperature: int = 0,
    exact: bool = True,
    coverages: Sequence[float] = COVERAGES,
    accuracies: Sequence[float] = ACCURACIES,
    delta: float = 0.05,
    severities: Mapping[int, tuple[ArrayLike, ArrayLike]] | None = None,
) -> Guarantees:
    """
    Prediction sets by both methods at each coverage, and a threshold of the confidence for each accuracy.

    Args:
        held_out_logits, held_out_labels: The second part of [`split_held_out`]: samples that fitted nothing else. With
            no samples nothing is promised, and the reason is part of the outcome.
        test_logits, test_labels: Samples on which the outcome is measured; they decide nothing.
        temperature (`float`, *optional*, defaults to 1.0): Divides all logits that are given.
        num_temperature (`int`, *optional*, defaults to 0): How many held-out samples fitted it.
        exact (`bool`, *optional*, defaults to `True`): `False` if the held-out samples also chose the checkpoint.
        coverages, accuracies (`Sequence[float]`, *optional*): What to promise.
        delta (`float`, *optional*, defaults to 0.05): With which probability the promise of an accuracy may be broken.
        severities (`Mapping[int, tuple]`, *optional*): Logits and labels of corrupted test images by severity.
    """
    held_out_logits, held_out_labels = on_cpu(held_out_logits), on_cpu(held_out_labels)
    sizes = {"num_temperature": num_temperature, "num_guarantee": len(held_out_labels)}
    facts = sizes | {"num_test": len(test_labels), "temperature": float(temperature), "exact": exact}
    if not len(held_out_labels):
        reason = (
            f"all {num_temperature} held-out samples fitted the temperature: promises take at least {MIN_HELD_OUT}, "
            "of which half are for them"
        )
        logger.warning("no guarantees: %s", reason)
        return Guarantees(**facts, reason=reason)

    held_out, labels = _scaled(held_out_logits, held_out_labels, temperature)
    _warn_of_missing_classes(labels, held_out.shape[1])
    scores = {method: label_scores(held_out, labels, method) for method in get_args(Method)}
    thresholds = {
        (method, coverage): threshold_of_scores(own, coverage)
        for method, own in scores.items()
        for coverage in coverages
    }
    test, test_labels = _scaled(test_logits, test_labels, temperature)
    class_counts = test_labels.bincount(minlength=test.shape[1])
    covered, sizes = _outcome(test, test_labels, thresholds)
    shifted = {severity: _scaled(*samples, temperature) for severity, samples in (severities or {}).items()}
    shifted_covered = {severity: _outcome(*samples, thresholds)[0] for severity, samples in shifted.items()}
    return Guarantees(
        **facts,
        class_counts=tuple(class_counts.tolist()),
        prediction_sets=tuple(
            PredictionSetGuarantee(
                method=method,
                coverage=coverage,
                threshold=threshold,
                num_samples=len(labels),
                test_coverage=_share(covered[place]),
                mean_size=sizes[place].double().mean().item(),
                class_covered=tuple(test_labels[covered[place]].bincount(minlength=test.shape[1]).tolist()),
                severity_coverage={severity: _share(found[place]) for severity, found in shifted_covered.items()},
            )
            for place, ((method, coverage), threshold) in enumerate(thresholds.items())
        ),
        abstentions=_abstentions((held_out, labels), (test, test_labels), shifted, accuracies, delta),
    )


def _abstentions(
    held_out: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    shifted: Mapping[int, tuple[Tensor, Tensor]],
    accuracies: Sequence[float],
    delta: float,
) -> tuple[AbstentionGuarantee, ...]:
    found = []
    held_out, test = _confidence(*held_out), _confidence(*test)
    shifted = {severity: _confidence(*samples) for severity, samples in shifted.items()}
    for accuracy in accuracies:
        fit = abstention_report(*held_out, accuracy, delta)
        promise = {"accuracy": accuracy, "delta": delta, "num_samples": fit.num_samples}
        if fit.threshold is None:
            found.append(AbstentionGuarantee(**promise, reason=fit.reason))
            continue
        answered = test[0] >= fit.threshold
        by_severity = {severity: right[sure >= fit.threshold] for severity, (sure, right) in shifted.items()}
        found.append(
            AbstentionGuarantee(
                **promise,
                threshold=fit.threshold,
                test_answered=_share(answered),
                test_accuracy=_share(test[1][answered]) if answered.any() else None,
                severity_accuracy={severity: _share(right) for severity, right in by_severity.items() if len(right)},
            )
        )
    return tuple(found)


def _outcome(
    logits: Tensor, labels: Tensor, thresholds: Mapping[tuple[Method, float], float]
) -> tuple[Tensor, Tensor]:
    """Whether each sample is covered, and the size of its set: one row for each threshold."""
    covered, sizes = [], []
    for part, own in chunks(logits, labels):
        scores = {method: class_scores(part, method) for method in get_args(Method)}
        limits = [(scores[method], threshold) for (method, _), threshold in thresholds.items()]
        # The most probable class has the lowest score: in every set that is not empty, and added to those that are.
        right = part.argmax(1) == own
        covered.append(torch.stack([(rows.gather(1, own[:, None])[:, 0] <= limit) | right for rows, limit in limits]))
        sizes.append(torch.stack([(rows <= limit).sum(1).clamp(min=1) for rows, limit in limits]))
    return torch.cat(covered, dim=1), torch.cat(sizes, dim=1)


def _confidence(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The confidence of each sample, and whether its prediction is right."""
    confidence = torch.cat([part.softmax(1).amax(1) for (part,) in chunks(logits)])
    return confidence, logits.argmax(1) == labels


def _scaled(logits: ArrayLike, labels: ArrayLike, temperature: float) -> tuple[Tensor, Tensor]:
    logits, labels = checked_samples(logits, labels)
    return (logits if logits.dtype == torch.float64 else logits.float()) / temperature, labels


def _share(hits: Tensor) -> Share:
    right, n = int(hits.sum()), len(hits)
    interval = stats.binomtest(right, n).proportion_ci(method="wilson")
    return Share(right / n, min(interval.low, right / n), max(interval.high, right / n), n)


def _warn_of_missing_classes(labels: Tensor, classes: int) -> None:
    missing = (labels.bincount(minlength=classes) == 0).nonzero().flatten().tolist()
    if missing:
        logger.warning(
            "%d of %d classes have no held-out samples (class %d, for one): the promise is for all images together, "
            "and nothing is known about these classes.",
            len(missing),
            classes,
            missing[0],
        )
