"""What becomes of a model's promises on corrupted images: they are made for clean ones, and fail on others."""

import dataclasses

import torch
from accelerate import Accelerator
from torch import Tensor

from ..calibration.guarantees import set_outcome, share
from ..report.corruption_names import CORRUPTIONS, SEVERITIES, STANDARD_15
from ..report.corruption_table import CorruptionTable
from ..report.guarantees import Guarantees, Share
from .corruption_counts import CLEAN, Key


class GuaranteeCounts:
    """
    Counts, batch by batch, how many corrupted images each prediction set covers and how many answers are right.

    Args:
        guarantees ([`Guarantees`]): The promises, with their thresholds.
    """

    def __init__(self, guarantees: Guarantees) -> None:
        self.guarantees = guarantees
        self.sets = len(guarantees.prediction_sets)
        self.thresholds = torch.tensor([p.threshold for p in guarantees.abstentions if p.threshold is not None])
        # By corruption and severity: seen, covered by each set, answered at each threshold, and of these right.
        columns = 1 + self.sets + 2 * len(self.thresholds)
        self.sums = torch.zeros(len(CORRUPTIONS), len(SEVERITIES), columns, dtype=torch.float64)

    def update(self, key: Key, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch of one cell; the logits are without temperature."""
        if key == CLEAN:
            return
        logits = logits.float() / self.guarantees.temperature
        covered = set_outcome(logits, labels, self.guarantees)[:, : self.sets]
        confidence, prediction = logits.softmax(1).max(1)
        answered = (confidence[:, None] >= self.thresholds.to(logits.device)).float()
        right = (prediction == labels.to(logits.device)).float()[:, None]
        columns = torch.cat([torch.ones_like(right), covered, answered, answered * right], dim=1)
        self.sums[CORRUPTIONS.index(key[0]), SEVERITIES.index(key[1])] += columns.sum(0).cpu()

    def totals(self, table: CorruptionTable, accelerator: Accelerator | None = None) -> Guarantees:
        """
        The guarantees with the outcome by severity, over the standard 15 corruptions (or all there are, if some of
        them are missing).

        Args:
            table ([`CorruptionTable`]): That of the same pass over the images.
            accelerator (`Accelerator`, *optional*): The processes.
        """
        sums = self.sums
        if accelerator is not None and accelerator.num_processes > 1:
            sums = accelerator.reduce(sums.to(accelerator.device), "sum").cpu()
        names = STANDARD_15 if set(STANDARD_15) <= table.cells.keys() else tuple(table.cells)
        sums = sums[[CORRUPTIONS.index(name) for name in names]].sum(0)
        by_severity = {severity: row for severity, row in zip(SEVERITIES, sums.tolist(), strict=True) if row[0]}
        views = len(names) if table.design == "crossed" else 1  # of each image, at each severity
        sets = [
            dataclasses.replace(
                promise, severity_coverage={s: _share(row[place], row[0], views) for s, row in by_severity.items()}
            )
            for place, promise in enumerate(self.guarantees.prediction_sets, start=1)
        ]
        abstentions, place = [], 1 + self.sets
        for promise in self.guarantees.abstentions:
            if promise.threshold is not None:
                counts = {s: (row[place + len(self.thresholds)], row[place]) for s, row in by_severity.items()}
                accuracy = {s: _share(right, seen, views) for s, (right, seen) in counts.items() if seen}
                promise, place = dataclasses.replace(promise, severity_accuracy=accuracy), place + 1
            abstentions.append(promise)
        return dataclasses.replace(self.guarantees, prediction_sets=tuple(sets), abstentions=tuple(abstentions))


def _share(hits: float, seen: float, views: int) -> Share:
    images = max(1, round(seen / views))
    return share(hits / seen * images, images)
