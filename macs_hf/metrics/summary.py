"""The usual metrics of per-sample rows, without intervals."""

import numpy as np

from ..report.rows import SampleRows
from .ece import calibration_error


def summarize(rows: SampleRows, n_bins: int = 15) -> dict[str, float]:
    """
    Mean accuracy, NLL, Brier score and logit margin, and the ECE.

    ```python
    >>> import torch
    >>> rows = SampleRows.from_logits(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    >>> {name: round(value, 4) for name, value in summarize(rows).items()}
    {'accuracy': 0.5, 'nll': 0.41, 'ece': 0.3096, 'brier': 0.2642, 'logit_margin': 1.0}

    ```
    """
    return {
        "accuracy": float(rows.correct.mean()),
        "nll": float(rows.nll.mean(dtype=np.float64)),
        "ece": calibration_error(rows.confidence.astype(np.float64), rows.correct, n_bins=n_bins),
        "brier": float(rows.brier.mean(dtype=np.float64)),
        "logit_margin": float(rows.margin.mean(dtype=np.float64)),
    }
