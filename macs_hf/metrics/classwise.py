"""Sums per class and bin for the class-wise calibration error: each class's probability against "the label is k"."""

from __future__ import annotations

from typing import Any

import numpy as np

from .inputs import probability_chunks


def classwise_sums(
    predictions: Any, references: Any, probabilities: bool = False, n_bins: int = 15, groups: np.ndarray | None = None
) -> np.ndarray:
    """
    Counts, sums of probabilities and numbers of labels, stacked: `(3, classes, n_bins)`, chunk by chunk.

    With `groups` (the group of each sample, from 0), separately for each group: `(3, n_groups, classes, n_bins)`.
    """
    edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    sums, start = None, 0
    for probs, labels in probability_chunks(predictions, references, probabilities):
        rows, classes = probs.shape
        if sums is None:
            n_groups = 1 if groups is None else int(groups.max()) + 1
            sums = np.zeros((3, n_groups * classes * n_bins))
        group = np.zeros(rows, dtype=np.int64) if groups is None else groups[start : start + rows]
        cell = (group[:, None] * classes + np.arange(classes)) * n_bins + np.searchsorted(edges, probs, side="left")
        np.add.at(sums[0], cell, 1.0)
        np.add.at(sums[1], cell, probs)
        np.add.at(sums[2], cell[np.arange(rows), labels], 1.0)
        start += rows
    shape = (3, classes, n_bins) if groups is None else (3, n_groups, classes, n_bins)
    return sums.reshape(shape)


def simulated_label_counts(
    predictions: Any, references: Any, probabilities: bool, n_bins: int, n_simulations: int, rng: np.random.Generator
) -> np.ndarray:
    """Labels per class and bin, `(n_simulations, classes, n_bins)`, if they were drawn from the probabilities."""
    edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    counts = None
    for probs, _ in probability_chunks(predictions, references, probabilities):
        rows, classes = probs.shape
        if counts is None:
            counts = np.zeros(n_simulations * classes * n_bins)
        # One sorted list for all rows, row i in (i, i + 1]: a single search draws a label for every row.
        steps = np.cumsum(probs, axis=1)
        steps = (steps / steps[:, -1:] + np.arange(rows)[:, None]).reshape(-1)
        index = np.searchsorted(edges, probs, side="left").reshape(-1)
        first = np.arange(rows) * classes
        for i in range(n_simulations):
            drawn = np.searchsorted(steps, np.arange(rows) + rng.random(rows), side="right")
            drawn = np.clip(drawn, first, first + classes - 1)
            np.add.at(counts, (i * classes + drawn - first) * n_bins + index[drawn], 1.0)
    return counts.reshape(n_simulations, classes, n_bins)
