"""Checked inputs of everything that is fitted on held-out data: logits and labels on the CPU, in pieces of float64."""

import math
import reprlib
import warnings
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..report.checks import check_labels


ArrayLike = Tensor | np.ndarray | Sequence

VALUES_PER_CHUNK = 2**19  # 4 MB in float64: fits a cache, where all logits of an ImageNet split would take 400 MB
ROUNDING_OF_SUMS = 4e-3  # of probabilities in bfloat16


def checked_logits(logits: ArrayLike) -> Tensor:
    """Logits of shape (samples, classes), finite, on the CPU: float64 is needed, which not every accelerator has."""
    logits = on_cpu(logits)
    if logits.ndim != 2 or logits.numel() == 0:
        raise ValueError(f"expected logits of shape (samples, classes), not empty, got {tuple(logits.shape)}.")
    bad_rows = (~logits.isfinite().all(1)).nonzero().flatten().tolist()
    if bad_rows:
        raise ValueError(f"logits of row {bad_rows[0]} (and {len(bad_rows) - 1} others) are not finite.")
    # The first row alone nearly always shows that these are logits.
    if logits.shape[1] > 1 and _look_like_probabilities(logits[:1]) and _look_like_probabilities(logits):
        warnings.warn("logits look like probabilities: pass their logarithm, probabilities.log()", stacklevel=3)
    return logits


def checked_samples(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    """Logits as above, and one class index per row as int64."""
    logits, labels = on_cpu(logits), on_cpu(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or logits.numel() == 0:
        raise ValueError(
            "expected logits of shape (samples, classes) and labels of shape (samples,), not empty, "
            f"got {tuple(logits.shape)} and {tuple(labels.shape)}."
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integer class indices, got {labels.dtype}.")
    logits, labels = checked_logits(logits), labels.long()
    check_labels(labels, logits.shape[1])
    return logits, labels


def chunks(logits: Tensor, *columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Consecutive rows of the logits in float64, with the same rows of the other tensors."""
    rows = max(1, VALUES_PER_CHUNK // logits.shape[1])
    for part, *others in zip(logits.split(rows), *(column.split(rows) for column in columns), strict=True):
        yield part.double(), *others


def _look_like_probabilities(rows: Tensor) -> bool:
    return bool((rows >= 0).all()) and bool(((rows.double().sum(1) - 1).abs() <= ROUNDING_OF_SUMS).all())


def on_cpu(values: ArrayLike) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.array(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"expected an array of numbers, got {reprlib.repr(values)}, which numpy reads as {array.dtype}."
        )
    return torch.from_numpy(array)


def check_number(name: str, value: float) -> None:
    """Refuse what is no finite number, text that looks like one included."""
    if not _is_number(value) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}.")


def check_probability(name: str, value: float, example: float) -> None:
    """Refuse what does not lie between 0 and 1."""
    if not _is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, a number such as {example}, got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 0)
