"""Temperature scaling: fit T on held-out logits, fold it into the classifier head.

T minimises the mean negative log-likelihood of `softmax(logits / T)`
([Guo et al.](https://huggingface.co/papers/1706.04599)). It changes no prediction, only the confidence.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..report.evaluation import MAX_TEMPERATURE, MIN_TEMPERATURE


logger = logging.getLogger(__name__)

MIN_SAMPLES = 100

ArrayLike = Tensor | np.ndarray | Sequence

_VALUES_PER_CHUNK = 2**19  # 4 MB in float64: fits a cache, where all logits of an ImageNet split would take 400 MB


@dataclass(frozen=True)
class TemperatureFit:
    """
    The outcome of [`fit_temperature_report`].

    Attributes:
        temperature (`float`): The optimum, or 1.0 where none could be trusted.
        reason (`str` or `None`): Why the temperature stayed 1.0; `None` when it was fitted.
        num_samples (`int`): Samples used.
        nll_before (`float`): Mean negative log-likelihood in nats of these samples at T = 1.
        nll_after (`float`): The same at `temperature`.
    """

    temperature: float
    reason: str | None
    num_samples: int
    nll_before: float
    nll_after: float


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """
    The temperature that minimises the negative log-likelihood of held-out samples.

    Args:
        logits (`torch.Tensor`, `np.ndarray` or nested list of shape `(samples, classes)`):
            Logits of samples that neither trained the model nor test it.
        labels (`torch.Tensor`, `np.ndarray` or list of shape `(samples,)`):
            Class indices.

    Returns:
        `float`: within [0.05, 20]; 1.0, with the reason logged, for fewer than 100 samples or an optimum at a bound.

    Example:

    ```python
    >>> logits = [[2.0, 0.0]] * 300
    >>> labels = [0] * 200 + [1] * 100  # right two times out of three: the gap of 2 should be log(2)
    >>> round(fit_temperature(logits, labels), 4)
    2.8854

    ```
    """
    return fit_temperature_report(logits, labels).temperature


def fit_temperature_report(logits: ArrayLike, labels: ArrayLike) -> TemperatureFit:
    """
    [`fit_temperature`] with the likelihood before and after, and the reason when the temperature stays 1.

    The negative log-likelihood is convex in 1/T, so its slope changes sign once: the change is found in float64, on
    log T, by Newton steps inside a bracket, or bisection where a step leaves it, to 1e-9.
    """
    logits, labels = _checked(logits, labels)
    num_samples = len(labels)
    nll_before = _nll(logits, labels, 0.0)[0]

    def unfitted(reason: str) -> TemperatureFit:
        logger.warning("temperature stays 1.0: %s", reason)
        return TemperatureFit(1.0, reason, num_samples, nll_before, nll_before)

    if num_samples < MIN_SAMPLES:
        return unfitted(f"{num_samples} samples are fewer than the {MIN_SAMPLES} a fit needs")
    low, high = math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE)
    if _nll(logits, labels, low)[1] >= 0:
        return unfitted(
            f"the optimum is not above the lower bound {MIN_TEMPERATURE} (all samples right, or all alike)"
        )
    if _nll(logits, labels, high)[1] <= 0:
        return unfitted(f"the optimum is not below the upper bound {MAX_TEMPERATURE} (labels unrelated to the logits)")

    log_t, last_step = 0.0, math.inf
    while True:
        nll_after, slope, curvature = _nll(logits, labels, log_t)
        low, high = (log_t, high) if slope < 0 else (low, log_t)
        step = -slope / curvature if curvature > 0 else math.inf
        if not low <= log_t + step <= high or abs(step) > abs(last_step) / 2:  # Newton leaves the bracket, or dawdles
            step = (low + high) / 2 - log_t
        if abs(step) < 1e-9:
            return TemperatureFit(math.exp(log_t), None, num_samples, nll_before, nll_after)
        log_t, last_step = log_t + step, step


def _nll(logits: Tensor, labels: Tensor, log_temperature: float) -> tuple[float, float, float]:
    """Mean negative log-likelihood, and its first and second derivative by log T."""
    inverse = math.exp(-log_temperature)
    sums = torch.zeros(3, dtype=torch.float64)
    rows = max(1, _VALUES_PER_CHUNK // logits.shape[1])
    for chunk, chunk_labels in zip(logits.split(rows), labels.split(rows), strict=True):
        scaled = chunk.double()
        scaled = (scaled - scaled.amax(1, keepdim=True)) * inverse
        weights = scaled.exp()
        total = weights.sum(1)
        weights = weights * scaled
        mean = weights.sum(1) / total
        variance = (weights * scaled).sum(1) / total - mean.square()
        label = scaled.gather(1, chunk_labels[:, None])[:, 0]
        # d/dlogT of the scaled logits is minus themselves: slope label - E[z], curvature E[z] - label + Var[z].
        sums += torch.stack([(total.log() - label).sum(), (label - mean).sum(), (mean - label + variance).sum()])
    nll, slope, curvature = (sums / len(labels)).tolist()
    return nll, slope, curvature


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    logits, labels = _on_cpu(logits), _on_cpu(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or logits.numel() == 0:
        raise ValueError(
            "expected logits of shape (samples, classes) and labels of shape (samples,), not empty, "
            f"got {tuple(logits.shape)} and {tuple(labels.shape)}."
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integer class indices, got {labels.dtype}.")
    labels = labels.long()
    bad_rows = (~logits.isfinite().all(1)).nonzero().flatten().tolist()
    if bad_rows:
        raise ValueError(f"logits of row {bad_rows[0]} (and {len(bad_rows) - 1} others) are not finite.")
    bad_rows = ((labels < 0) | (labels >= logits.shape[1])).nonzero().flatten().tolist()
    if bad_rows:
        label = labels[bad_rows[0]].item()
        raise ValueError(f"label of row {bad_rows[0]} is {label}, which is none of the {logits.shape[1]} classes.")
    return logits, labels


def _on_cpu(values: ArrayLike) -> Tensor:
    """float64 is needed, which not every accelerator has."""
    return values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
