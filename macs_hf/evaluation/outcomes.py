"""One pass over the test images: rows without and with the temperature, and what came true of the guarantees.

Thresholds come from held-out data, so each batch of logits is reduced on the device, and no process ever holds all.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..calibration.guarantees import set_outcome, with_test_outcome
from ..report.guarantees import Guarantees
from ..report.rows import COLUMNS, SampleRows
from ..training.row_metrics import rows_at
from ..training.trainer import MaCSTrainer


def predict_outcomes(
    trainer: MaCSTrainer, test: Dataset, guarantees: Guarantees, class_names: tuple[str, ...]
) -> tuple[list[SampleRows], Guarantees]:
    """
    What the trainer's model does with the test images.

    Args:
        trainer ([`MaCSTrainer`]): Holds the model and runs it.
        test (`Dataset`): Of `pixel_values` and `labels`.
        guarantees ([`Guarantees`]): From held-out data, with the temperature.
        class_names (`tuple[str, ...]`): One for each class.

    Returns:
        The rows without and with the temperature, and the guarantees with what came true.
    """
    rows_of = rows_at((1.0, guarantees.temperature))

    def reduced(logits: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None:
            return logits  # unlabelled images are refused once all are seen
        outcome = set_outcome(logits.float() / guarantees.temperature, labels, guarantees)
        return torch.cat([rows_of(logits, labels), outcome], dim=1)

    found = trainer.predict_labelled(test, reduced).predictions
    *rows, outcome = np.split(found, [len(COLUMNS), 2 * len(COLUMNS)], axis=1)
    rows = [SampleRows.from_array(part) for part in rows]
    if guarantees.prediction_sets:
        guarantees = with_test_outcome(guarantees, rows[-1], outcome, len(class_names))
        guarantees = replace(guarantees, class_names=class_names)
    return rows, guarantees
