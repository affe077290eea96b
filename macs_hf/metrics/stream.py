"""Calibration of an endless stream: sums per bin of confidence, whatever the number of samples."""

from __future__ import annotations

import numpy as np
import torch

from ..report.rows import argmax, class_ids
from .ece import Norm, ReliabilityBins, bin_index, bin_score, bin_sums
from .scores import check_settings


CHUNK = 2**19  # logits at a time, so that memory does not depend on the size of a batch


class CalibrationStream:
    """
    Accumulates accuracy, NLL and ECE batch by batch in `3 * n_bins + 1` numbers.

    `a + b` is the stream of both. Across processes sum `state`, a float64 tensor on the CPU:
    `stream.state = accelerator.reduce(stream.state.to(accelerator.device), "sum").cpu()`.

    Args:
        n_bins (`int`, *optional*, defaults to `15`): Number of equal-width bins.

    Example:

    ```python
    >>> stream = CalibrationStream()
    >>> for _ in range(3):
    ...     stream.update(torch.tensor([[0.0, 0.0], [0.0, 50.0]]), torch.tensor([1, 1]))
    >>> {name: round(value, 6) for name, value in stream.summary().items()}
    {'accuracy': 0.5, 'nll': 0.346574, 'ece': 0.25}

    ```
    """

    def __init__(self, n_bins: int = 15) -> None:
        check_settings(n_bins=n_bins)
        self.n_bins = n_bins
        self.state = torch.zeros(3 * n_bins + 1, dtype=torch.float64)  # counts, confidences, hits per bin; nll

    def update(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Adds logits `(n, classes)` and class ids `(n,)`. A batch with NaN is refused as a whole."""
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise ValueError(f"expected (n, classes) and (n,), got {tuple(logits.shape)} and {tuple(labels.shape)}")
        state, labels = self.state.clone(), class_ids(labels, logits.shape[1]).to(logits.device)
        rows = max(1, CHUNK // max(1, logits.shape[1]))
        for i, (part, ids) in enumerate(zip(logits.detach().split(rows), labels.split(rows), strict=True)):
            state += self._sums(part, ids, i * rows)
        self.state = state

    def _sums(self, logits: torch.Tensor, labels: torch.Tensor, start: int) -> torch.Tensor:
        logits = logits if logits.dtype == torch.float64 else logits.float()
        predicted = argmax(logits)
        confidence = logits.softmax(dim=1).gather(1, predicted[:, None])[:, 0]
        gap = logits.gather(1, predicted[:, None]) - logits.gather(1, labels[:, None])
        nll = gap[:, 0] - confidence.log()  # unlike the label's probability, the confidence cannot underflow
        confidence, nll, correct = (x.cpu().numpy() for x in (confidence, nll, predicted == labels))
        bad = np.isnan(confidence)
        if bad.any():
            raise ValueError(f"row {start + int(bad.argmax())} of the batch holds NaN or infinity")
        confidence = confidence.astype(np.float64)
        sums = bin_sums(bin_index(confidence, self.n_bins), self.n_bins, None, confidence, correct)
        return torch.from_numpy(np.append(sums, nll.sum(dtype=np.float64)))

    def __add__(self, other: CalibrationStream) -> CalibrationStream:
        if self.n_bins != other.n_bins:
            raise ValueError(f"streams of {self.n_bins} and {other.n_bins} bins cannot be added")
        merged = CalibrationStream(self.n_bins)
        merged.state = self.state + other.state
        return merged

    def bins(self) -> ReliabilityBins:
        if not self.state[: self.n_bins].sum():
            raise ValueError("the stream is empty: call update first")
        edges = np.linspace(0, 1, self.n_bins + 1)
        return ReliabilityBins(edges[:-1], edges[1:], *self.state[:-1].cpu().numpy().reshape(3, self.n_bins))

    def ece(self, norm: Norm = "l1", debiased: bool = False) -> float:
        bins = self.bins()
        return float(bin_score(bins.count, bins.confidence, bins.correct, norm, debiased))

    def summary(self) -> dict[str, float]:
        bins = self.bins()
        n = bins.count.sum()
        return {"accuracy": float(bins.correct.sum() / n), "nll": float(self.state[-1] / n), "ece": self.ece()}
