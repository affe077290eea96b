"""The examples in docstrings run."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "calibration.abstention",
        "calibration.prediction_sets",
        "calibration.promises",
        "calibration.temperature",
        "metrics",
        "metrics.comparison",
        "metrics.corruption_accuracy",
        "metrics.ece",
        "metrics.group_scores",
        "metrics.intervals",
        "metrics.ood_scores",
        "metrics.scores",
        "metrics.selective",
        "metrics.stream",
        "objective.losses",
        "objective.objective",
        "randomness",
        "report.rows",
    ],
)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"macs_hf.{name}"))
    assert result.attempted > 0 and result.failed == 0
