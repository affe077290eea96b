"""Per-sample rows: all that the metrics need to know about a prediction, in 24 bytes instead of all logits.

With p = softmax(z), label y and prediction k = argmax z:

    confidence = p[k]                                   nll    = -log p[y]
    brier      = sum over j of (p[j] - [j = y])^2       margin = z[y] - max over j != y of z[j]
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np


if TYPE_CHECKING:
    import datasets
    import pandas
    import pyarrow
    from torch import Tensor

# Columns and their types.
COLUMNS = {
    "label": np.int32,
    "prediction": np.int32,
    "confidence": np.float32,
    "nll": np.float32,
    "brier": np.float32,
    "margin": np.float32,
}
# Columns that say which sample it is; each may be missing.
ORIGIN = ("name", "index", "group")
# The range of each, but for rounding.
BOUNDS = {"confidence": (0.0, 1.0), "nll": (0.0, np.inf), "brier": (0.0, 2.0), "margin": (-np.inf, np.inf)}
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class SampleRows:
    """
    One row per sample, as columns of shape `(n,)`, in the order of the dataset.

    Args:
        label, prediction (`np.ndarray`, int32):
            Class ids.
        confidence, nll, brier, margin (`np.ndarray`, float32):
            See the equations of this module.
        name (`np.ndarray` of `str`, *optional*):
            What each sample is called, such as its file.
        index (`np.ndarray`, int64, *optional*):
            Where each sample is in the split of the dataset; if not given, its position among the rows is.
        group (`np.ndarray` of `str`, *optional*):
            Which group each sample belongs to, such as the camera that took it.

    Example:

    ```python
    >>> import torch
    >>> rows = SampleRows.from_logits(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    >>> rows.correct, rows.margin
    (array([ True, False]), array([2., 0.], dtype=float32))

    ```
    """

    label: np.ndarray
    prediction: np.ndarray
    confidence: np.ndarray
    nll: np.ndarray
    brier: np.ndarray
    margin: np.ndarray
    name: np.ndarray | None = None
    index: np.ndarray | None = None
    group: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in (*self._given, *COLUMNS):
            if not isinstance(getattr(self, name), np.ndarray):
                raise TypeError(f"{name} must be a NumPy array, got {type(getattr(self, name)).__name__}")
        shapes = {getattr(self, name).shape for name in (*self._given, *COLUMNS)}
        if len(shapes) > 1 or len(self.label.shape) != 1 or not len(self.label):
            raise ValueError(f"rows need columns of one shape (n,) with n > 0, got {sorted(shapes)}")
        for name, (low, high) in BOUNDS.items():
            column = getattr(self, name)
            _refuse(name, column, ~np.isfinite(column), "a finite number: its logits hold NaN or infinity")
            wanted = f"at least {low:g}" if high == np.inf else f"within [{low:g}, {high:g}]"
            _refuse(name, column, (column < low - ROUNDING) | (column > high + ROUNDING), wanted)
        for name in ("label", "prediction"):
            column = getattr(self, name)
            if not np.issubdtype(column.dtype, np.integer):
                raise ValueError(f"{name} must hold class ids, whole numbers, got {column.dtype}")
            _refuse(name, column, column < 0, "a class id, which begin at 0")

    @property
    def _given(self) -> list[str]:
        return [name for name in ORIGIN if getattr(self, name) is not None]

    @classmethod
    def from_array(cls, rows: np.ndarray) -> SampleRows:
        """From an array `(n, 6)` as [`sample_rows`] makes it."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != len(COLUMNS):
            raise ValueError(f"expected an array of shape (n, {len(COLUMNS)}), got {rows.shape}")
        columns = dict(zip(COLUMNS, rows.T, strict=True))
        for name in ("label", "prediction"):
            _refuse(name, columns[name], columns[name] % 1 != 0, "a class id, a whole number")
        return cls(**{name: np.ascontiguousarray(columns[name], dtype=kind) for name, kind in COLUMNS.items()})

    @classmethod
    def from_logits(cls, logits: Tensor, labels: Tensor) -> SampleRows:
        """From logits `(n, classes)` and class ids `(n,)`; of probabilities, pass the logarithm."""
        import torch  # rows that were saved are read and compared without it

        from .logits import sample_rows

        logits, labels = torch.as_tensor(logits), torch.as_tensor(labels).cpu()
        rows = cls.from_array(sample_rows(logits, labels).cpu().numpy())
        if (logits >= 0).all() and ((logits.sum(dim=1) - 1).abs() <= 4e-3).all():
            warnings.warn("logits look like probabilities: pass probabilities.log() to from_logits", stacklevel=2)
        return rows

    def to_table(self) -> pyarrow.Table:
        """The columns as an Arrow table: those of `name`, `index` and `group` that are known, then all others."""
        import pyarrow  # slow to import, and not needed to measure

        columns = {name: getattr(self, name) for name in (*self._given, *COLUMNS)}
        return pyarrow.table({name: x.astype(object) if x.dtype.kind == "U" else x for name, x in columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """The columns as a table of pandas, such as to sort and filter them."""
        return self.to_table().to_pandas()

    def to_dataset(self) -> datasets.Dataset:
        """The columns as a `datasets.Dataset`."""
        from datasets import Dataset

        return Dataset(self.to_table())

    def _repr_html_(self) -> str:
        from .notebook import rows_shown  # which needs this module

        return rows_shown(self)

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> np.ndarray:
        return self.prediction == self.label


def _refuse(name: str, column: np.ndarray | Sequence[float], wrong: np.ndarray, wanted: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{name} of row {row} must be {wanted}, got {column[row]}")
