"""Running sums of an evaluation under corruption: per cell, and per image for intervals and paired comparisons."""

from typing import NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor

from ..metrics.stream import CalibrationStream
from ..report.corruption_table import CORRUPTIONS, SEVERITIES, STANDARD_15, Cell


Key = tuple[str, int]
CLEAN: Key = ("clean", 0)
N_BINS = 15


class Totals(NamedTuple):
    """What a tally comes to, over all processes: see the fields of `CorruptionTable` with these names."""

    cells: dict[Key, Cell]
    hits: dict[str, str]
    standard_error: dict[str, float]


class Tally:
    """
    Collects logits cell by cell, in any order; memory does not grow with the classes, and by a byte per image and
    corruption.

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
        self.names = list(dict.fromkeys(name for name, severity in keys if (name, severity) != CLEAN))
        self.hits = torch.zeros(0, len(self.names), dtype=torch.uint8)  # severities an image was right at

    def update(self, key: Key, rows: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch: `rows` `(n,)` number this process's images from 0, the same in every cell."""
        logits, labels = logits.detach(), labels.to(logits.device)
        self.plain[key].update(logits, labels)
        if self.temperature is not None:
            self.scaled[key].update(logits.float() / self.temperature, labels)
        missing = int(rows.max()) + 1 - len(self.hits)
        if missing > 0:
            self.hits = torch.cat((self.hits, self.hits.new_zeros(missing, len(self.names))))
        if key != CLEAN:
            self.hits[rows, self.names.index(key[0])] += (logits.argmax(1) == labels).to("cpu", torch.uint8)

    def totals(self, accelerator: Accelerator | None = None) -> Totals:
        """The sums of all processes, of which each had every `num_processes`-th image from its own index on."""
        state = torch.cat([stream.state for stream in (*self.plain.values(), *self.scaled.values())])
        state = _summed(state, accelerator)
        if not state.any():
            raise ValueError("The dataset is empty: there is nothing to evaluate.")
        cells = self._cells(state)
        hits = self.hits
        if accelerator is not None and accelerator.num_processes > 1:
            everyone = hits.new_zeros(next(iter(cells.values())).n, len(self.names))
            everyone[accelerator.process_index :: accelerator.num_processes] = hits
            hits = _summed(everyone, accelerator)
        digits = {name: "".join(map(str, hits[:, column].tolist())) for column, name in enumerate(self.names)}
        return Totals(cells, digits, self._errors(cells, hits.double()))

    def _cells(self, state: Tensor) -> dict[Key, Cell]:
        streams = state.split([3 * N_BINS + 1] * (len(self.plain) + len(self.scaled)))
        cells = {}
        for key, stream in zip(self.plain, streams, strict=False):
            cells[key] = Cell(int(stream[:N_BINS].sum()), **_scores(stream))
        for key, stream in zip(self.scaled, streams[len(self.plain) :], strict=True):
            scores = _scores(stream)
            cells[key] = Cell(**vars(cells[key]) | {"scaled_nll": scores["nll"], "scaled_ece": scores["ece"]})
        return cells

    def _errors(self, cells: dict[Key, Cell], hits: Tensor) -> dict[str, float]:
        """Of the means, over images: what an image comes to under different corruptions goes together."""
        errors = {}
        for mean, names in (("mean15", STANDARD_15), ("mean19", CORRUPTIONS)):
            if len(hits) > 1 and all((name, severity) in cells for name in names for severity in SEVERITIES):
                right = hits[:, [self.names.index(name) for name in names]].mean(1) / len(SEVERITIES)
                errors[mean] = float(right.std() / len(right) ** 0.5)
        return errors


def _summed(tensor: Tensor, accelerator: Accelerator | None) -> Tensor:
    if accelerator is None:
        return tensor.cpu()
    return accelerator.reduce(tensor.to(accelerator.device), "sum").cpu()


def _scores(state: Tensor) -> dict[str, float]:
    stream = CalibrationStream(N_BINS)
    stream.state = state
    return stream.summary()
