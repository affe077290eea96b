"""Checked inputs of the calibration metrics: (n, classes) logits or probabilities and (n,) class ids.

Each metric's folder holds the same copy of this file, because each of them is published on its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np


CHUNK = 2**18  # values converted to float64 at a time: they stay in the cache, and memory does not grow with n
SUM_TOLERANCE = 1e-3  # half precision rounds a sum by up to 5e-4; a forgotten softmax is further off


def as_array(values: Any) -> np.ndarray:
    """A NumPy view of an array, a tensor on any device, or nested lists."""
    torch = sys.modules.get("torch")  # no tensor without torch, and no need for torch without a tensor
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
        return values.numpy()
    return np.asarray(values)


def checked_chunks(
    predictions: Any, references: Any, probabilities: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """
    Yields `(values, labels)` in order, `values` in float64, after checking shapes, class ids and values.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`):
            Logits, or probabilities if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`):
            Class ids.
        probabilities (`bool`, *optional*, defaults to `False`):
            Whether `predictions` are probabilities. It is never guessed from the values.
    """
    predictions, references = as_array(predictions), as_array(references)
    if predictions.ndim != 2 or 0 in predictions.shape:
        raise ValueError(f"predictions must have the shape (n, classes) and not be empty, got {predictions.shape}")
    if references.shape != predictions.shape[:1]:
        raise ValueError(
            f"references must hold one class id for each of the {len(predictions)} rows of predictions, "
            f"got the shape {references.shape}"
        )
    if references.dtype.kind not in "iub" and not (references.dtype.kind == "f" and (references % 1 == 0).all()):
        raise TypeError(f"references must be whole class ids, got {references.dtype}")
    references = references.astype(np.int64)
    classes = predictions.shape[1]
    outside = (references < 0) | (references >= classes)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"references[{row}] is {references[row]}, but predictions have {classes} classes")

    step = max(1, CHUNK // classes)
    for start in range(0, len(predictions), step):
        values = predictions[start : start + step].astype(np.float64)
        _check_values(values, start, probabilities)
        yield values, references[start : start + step]


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def arrow_tables(predictions: Any, references: Any) -> Iterator[Any]:
    """
    Yields `pyarrow.Table`s of the rows, built from the array's own memory.

    `evaluate` would turn every number into a Python object: 10,000 x 1000 logits take seconds and over a gigabyte.
    """
    import pyarrow as pa

    predictions, references = as_array(predictions), as_array(references)
    if predictions.ndim != 2 or references.shape != predictions.shape[:1]:
        raise ValueError(
            f"Mismatch: predictions must have the shape (n, classes) and references (n,), "
            f"got {predictions.shape} and {references.shape}"
        )
    classes = predictions.shape[1]
    step = max(1, 4 * CHUNK // max(1, classes))
    for start in range(0, len(predictions), step):
        rows = np.ascontiguousarray(predictions[start : start + step], dtype=np.float32)
        offsets = np.arange(0, rows.size + 1, classes, dtype=np.int32)
        column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.reshape(-1)))
        yield pa.table({"predictions": column, "references": pa.array(references[start : start + step])})


def _check_values(values: np.ndarray, start: int, probabilities: bool) -> None:
    # The maximum of a row is NaN if any value is, +inf if any value is, -inf if all are: softmax fails on just these.
    bad = ~np.isfinite(values.max(axis=1))
    if bad.any():
        row = int(bad.argmax())
        value = values[row][~np.isfinite(values[row])][0]
        raise ValueError(f"predictions[{start + row}] holds {value}; every row needs finite numbers")
    if not probabilities:
        return
    bad = (values < 0).any(axis=1) | (np.abs(values.sum(axis=1) - 1) > SUM_TOLERANCE)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"predictions[{start + row}] are not probabilities: smallest {values[row].min():.4g}, "
            f"sum {values[row].sum():.6g} instead of 1. Leave out probabilities=True if these are logits"
        )
