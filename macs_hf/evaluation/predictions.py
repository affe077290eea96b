"""One pass over the test images: rows without and with the temperature, and what came true of the guarantees.

Thresholds come from held-out data, so each batch of logits is reduced on the device, and no process ever holds all.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..calibration.guarantees import set_outcome, with_test_outcome
from ..report.guarantees import Guarantees
from ..report.rows import SampleRows
from ..training.row_metrics import rows_at
from ..training.trainer import MaCSTrainer
from .metadata import class_names


class TestPredictions(NamedTuple):
    """
    What a model does with the test images.

    Args:
        rows (`list[SampleRows]`): Without and, if there is one, with the temperature.
        guarantees ([`Guarantees`], *optional*): Those that were given, with what came true.
        class_names (`tuple[str, ...]`): One for each class.
        scores (`np.ndarray` of shape `(n, k)`, *optional*): What `scores` made of the logits.
        covered (`np.ndarray` of shape `(n,)` and type `bool`, *optional*): Whether the prediction set of each image
            holds its class, for the sets of `Guarantees.shown_set`.
    """

    rows: list[SampleRows]
    guarantees: Guarantees | None
    class_names: tuple[str, ...]
    scores: np.ndarray | None
    covered: np.ndarray | None


def predict_test(
    trainer: MaCSTrainer,
    test: Dataset,
    guarantees: Guarantees | None = None,
    scores: Callable[[Tensor], Tensor] | None = None,
) -> TestPredictions:
    """
    Run the trainer's model on the test images once.

    Args:
        trainer ([`MaCSTrainer`]): Holds the model and runs it.
        test (`Dataset`): Of `pixel_values` and `labels`.
        guarantees ([`Guarantees`], *optional*): From held-out data, with the temperature.
        scores (`Callable`, *optional*): From logits `(n, classes)` to other numbers per image, `(n, k)`.
    """
    temperatures = (1.0,) if guarantees is None else (1.0, guarantees.temperature)
    rows_of = rows_at(temperatures)
    widths, classes = [], 0

    def reduced(logits: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None:
            return logits  # unlabelled images are refused once all are seen
        nonlocal classes
        classes = logits.shape[1]
        parts = [rows_of(logits, labels)]
        if guarantees is not None:
            parts.append(set_outcome(logits.float() / guarantees.temperature, labels, guarantees))
        if scores is not None:
            parts.append(scores(logits))
        widths[:] = [part.shape[1] for part in parts]
        return torch.cat(parts, dim=1)

    found = trainer.predict_labelled(test, reduced).predictions
    rows, *others = np.split(found, np.cumsum(widths)[:-1], axis=1)
    rows = [SampleRows.from_array(part) for part in np.split(rows, len(temperatures), axis=1)]
    names, covered = class_names(trainer, classes), None
    if guarantees is not None and guarantees.prediction_sets:
        guarantees = with_test_outcome(guarantees, rows[-1], others[0], classes)
        guarantees = replace(guarantees, class_names=names)
        if guarantees.shown_set is not None:
            covered = others[0][:, guarantees.prediction_sets.index(guarantees.shown_set)] > 0
    return TestPredictions(rows, guarantees, names, others[-1] if scores is not None else None, covered)
