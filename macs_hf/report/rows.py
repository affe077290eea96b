"""Per-sample rows: all that the metrics need to know about a prediction, in 24 bytes instead of all logits.

With p = softmax(z), label y and prediction k = argmax z:

    confidence = p[k]                                   nll    = -log p[y]
    brier      = sum over j of (p[j] - [j = y])^2       margin = z[y] - max over j != y of z[j]
"""

from __future__ import annotations

import warnings
from dataclasses import astuple, dataclass, fields
from os import PathLike

import numpy as np
import torch


BEFORE = "before_"  # in a file, in front of the columns of the model before its temperature


def sample_rows(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    Reduces logits to rows on their device, without waiting for it: for `Trainer.preprocess_logits_for_metrics`.

    Args:
        logits (`torch.Tensor` of shape `(n, classes)`):
            Logits of any floating type, at least two classes.
        labels (`torch.Tensor` of shape `(n,)`):
            Class ids.

    Returns:
        `torch.Tensor` of shape `(n, 6)`, float32 (exact for class ids below 2^24): label, prediction, confidence, nll,
        brier, margin. NaN logits give NaN; [`SampleRows.from_array`] names the row.
    """
    if logits.ndim != 2 or logits.shape[1] < 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must be (n, classes) with at least two classes and labels (n,), got {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}"
        )
    check_labels(labels, logits.shape[1])
    logits = logits.detach()
    logits = logits if logits.dtype == torch.float64 else logits.float()
    index = labels.to(logits.device, torch.int64)[:, None]
    log_probs = logits.log_softmax(dim=1)
    prediction = argmax(logits)
    label_logit, label_log_prob = logits.gather(1, index)[:, 0], log_probs.gather(1, index)[:, 0]
    probs = log_probs.exp()
    confidence = probs.gather(1, prediction[:, None])[:, 0]
    # 1 - 2 p[y] + sum of squares, arranged so that a confident, right prediction does not cancel
    label_prob = label_log_prob.exp()
    brier = (1 - label_prob) ** 2 + probs.square_().scatter_(1, index, 0.0).sum(dim=1)
    margin = label_logit - logits.scatter(1, index, -torch.inf).amax(dim=1)
    columns = (labels, prediction, confidence, label_log_prob.abs(), brier, margin)  # abs: no negative zero
    return torch.stack([column.to(logits.device, torch.float32) for column in columns], dim=1)


def check_labels(labels: torch.Tensor, classes: int) -> None:
    """Refuses labels that are not class ids; whether they are within range is checked on the CPU only, not to wait."""
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels must be whole class ids, got {labels.dtype}: convert them with labels.long()")
    if labels.device.type == "cpu":
        labels = labels.to(torch.int64)
        outside = (labels < 0) | (labels >= classes)
        if outside.any():
            row = int(outside.int().argmax())
            raise ValueError(
                f"labels[{row}] is {int(labels[row])}, but there are {classes} classes, 0 to {classes - 1}"
            )


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """The first largest entry of each row; on CPU by NumPy, which takes a quarter of the time."""
    return torch.from_numpy(logits.numpy().argmax(axis=1)) if logits.device.type == "cpu" else logits.argmax(dim=1)


@dataclass(frozen=True, eq=False)
class SampleRows:
    """
    One row per sample, as columns of shape `(n,)`.

    Args:
        label, prediction (`np.ndarray`, int32):
            Class ids.
        confidence, nll, brier, margin (`np.ndarray`, float32):
            See the equations of this module.

    Example:

    ```python
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

    def __post_init__(self) -> None:
        shapes = {column.shape for column in astuple(self)}
        if len(shapes) > 1 or len(self.label.shape) != 1 or not len(self.label):
            raise ValueError(f"rows need columns of one shape (n,) with n > 0, got {sorted(shapes)}")
        for name in ("confidence", "nll", "brier", "margin"):
            bad = ~np.isfinite(getattr(self, name))
            if bad.any():
                row = int(bad.argmax())
                raise ValueError(f"row {row} has {name} {getattr(self, name)[row]}: its logits hold NaN or infinity")

    @classmethod
    def from_array(cls, rows: np.ndarray) -> SampleRows:
        """From an array `(n, 6)` as [`sample_rows`] makes it."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != len(fields(cls)):
            raise ValueError(f"expected an array of shape (n, {len(fields(cls))}), got {rows.shape}")
        kinds = (np.int32, np.int32, np.float32, np.float32, np.float32, np.float32)
        with np.errstate(invalid="ignore"):
            return cls(*(np.ascontiguousarray(column, dtype=kind) for column, kind in zip(rows.T, kinds, strict=True)))

    @classmethod
    def from_logits(cls, logits: torch.Tensor, labels: torch.Tensor) -> SampleRows:
        """From logits `(n, classes)` and class ids `(n,)`; of probabilities, pass the logarithm."""
        logits, labels = torch.as_tensor(logits), torch.as_tensor(labels).cpu()
        rows = cls.from_array(sample_rows(logits, labels).cpu().numpy())
        if (logits >= 0).all() and ((logits.sum(dim=1) - 1).abs() <= 1e-3).all():
            warnings.warn("logits look like probabilities: pass probabilities.log() to from_logits", stacklevel=2)
        return rows

    @classmethod
    def load(cls, path: str | PathLike[str], *, before: bool = False) -> SampleRows:
        """The rows in a file; with `before`, those of the model as it was before its temperature."""
        if before and not has_rows_before(path):
            raise ValueError(f"{path} has no rows of the model before its temperature")
        with np.load(path, allow_pickle=False) as file:
            return cls(**{f.name: file[f"{BEFORE}{f.name}" if before else f.name] for f in fields(cls)})

    def save(self, path: str | PathLike[str], *, before: SampleRows | None = None) -> None:
        """Writes a compressed `.npz`; `<run>.samples.npz` beside the report is the custom."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        if before is not None:
            columns |= {f"{BEFORE}{field.name}": getattr(before, field.name) for field in fields(self)}
        with open(path, "wb") as file:
            np.savez_compressed(file, **columns)

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> np.ndarray:
        return self.prediction == self.label


def has_rows_before(path: str | PathLike[str]) -> bool:
    """Whether a file also keeps the rows of the model before its temperature."""
    with np.load(path, allow_pickle=False) as file:
        return f"{BEFORE}nll" in file
