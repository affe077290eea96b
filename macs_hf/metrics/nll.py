"""Negative log-likelihood: the mean of -log p(label), computed in float64 from logits as logsumexp(z) - z[label]."""

from __future__ import annotations

from typing import Any

import numpy as np

from .inputs import checked_chunks, warn_of_probabilities


def negative_log_likelihood(predictions: Any, references: Any, *, probabilities: bool = False) -> float:
    """
    Mean negative log-likelihood in nats, in [0, inf]; 0 is perfect.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or nested `list` of shape `(n, classes)`):
            Logits, or probabilities if `probabilities=True`.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`):
            Class ids.
        probabilities (`bool`, *optional*, defaults to `False`):
            Whether `predictions` are probabilities. If they look so and this is `False`, a warning is given.
            Probabilities are not clipped: a label of probability 0 gives infinity.

    Example:

    ```python
    >>> round(negative_log_likelihood([[0.0, 0.0], [1.0, 1.0]], [0, 1]), 6)
    0.693147

    ```
    """
    if not probabilities:
        warn_of_probabilities(predictions)
    total, n = 0.0, 0
    for values, labels in checked_chunks(predictions, references, probabilities):
        at_label = values[np.arange(len(values)), labels]
        if probabilities:
            with np.errstate(divide="ignore"):
                losses = -np.log(at_label)
        else:
            largest = values.max(axis=1)
            losses = np.log(np.exp(values - largest[:, None]).sum(axis=1)) + largest - at_label
        total, n = total + losses.sum(), n + len(values)
    return float(max(total / n, 0.0))  # probabilities may exceed 1 by their rounding
