"""Running sums of an evaluation under corruption: per cell, and per image for the error of the means."""

import torch
from torch import Tensor

from ..metrics.stream import CalibrationStream
from .corrupt import CORRUPTIONS, SEVERITIES, STANDARD_15
from .table import Cell


Key = tuple[str, int]
CLEAN: Key = ("clean", 0)
N_BINS = 15


class Tally:
    """
    Collects logits cell by cell, in any order; memory does not grow with the classes, and by two numbers per image.

    Args:
        keys (sequence of `(corruption, severity)`): The cells, `CLEAN` among them if wanted.
        temperature (`float`, *optional*): Divides the logits for the scaled scores.
    """

    def __init__(self, keys: list[Key], temperature: float | None = None) -> None:
        if temperature is not None and not temperature > 0:
            raise ValueError(f"temperature={temperature!r} must be positive.")
        self.temperature = temperature
        self.plain = {key: CalibrationStream(N_BINS) for key in keys}
        self.scaled = {key: CalibrationStream(N_BINS) for key in keys} if temperature is not None else {}
        self.hits = torch.zeros(0, 2, dtype=torch.int64)  # per image: cells it got right, of the 15 and of the 19

    def update(self, key: Key, rows: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch: `rows` `(n,)` number the images from 0, the same in every cell."""
        logits, labels = logits.detach(), labels.to(logits.device)
        self.plain[key].update(logits, labels)
        if self.temperature is not None:
            self.scaled[key].update(logits.float() / self.temperature, labels)
        missing = int(rows.max()) + 1 - len(self.hits)
        if missing > 0:
            self.hits = torch.cat((self.hits, self.hits.new_zeros(missing, 2)))
        if key != CLEAN:
            right = (logits.argmax(1) == labels).long().cpu()
            self.hits[rows] += torch.stack((right * (key[0] in STANDARD_15), right), dim=1)

    def state(self) -> Tensor:
        """All sums as one float64 vector, for a reduction over processes."""
        moments = torch.cat((self.hits.sum(0), self.hits.square().sum(0))).double()
        streams = [stream.state for stream in (*self.plain.values(), *self.scaled.values())]
        return torch.cat((*streams, moments))

    def results(self, state: Tensor) -> tuple[dict[Key, Cell], dict[str, float]]:
        """The cells, and the standard errors of the means, of a (reduced) `state`."""
        *streams, moments = state.cpu().split([3 * N_BINS + 1] * (len(self.plain) + len(self.scaled)) + [4])
        cells = {}
        for key, stream in zip(self.plain, streams, strict=False):
            cells[key] = Cell(int(stream[:N_BINS].sum()), **_scores(stream))
        for key, stream in zip(self.scaled, streams[len(self.plain) :], strict=True):
            scores = _scores(stream)
            cells[key] = Cell(**vars(cells[key]) | {"scaled_nll": scores["nll"], "scaled_ece": scores["ece"]})
        n = next(iter(cells.values())).n
        errors = {}
        for mean, names, total, squares in zip(
            ("mean15", "mean19"), (STANDARD_15, CORRUPTIONS), moments[:2].tolist(), moments[2:].tolist(), strict=True
        ):
            if n > 1 and all((name, severity) in cells for name in names for severity in SEVERITIES):
                variance = max(0.0, squares - total**2 / n) / (n - 1)
                errors[mean] = (variance / n) ** 0.5 / (len(names) * len(SEVERITIES))
        return cells, errors


def _scores(state: Tensor) -> dict[str, float]:
    stream = CalibrationStream(N_BINS)
    stream.state = state
    return stream.summary()
