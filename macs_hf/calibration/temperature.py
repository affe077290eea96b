"""Temperature scaling: fit T on held-out logits, with its standard error.

T minimises the mean negative log-likelihood of `softmax(logits / T)`
([Guo et al.](https://huggingface.co/papers/1706.04599)). It changes no prediction, only the confidence.

The best T of some samples always looks better on these samples. Whether to use it is decided by cross-fitting, see
[`choose_temperature`]; whether it helped, on test samples, by [`temperature_helped`] and [`calibration_error_rise`].
"""

import functools
import logging
import math
import reprlib
import warnings
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch
from scipy import optimize, stats
from torch import Tensor

from ..exceptions import check_labels
from ..metrics.comparison import ece_difference
from ..metrics.scores import look_like_probabilities
from ..report import Interval, SampleRows
from ..report.report import MAX_TEMPERATURE, MIN_TEMPERATURE, Temperature
from ..report.rows import sample_rows


# ---- Inputs ----
# Checked inputs of everything that is fitted on held-out data: logits and labels on the CPU, in pieces of float64.


ArrayLike = Tensor | np.ndarray | Sequence

VALUES_PER_CHUNK = 2**19  # 4 MB in float64: fits a cache, where all logits of an ImageNet split would take 400 MB


def checked_logits(logits: ArrayLike) -> Tensor:
    """Logits of shape (samples, classes), finite, on the CPU: float64 is needed, which not every accelerator has."""
    logits = on_cpu(logits)
    if logits.ndim != 2 or logits.numel() == 0:
        raise ValueError(f"expected logits of shape (samples, classes), not empty, got {tuple(logits.shape)}.")
    bad_rows = (~logits.isfinite().all(1)).nonzero().flatten().tolist()
    if bad_rows:
        raise ValueError(f"logits of row {bad_rows[0]} (and {len(bad_rows) - 1} others) are not finite.")
    if look_like_probabilities(logits):
        warnings.warn("logits look like probabilities: pass their logarithm, probabilities.log()", stacklevel=3)
    return logits


def checked_samples(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    """Logits as above, and one class index per row as int64."""
    logits, labels = checked_logits(logits), on_cpu(labels)
    if labels.shape != logits.shape[:1]:
        raise ValueError(f"expected one of labels for each row of {tuple(logits.shape)}, got {tuple(labels.shape)}.")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integer class indices, got {labels.dtype}.")
    check_labels(labels.long(), logits.shape[1])
    return logits, labels.long()


def chunks(logits: Tensor, *columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Consecutive rows of the logits in float64, with the same rows of the other tensors."""
    rows = max(1, VALUES_PER_CHUNK // logits.shape[1])
    for part, *others in zip(logits.split(rows), *(column.split(rows) for column in columns), strict=True):
        yield part.double(), *others


def on_cpu(values: ArrayLike) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.array(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"expected an array of numbers, got {reprlib.repr(values)}, which numpy reads as {array.dtype}."
        )
    return torch.from_numpy(array)


def check_number(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse what is no number between the bounds, text that looks like one included."""
    is_number = isinstance(value, Real) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 0)
    if not is_number or not low < value < high:
        raise ValueError(f"{name} must be a number between {low:g} and {high:g}, got {value!r}.")


# ---- Temperature scaling ----


logger = logging.getLogger(__name__)

MIN_SAMPLES = 100
LARGE_SHIFT = 0.01  # of the mean confidence by one standard error of the temperature: a point


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """
    The temperature that minimises the negative log-likelihood of held-out samples.

    Args:
        logits (`torch.Tensor`, `np.ndarray` or nested list of shape `(samples, classes)`): Logits of samples that
            neither trained the model nor test it.
        labels (`torch.Tensor`, `np.ndarray` or list of shape `(samples,)`): Class indices.

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
    return fit_temperature_report(logits, labels).value


def fit_temperature_report(logits: ArrayLike, labels: ArrayLike) -> Temperature:
    """
    [`fit_temperature`] with the likelihood before and after, the standard error, and the reason when T stays 1.

    The negative log-likelihood is convex in 1/T, so its slope by log T changes sign once: Brent's method finds where,
    to 1e-9. The standard error is the sandwich estimate, which also holds where no temperature makes the model
    calibrated: with the slope s_i of sample i and the mean curvature c, both by log T at the optimum,

        standard error of log T = sqrt(mean s_i^2 / n) / c,   and of T: T times that.
    """
    return _logged(find_temperature(*checked_samples(logits, labels)))


def _logged(fit: Temperature) -> Temperature:
    """The fit, with a warning if it stays 1 or is uncertain."""
    if fit.reason is not None:
        logger.warning("temperature stays 1.0: %s", fit.reason)
    elif fit.confidence_shift >= LARGE_SHIFT:
        # The shift falls with the root of their number, which is rounded up to a hundred.
        wanted = math.ceil(fit.n * (fit.confidence_shift / LARGE_SHIFT) ** 2 / 100) * 100
        logger.warning(
            "temperature %.3f is uncertain: its standard error with %d samples, %.3f, moves the mean confidence by "
            "%.1f points. About %d samples would keep that below one point.",
            *(fit.value, fit.n, fit.standard_error, 100 * fit.confidence_shift, wanted),
        )
    return fit


def find_temperature(logits: Tensor, labels: Tensor, at_least: int = MIN_SAMPLES) -> Temperature:
    """[`fit_temperature_report`] of checked samples, of which there must be `at_least` so many; logs nothing."""
    num_samples = len(labels)

    @functools.cache
    def at(log_temperature: float) -> _Sums:
        return _sums(logits, labels, log_temperature)

    low, high, reason = math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE), None
    if num_samples < at_least:
        reason = f"{num_samples} samples are fewer than the {at_least} a fit needs"
    elif at(low).slope >= 0:
        reason = f"the optimum is not above the lower bound {MIN_TEMPERATURE} (nearly all samples right, or all alike)"
    elif at(high).slope <= 0:
        reason = (
            f"the optimum is not below the upper bound {MAX_TEMPERATURE} (labels unrelated to the logits, or some "
            "classes all but ruled out)"
        )
    nll_before = at(0.0).nll
    if reason is not None:
        return Temperature(1.0, reason, n=num_samples, nll_before=nll_before, nll_after=nll_before)
    # T = 1 was evaluated already: it halves the bracket for free.
    low, high = (0.0, high) if at(0.0).slope < 0 else (low, 0.0)
    log_temperature = optimize.brentq(lambda x: at(x).slope, low, high, xtol=1e-9)
    best = at(log_temperature)
    temperature = math.exp(log_temperature)
    error = math.sqrt(best.squared_slope / num_samples) / best.curvature
    return Temperature(
        value=temperature,
        n=num_samples,
        nll_before=nll_before,
        nll_after=best.nll,
        standard_error=temperature * error,
        confidence_shift=abs(best.confidence_slope) * error,
    )


def choose_temperature(logits: ArrayLike, labels: ArrayLike, *, force: bool = False) -> Temperature:
    """
    The temperature to fold into a model: the optimum if it helps beyond chance, else 1 with the reason.

    It is used if its 95 % interval excludes 1, and if samples that did not fit it gain from it: they are divided into
    ten parts, each with the same share of right predictions, and each part is scored with the temperature that the
    other nine fit. There it has to lower the negative log-likelihood, and must not raise the calibration error beyond
    chance. The temperature itself is that of all samples.

    (Whether a likelihood is lower beyond chance takes more samples than whether a temperature differs from 1: a few
    wrong answers make most of the likelihood, and of its variance.)

    Args:
        logits, labels: See [`fit_temperature`].
        force (`bool`, *optional*, defaults to `False`): Use the optimum in any case where there is one.
    """
    logits, labels = checked_samples(logits, labels)
    fit = find_temperature(logits, labels)
    objection = None if fit.reason is not None or force else _objection(fit, logits, labels)
    if objection is not None:
        fit = Temperature(1.0, objection, n=fit.n, nll_before=fit.nll_before, nll_after=fit.nll_before)
    return _logged(fit)


def _objection(fit: Temperature, logits: Tensor, labels: Tensor) -> str | None:
    """Why not to use a fitted temperature, if there is a reason."""
    best, error = fit.value, fit.standard_error / fit.value
    if abs(math.log(best)) <= 1.96 * error:
        low, high = (best * math.exp(sign * 1.96 * error) for sign in (-1, 1))
        return f"the one that fits best, {best:.3f} [{low:.3f}, {high:.3f}], differs from 1 by no more than chance"
    before, after = crossed_rows(logits, labels)
    if (gain := temperature_helped(before, after)).value <= 0:
        return f"{best:.3f} fits best, but raises the NLL of held-out images that did not fit it, by {-gain.value:.4f}"
    if (rise := calibration_error_rise(before, after)).low > 0:
        points = "{:.1f} points [{:.1f}, {:.1f}]".format(*(100 * end for end in (rise.value, rise.low, rise.high)))
        return f"{best:.3f} fits best, but raises the ECE of held-out images that did not fit it, by {points}"
    return None


def crossed_rows(logits: Tensor, labels: Tensor) -> tuple[SampleRows, SampleRows]:
    """
    Rows of checked samples without a temperature, and with the one that the other nine tenths of them fit best.

    (Not halves: of 200 samples with four wrong answers, a half has two, and now and then its temperature is far off
    where that of all 200 is good.)
    """
    right = (logits.argmax(1) == labels).numpy()
    order = np.random.default_rng(0).permutation(len(labels))
    order = order[np.argsort(right[order], kind="stable")]
    crossed = torch.ones(len(labels), 1)
    tenth = np.arange(len(order)) % 10
    for scored in range(10):
        fitting = order[tenth != scored]
        crossed[order[tenth == scored]] = find_temperature(logits[fitting], labels[fitting], at_least=1).value

    def rows(temperatures: Tensor) -> SampleRows:
        parts = [sample_rows(part / t, own) for part, own, t in chunks(logits, labels, temperatures)]
        return SampleRows.from_array(torch.cat(parts).numpy())

    return rows(torch.ones_like(crossed)), rows(crossed)


def temperature_helped(before: SampleRows, after: SampleRows) -> Interval:
    """
    By how much a temperature lowered the mean negative log-likelihood of test samples, with its 95 % interval.

    Args:
        before, after ([`SampleRows`]): Rows of the same samples without and with the temperature. They must not be
            the samples on which it was fitted: there it never raises the likelihood's mean.

    Returns:
        [`Interval`]: `nll(before) - nll(after)`, paired by sample. It fell beyond chance where `low > 0`, and rose
        where `high < 0`; with a temperature of 1 all three are 0. The temperature helped if it fell and
        [`calibration_error_rise`] is not above 0 beyond chance.
    """
    if len(before) < 2 or not np.array_equal(before.label, after.label):
        raise ValueError(
            f"the rows before ({len(before)}) and after ({len(after)}) the temperature must be of the same samples, "
            "at least two, in the same order."
        )
    gain = before.nll.astype(np.float64) - after.nll
    half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / math.sqrt(len(gain))
    return Interval(float(gain.mean()), float(gain.mean() - half), float(gain.mean() + half))


def calibration_error_rise(before: SampleRows, after: SampleRows) -> Interval:
    """
    By how much a temperature raised the ECE of test samples, with the 95 % interval of [`macs_hf.metrics.compare`].

    A temperature is fitted to the likelihood. Where no temperature makes a model calibrated, the likelihood may fall
    while the calibration error rises: beyond chance where `low > 0`.
    """
    found = ece_difference(after, before)
    return Interval(found.difference, found.low, found.high)


class _Sums(NamedTuple):
    """Means over the samples, derivatives by log T."""

    nll: float
    slope: float
    curvature: float
    squared_slope: float
    confidence_slope: float


def _sums(logits: Tensor, labels: Tensor, log_temperature: float) -> _Sums:
    inverse = math.exp(-log_temperature)
    sums = torch.zeros(5, dtype=torch.float64)
    for chunk, chunk_labels in chunks(logits, labels):
        scaled = (chunk - chunk.amax(1, keepdim=True)) * inverse
        weights = scaled.exp()
        total = weights.sum(1)
        weights = weights * scaled
        mean = weights.sum(1) / total
        variance = (weights * scaled).sum(1) / total - mean.square()
        label = scaled.gather(1, chunk_labels[:, None])[:, 0]
        # d/dlogT of the scaled logits is minus themselves: slope label - E[z], curvature E[z] - label + Var[z]. The
        # largest is 0, so the confidence is 1 / total and its slope E[z] / total.
        slope = label - mean
        parts = (total.log() - label, slope, variance - slope, slope.square(), mean / total)
        sums += torch.stack([part.sum() for part in parts])
    return _Sums(*(sums / len(labels)).tolist())
