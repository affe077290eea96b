"""Proper scores of a classifier, and the checked inputs of all metrics."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from itertools import chain
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.special import softmax

from ..exceptions import check_labels


CHUNK = 2**18  # values converted to float64 at a time: they stay in the cache, and memory does not grow with n
ROUNDING = 1e-5  # of single confidences
LOOSE_TOLERANCE = 4e-3  # bfloat16 rounds one by up to 2e-3
MAX_BINS = 10_000  # far beyond any use; the tables of bins of a resample would fill the memory
SUM_TOLERANCE = 1e-3  # half precision rounds a sum by up to 5e-4; a forgotten softmax is further off


def as_array(values: Any) -> np.ndarray:
    """A NumPy view of an array, a tensor on any device, or nested lists."""
    torch = sys.modules.get("torch")  # no tensor without torch, and no need for torch without a tensor
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
        return values.numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError("a masked array has values that are missing: leave those rows out")
    return np.asarray(values)


def checked_chunks(
    predictions: Any, references: Any, probabilities: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """
    Yields `(values, labels)` in order, `values` in float64, after checking shapes, class ids and values.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`): Logits, or probabilities
            if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`): Class ids.
        probabilities (`bool`, *optional*, defaults to `False`): Whether `predictions` are probabilities. It is never
            guessed from the values; see [`warn_of_probabilities`].
    """
    predictions, references = as_array(predictions), as_array(references)
    if predictions.ndim != 2 or 0 in predictions.shape or predictions.dtype.kind == "c":
        raise ValueError(
            f"predictions must be real numbers of the shape (n, classes), not empty, got {predictions.dtype} of the "
            f"shape {predictions.shape}"
        )
    if references.shape != predictions.shape[:1]:
        raise ValueError(
            f"references must hold one class id for each of the {len(predictions)} rows of predictions, "
            f"got the shape {references.shape}"
        )
    if references.dtype.kind not in "iub" and not (references.dtype.kind == "f" and (references % 1 == 0).all()):
        raise ValueError(f"references must be whole class ids, got {references.dtype}: {references[:3]}")
    references = references.astype(np.int64)
    check_labels(references, predictions.shape[1], "references", "Class ids are numbers of columns of predictions.")
    for start, values in _in_float64(predictions):
        # The maximum of a row is NaN if any value is, +inf if any is, -inf if all are: softmax fails on just these.
        bad = ~np.isfinite(values.max(axis=1))
        wanted = "finite numbers"
        if probabilities and not bad.any():
            bad = (values < 0).any(axis=1) | (np.abs(values.sum(axis=1) - 1) > SUM_TOLERANCE)
            wanted = "probabilities, at least 0 and with a sum of 1. Leave out probabilities=True if these are logits"
        if bad.any():
            row = int(bad.argmax())
            found = "{:.4g} to {:.4g}, sum {:.6g}".format(*(f(values[row]) for f in (np.min, np.max, np.sum)))
            raise ValueError(f"predictions[{start + row}] holds {found}; every row must be {wanted}")
        yield values, references[start : start + len(values)]


def probability_chunks(
    predictions: Any, references: Any, probabilities: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """[`checked_chunks`] with probabilities in place of logits."""
    for values, labels in checked_chunks(predictions, references, probabilities):
        yield values if probabilities else softmax(values, axis=1), labels


def _in_float64(predictions: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, CHUNK // predictions.shape[1])
    for start in range(0, len(predictions), step):
        yield start, predictions[start : start + step].astype(np.float64)


def look_like_probabilities(predictions: Any) -> bool:
    """Whether none of the values is negative, and every row sums to 1."""
    predictions = as_array(predictions)
    if predictions.ndim != 2 or predictions.shape[1] < 2 or not len(predictions):
        return False  # one class has the probability 1 either way; other shapes are refused later
    # The first row alone nearly always shows that these are logits, so the check costs nothing.
    return all(
        (values >= 0).all() and (np.abs(values.sum(axis=1) - 1) <= LOOSE_TOLERANCE).all()
        for _, values in chain(_in_float64(predictions[:1]), _in_float64(predictions))
    )


def warn_of_probabilities(predictions: Any) -> None:
    """Warns if values to be read as logits look like probabilities."""
    if look_like_probabilities(predictions):
        warnings.warn(
            "predictions look like probabilities (no row has a negative value and each sums to 1), but they are read "
            "as logits: pass probabilities=True",
            stacklevel=3,
        )


def check_confidences(confidence: np.ndarray, correct: np.ndarray) -> None:
    """Refuse confidences that are no probabilities, or not one for each answer."""
    confidence, correct = np.asarray(confidence), np.asarray(correct)
    if confidence.ndim != 1 or confidence.shape != correct.shape or not len(confidence):
        shapes = f"{confidence.shape} and {correct.shape}"
        raise ValueError(f"confidence and correct must have one shape (n,) with n > 0, got {shapes}")
    is_share = (confidence >= -ROUNDING) & (confidence <= 1 + ROUNDING)  # NaN is neither
    for name, values, fine, wanted in (
        ("confidence", confidence, is_share, "within [0, 1]"),
        ("correct", correct, np.isin(correct, (0, 1)), "True (1) or False (0)"),
    ):
        if not fine.all():
            row = int(fine.argmin())
            raise ValueError(f"{name}[{row}] must be {wanted}, got {values[row]}")


def check_settings(*, n_bins: int = 15, n_resamples: int = 1, level: float = 0.95) -> None:
    """Refuse numbers of bins and resamples and a level that make no sense."""
    if not isinstance(n_bins, Integral) or isinstance(n_bins, bool) or not 1 <= n_bins <= MAX_BINS:
        raise ValueError(f"n_bins must be a whole number from 1 to {MAX_BINS}, such as 15, got {n_bins!r}")
    if not isinstance(n_resamples, Integral) or n_resamples < 1:
        raise ValueError(f"n_resamples must be positive, got {n_resamples!r}")
    if not isinstance(level, Real) or not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.95, got {level!r}")


def negative_log_likelihood(predictions: Any, references: Any, *, probabilities: bool = False) -> float:
    """
    Mean of -log p(label) in nats, in [0, inf]; 0 is perfect.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`): Logits, or probabilities
            if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`): Class ids.
        probabilities (`bool`, *optional*, defaults to `False`): Whether `predictions` are probabilities. If they look
            so and this is `False`, a warning is given. Probabilities are not clipped: a label of probability 0 gives
            infinity.

    Example:

    ```python
    >>> round(negative_log_likelihood([[0.0, 0.0], [1.0, 1.0]], [0, 1]), 6)
    0.693147

    ```
    """
    if not probabilities:
        warn_of_probabilities(predictions)
    total, n = 0.0, 0
    for values, labels in checked_chunks(predictions, references, probabilities):
        at_label = values[np.arange(len(values)), labels]
        if probabilities:
            with np.errstate(divide="ignore"):
                losses = -np.log(at_label)
        else:
            largest = values.max(axis=1)
            losses = np.log(np.exp(values - largest[:, None]).sum(axis=1)) + largest - at_label
        total, n = total + losses.sum(), n + len(values)
    return float(max(total / n, 0.0))  # probabilities may exceed 1 by their rounding


def brier_score(predictions: Any, references: Any, *, probabilities: bool = False) -> float:
    """
    Brier score: the mean over samples of the sum over classes of (p - one-hot label)^2, in [0, 2]; 0 is perfect.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`): Logits, or probabilities
            if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`): Class ids.
        probabilities (`bool`, *optional*, defaults to `False`): Whether `predictions` are probabilities. If they look
            so and this is `False`, a warning is given.

    Example:

    ```python
    >>> brier_score([[0.5, 0.5], [0.0, 1.0]], [0, 1], probabilities=True)
    0.25

    ```
    """
    if not probabilities:
        warn_of_probabilities(predictions)
    total, n = 0.0, 0
    for errors, labels in probability_chunks(predictions, references, probabilities):
        errors[np.arange(len(errors)), labels] -= 1.0  # the chunk is a copy of our own
        total, n = total + np.square(errors).sum(), n + len(errors)
    return float(total / n)
