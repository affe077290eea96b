"""Whether a changed copy of a model, such as a quantised one, needs another temperature than the model itself.

Both are fitted on the same held-out samples. With the slope s_i of sample i by log T and the mean curvature c, each at
the optimum of its own model, log T moves with the draw of the samples by -mean(s_i) / c, so that

    standard error of log(T_copy / T_model) = sqrt(mean (s_copy,i / c_copy - s_model,i / c_model)^2 / n)

which is far below that of either temperature, since the two models see the same images.
"""

import math
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from .inputs import ArrayLike, checked_samples, chunks
from .temperature import find_temperature


@dataclass(frozen=True)
class TemperatureDrift:
    """
    Attributes:
        ratio (`float`): The temperature of the copy over that of the model: dividing the copy's logits by it gives the
            copy the confidence of the model. 1.0 if either could not be fitted.
        low, high (`float`): Its 95 % interval over the draw of the samples.
        num_samples (`int`): Samples used.
        reason (`str` or `None`): Why there is no ratio; `None` if there is one.
    """

    ratio: float
    low: float
    high: float
    num_samples: int
    reason: str | None = None

    @property
    def is_beyond_chance(self) -> bool:
        return not self.low <= 1.0 <= self.high


def temperature_drift(model_logits: ArrayLike, copy_logits: ArrayLike, labels: ArrayLike) -> TemperatureDrift:
    """
    How far the best temperature of a copy lies from that of the model it was made from.

    Args:
        model_logits, copy_logits (`torch.Tensor`, `np.ndarray` or nested list of shape `(samples, classes)`):
            Logits of the same held-out samples.
        labels (`torch.Tensor`, `np.ndarray` or list of shape `(samples,)`):
            Class indices.

    Example:

    ```python
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).repeat(150, 1)
    >>> labels = [0, 1, 0, 0, 1, 1] * 50
    >>> drift = temperature_drift(logits, 2 * logits, labels)
    >>> round(drift.ratio, 6), drift.is_beyond_chance
    (2.0, True)

    ```
    """
    fits, influences = [], []
    for logits in (model_logits, copy_logits):
        logits, classes = checked_samples(logits, labels)
        fit = find_temperature(logits, classes)
        if fit.reason is not None:
            return TemperatureDrift(1.0, 1.0, 1.0, fit.num_samples, fit.reason)
        fits.append(fit)
        influences.append(_influence(logits, classes, fit.temperature))
    if len(influences[0]) != len(influences[1]):
        raise ValueError(f"both models must have seen the same samples, got {[len(part) for part in influences]}.")
    log_ratio = math.log(fits[1].temperature / fits[0].temperature)
    n = fits[0].num_samples
    error = math.sqrt((influences[1] - influences[0]).square().mean().item() / n)
    half = stats.norm.ppf(0.975) * error
    return TemperatureDrift(math.exp(log_ratio), math.exp(log_ratio - half), math.exp(log_ratio + half), n)


def _influence(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """What each sample adds to the deviation of log T, times the number of samples."""
    slopes, curvature = [], 0.0
    for part, own in chunks(logits, labels):
        scaled = part / temperature
        scaled = scaled - scaled.amax(1, keepdim=True)
        weights = scaled.softmax(1)
        mean = (weights * scaled).sum(1)
        variance = (weights * scaled.square()).sum(1) - mean.square()
        slope = scaled.gather(1, own[:, None])[:, 0] - mean
        slopes.append(slope)
        curvature += (variance - slope).sum().item()
    slopes = torch.cat(slopes)
    return -slopes * len(slopes) / curvature
