"""What a model did with every image of the corruption benchmark: collected batch by batch, added up at the end."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from ..metrics.bootstrap import noise_scores
from ..metrics.ece import bin_score, reliability_bins
from ..report.corruption_names import CORRUPTIONS, FAMILIES, MEANS, SEVERITIES, STANDARD_15
from ..report.corruption_rows import NOT_MEASURED, CorruptionRows
from ..report.corruption_table import Cell
from ..report.interval import Interval
from ..report.logits import sample_rows
from ..report.rows import SampleRows


Key = tuple[str, int]
CLEAN: Key = ("clean", 0)
# Planes of the sums: 1 where an image was seen, 1 where it was right, and the scores without and with a temperature.
SEEN, RIGHT, CONFIDENCE, NLL, SCALED_CONFIDENCE, SCALED_NLL = range(6)


class CorruptionTotals(NamedTuple):
    """The results of all processes: see the fields of `CorruptionTable` with these names."""

    cells: dict[Key, Cell]
    rows: CorruptionRows
    standard_error: dict[str, float]
    confidence_gap: dict[str, Interval]


class CorruptionCounts:
    """
    Collects logits cell by cell, in any order, and keeps at most 32 bytes of each image in each cell.

    Args:
        keys (sequence of `(corruption, severity)`): The cells, `CLEAN` among them if wanted.
        temperature (`float`, *optional*): Divides the logits for the scaled scores.
    """

    def __init__(self, keys: list[Key], temperature: float | None = None) -> None:
        if temperature is not None and not temperature > 0:
            raise ValueError(f"temperature={temperature!r} must be positive.")
        self.keys, self.temperature = {key: number for number, key in enumerate(keys)}, temperature
        self.names = tuple(name for name in CORRUPTIONS if any(key[0] == name for key in keys))
        self.parts: list[tuple[Key, Tensor, Tensor]] = []

    def update(self, key: Key, positions: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch: `positions` `(n,)` are those of its images in the dataset."""
        plain = sample_rows(logits, labels)
        planes = [torch.ones_like(plain[:, 0]), plain[:, 0] == plain[:, 1], plain[:, 2], plain[:, 3]]
        if self.temperature is not None:
            scaled = sample_rows(logits.float() / self.temperature, labels)
            planes += [scaled[:, 2], scaled[:, 3]]
        values = torch.stack([plane.float() for plane in planes]).cpu()
        bad = ~values.isfinite().all(0)
        if bad.any():
            raise ValueError(f"The logits of image {int(positions[bad][0])} under {key} hold NaN or infinity.")
        self.parts.append((key, positions.cpu(), values))

    def totals(self, index: np.ndarray | None = None, accelerator: Accelerator | None = None) -> CorruptionTotals:
        """
        The results of all processes together.

        Args:
            index (`np.ndarray`, *optional*): Positions of all the images that were measured, on any process, in
                ascending order; by default 0, 1, ... without a gap.
            accelerator (`Accelerator`, *optional*): The processes.
        """
        if index is None:
            last = max((int(positions.max()) for _, positions, _ in self.parts), default=-1)
            index = np.arange(largest(last, accelerator) + 1)
        if not len(index):
            raise ValueError("The dataset is empty: there is nothing to evaluate.")
        sums = torch.zeros(4 if self.temperature is None else 6, len(self.keys), len(index))
        for key, positions, values in self.parts:
            sums[:, self.keys[key], np.searchsorted(index, positions.numpy())] = values
        if accelerator is not None and accelerator.num_processes > 1:
            sums = accelerator.reduce(sums.to(accelerator.device), "sum")
        sums = sums.cpu().numpy()
        cells = {key: _cell(sums[:, number]) for key, number in self.keys.items()}
        seen = sums[SEEN] > 0
        right, gaps = (self._means(np.where(seen, values, np.nan)) for values in (sums[RIGHT], gap_of(sums)))
        errors = {mean: error for mean, (_, error) in right.items()}
        gaps = {mean: interval_of(*found) for mean, found in gaps.items()}
        if CLEAN in self.keys:
            gaps = clean_gap(sums[:, self.keys[CLEAN]]) | gaps
        return CorruptionTotals(cells, self._rows(sums, index), errors, gaps)

    def _of(self, name: str) -> list[int]:
        """The cells of one corruption."""
        return [number for key, number in self.keys.items() if key[0] == name]

    def _rows(self, sums: np.ndarray, index: np.ndarray) -> CorruptionRows:
        of_corruption = np.stack([sums[:, self._of(name)].sum(1) for name in self.names], axis=-1)
        seen = of_corruption[SEEN]
        with np.errstate(invalid="ignore"):
            hits = np.where(seen > 0, of_corruption[RIGHT], NOT_MEASURED).astype(np.uint8)
            nll = of_corruption[NLL] / seen
            scaled = None if self.temperature is None else of_corruption[SCALED_NLL] / seen
        return CorruptionRows(index, self.names, hits, nll, scaled)

    def _means(self, values: np.ndarray) -> dict[str, tuple[float, float]]:
        """Means of what each image has in each cell, NaN where it was not seen, with their standard errors; of the
        means that have all of their cells."""
        means = {mean: (names, SEVERITIES) for mean, names in (MEANS | FAMILIES).items()}
        means |= {f"severity_{severity}": (STANDARD_15, (severity,)) for severity in SEVERITIES}
        found = {}
        for mean, (names, severities) in means.items():
            wanted = [[(name, severity) for severity in severities] for name in names]
            if all(key in self.keys for keys in wanted for key in keys):
                images = np.stack([values[[self.keys[key] for key in keys]].mean(0) for keys in wanted], axis=1)
                error = standard_error(images)
                found |= {} if error is None else {mean: (float(np.nanmean(images, axis=0).mean()), error)}
        return found


def clean_scores(rows: Sequence[SampleRows], index: np.ndarray) -> tuple[Cell, dict[str, Interval]]:
    """The clean images of a benchmark from rows of the whole dataset, without and with a temperature."""
    planes = [np.ones(len(index)), rows[0].correct[index], rows[0].confidence[index], rows[0].nll[index]]
    for scaled in rows[1:2]:
        planes += [scaled.confidence[index], scaled.nll[index]]
    return _cell(np.stack(planes)), clean_gap(np.stack(planes))


def clean_gap(planes: np.ndarray) -> dict[str, Interval]:
    """Mean confidence minus accuracy of the clean images, if there are at least two."""
    gap = gap_of(planes)[planes[SEEN] > 0]
    error = standard_error(gap[:, None])
    return {} if error is None else {"clean": interval_of(float(gap.mean()), error)}


def gap_of(planes: np.ndarray) -> np.ndarray:
    """Confidence, with the temperature if there is one, minus 1 where the prediction is right."""
    confidence = planes[SCALED_CONFIDENCE] if len(planes) > SCALED_CONFIDENCE else planes[CONFIDENCE]
    return confidence.astype(np.float64) - planes[RIGHT]


def interval_of(value: float, error: float) -> Interval:
    return Interval(value, value - 1.96 * error, value + 1.96 * error)


def largest(value: int, accelerator: Accelerator | None) -> int:
    """Over all processes."""
    if accelerator is None or accelerator.num_processes == 1:
        return value
    mine = torch.zeros(accelerator.num_processes, dtype=torch.int64, device=accelerator.device)
    mine[accelerator.process_index] = value
    return int(accelerator.reduce(mine, "sum").max())


def _cell(sums: np.ndarray) -> Cell:
    seen = sums[SEEN] > 0
    right, confidence, nll, *scaled = sums[RIGHT:, seen].astype(np.float64)
    ece, floor = _calibration(confidence, right)
    cell = Cell(int(seen.sum()), float(right.mean()), float(nll.mean()), ece, noise_floor=floor)
    if not scaled:
        return cell
    ece, floor = _calibration(scaled[0], right)
    scores = {"scaled_nll": float(scaled[1].mean()), "scaled_ece": ece, "scaled_noise_floor": floor}
    return Cell(**vars(cell) | scores)


def standard_error(results: np.ndarray) -> float | None:
    """
    Of the mean over corruptions of their means over images; `None` if a corruption has fewer than two images.

    Args:
        results (`np.ndarray` of shape `(images, corruptions)`): NaN where an image was not seen under a corruption.
            Images are independent of each other; the results of one image are not, and are added up before squaring.
    """
    seen = ~np.isnan(results)
    count = seen.sum(axis=0)
    if count.min() < 2:
        return None
    deviations = np.where(seen, results - np.nansum(results, axis=0) / count, 0.0) / np.sqrt(count * (count - 1.0))
    return float((deviations.mean(axis=1) ** 2).sum() ** 0.5)


def _calibration(confidence: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """The ECE, and the one that a calibrated model with these confidences would get."""
    bins = reliability_bins(confidence, right > 0)
    return float(bin_score(bins.count, bins.confidence, bins.correct)), float(noise_scores(confidence).mean())
