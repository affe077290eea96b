"""Brier score of a multiclass model: the mean over samples of the sum over classes of (p - one-hot label)^2."""

from __future__ import annotations

from typing import Any

import numpy as np

from .inputs import probability_chunks, warn_of_probabilities


def brier_score(predictions: Any, references: Any, *, probabilities: bool = False) -> float:
    """
    Brier score summed over classes, in [0, 2]; 0 is perfect.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`):
            Logits, or probabilities if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`):
            Class ids.
        probabilities (`bool`, *optional*, defaults to `False`):
            Whether `predictions` are probabilities. If they look so and this is `False`, a warning is given.

    Example:

    ```python
    >>> brier_score([[0.5, 0.5], [0.0, 1.0]], [0, 1], probabilities=True)
    0.25

    ```
    """
    if not probabilities:
        warn_of_probabilities(predictions)
    total, n = 0.0, 0
    for errors, labels in probability_chunks(predictions, references, probabilities):
        errors[np.arange(len(errors)), labels] -= 1.0  # the chunk is a copy of our own
        total, n = total + np.square(errors).sum(), n + len(errors)
    return float(total / n)
