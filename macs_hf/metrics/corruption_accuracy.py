"""Accuracy under corruption: means over corruptions, severities and families, and the mean corruption error.

With E(c, s) the error under corruption c at severity s, averaged over the severities present:

    accuracy(c) = 1 - mean over s of E(c, s),     mCE = mean over c of (mean over s of E(c, s)) / reference error(c)

as in Hendrycks and Dietterich 2019, https://huggingface.co/papers/1903.12261.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..report.rows import CORRUPTIONS, FAMILIES, SEVERITIES, STANDARD_15
from .ece import bin_sums
from .scores import as_array


def corruption_scores(
    predictions: Any,
    references: Any,
    corruption: Sequence[str],
    severity: Any,
    reference_errors: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """
    Accuracy under corruption, in [0, 1]; 1 is perfect. Every (corruption, severity) weighs the same.

    Args:
        predictions (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`): Predicted class ids.
        references (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`): Class ids.
        corruption (sequence of `str`, length `n`): Name of the corruption of each sample.
        severity (`np.ndarray`, `torch.Tensor` or `list` of shape `(n,)`): Severity of each sample, 1 to 5; the same
            severities for every corruption.
        reference_errors (`dict`, *optional*): Mean error of a reference model under each standard corruption, as a
            fraction, for the mCE.

    Returns:
        `dict`: `corruption_accuracy` (mean over the corruptions present), `mean15` and `mean19` (`None` unless all of
        them are present), `per_corruption`, `per_severity`, `per_family` (of the standard 15; families complete only),
        and `mce`, a ratio, if `reference_errors` are given.

    Example:

    ```python
    >>> corruption_scores([0, 1, 1, 1], [0, 0, 1, 1], ["fog", "fog", "snow", "snow"], [1, 2, 1, 2])["per_corruption"]
    {'snow': 1.0, 'fog': 0.5}

    ```
    """
    names, severities, accuracy = _table(predictions, references, corruption, severity)
    per_corruption = {name: float(value) for name, value in zip(names, accuracy.mean(axis=1), strict=True)}

    def mean(wanted: Sequence[str]) -> float | None:
        complete = all(name in per_corruption for name in wanted)
        return float(np.mean([per_corruption[name] for name in wanted])) if complete else None

    families = {family: mean(members) for family, members in FAMILIES.items() if family != "extra"}
    scores = {
        "corruption_accuracy": float(accuracy.mean()),
        "mean15": mean(STANDARD_15),
        "mean19": mean(CORRUPTIONS),
        "per_corruption": per_corruption,
        "per_severity": {str(s): float(value) for s, value in zip(severities, accuracy.mean(axis=0), strict=True)},
        "per_family": {family: value for family, value in families.items() if value is not None},
    }
    if reference_errors is not None:
        missing = [name for name in STANDARD_15 if name not in reference_errors or name not in per_corruption]
        if missing:
            raise ValueError(
                f"mCE needs all 15 standard corruptions in the data and in reference_errors; no {missing}"
            )
        if wrong := [name for name in STANDARD_15 if not 0 < reference_errors[name] <= 1]:
            error = reference_errors[wrong[0]]
            raise ValueError(f"reference_errors must be fractions above 0, 1 - accuracy, got {error} for {wrong[0]}")
        scores["mce"] = float(np.mean([(1 - per_corruption[name]) / reference_errors[name] for name in STANDARD_15]))
    return scores


def _table(
    predictions: Any, references: Any, corruption: Sequence[str], severity: Any
) -> tuple[list[str], list[int], np.ndarray]:
    """Names present in canonical order, severities present, and the accuracy of each pair."""
    predictions, references, severity = (as_array(column) for column in (predictions, references, severity))
    lengths = [len(predictions), len(references), len(corruption), len(severity)]
    if len(set(lengths)) > 1 or predictions.ndim != 1 or not lengths[0]:
        raise ValueError(
            f"predictions (class ids), references, corruption and severity need one entry per sample each, got "
            f"{lengths} and predictions of shape {predictions.shape}"
        )
    number = {name: i for i, name in enumerate(CORRUPTIONS)}
    unknown = sorted(set(corruption) - number.keys())
    if unknown:
        raise ValueError(f"unknown corruption {unknown[0]!r}; known are {', '.join(CORRUPTIONS)}")
    if not np.isin(severity, SEVERITIES).all():
        raise ValueError(f"severity must be 1 to 5, got {sorted(set(severity.tolist()) - set(SEVERITIES))}")
    cell = np.fromiter((number[name] for name in corruption), np.int64, len(corruption)) * 5 + severity - 1
    count, right = bin_sums(cell, 95, None, predictions == references).reshape(2, 19, 5)
    rows, columns = np.flatnonzero(count.any(axis=1)), np.flatnonzero(count.any(axis=0))
    count, right = count[np.ix_(rows, columns)], right[np.ix_(rows, columns)]
    if (count == 0).any():
        row, column = np.argwhere(count == 0)[0]
        raise ValueError(f"no sample of {CORRUPTIONS[rows[row]]} at severity {columns[column] + 1}, which others have")
    return [CORRUPTIONS[i] for i in rows], [int(i) + 1 for i in columns], right / count
