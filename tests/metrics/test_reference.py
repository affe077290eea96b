"""Agreement to 1e-6 with the values of several public implementations on the logits of a real model."""

import json
from pathlib import Path

import numpy as np
import pytest

from macs_hf.metrics import (
    brier_score,
    expected_calibration_error,
    measure,
    negative_log_likelihood,
    reliability_bins,
    summarize,
)
from macs_hf.metrics.ece import confidences
from macs_hf.report.rows import SampleRows


REFERENCE = json.loads((Path(__file__).parents[1] / "fixtures" / "calibration_reference.json").read_text())


@pytest.mark.parametrize("part", ["all_10000", "last_5000_before", "last_5000_after"])
def test_real_logits(real_logits: tuple[np.ndarray, np.ndarray], part: str) -> None:
    expected = REFERENCE[part]
    logits, labels = real_logits
    if part != "all_10000":
        logits, labels = logits[5000:], labels[5000:]
    if part == "last_5000_after":
        logits = (logits / REFERENCE["temperature_first_5000"]["value"]).astype(np.float32)
    rows = SampleRows.from_logits(logits, labels)
    ours = {
        "nll": [negative_log_likelihood(logits, labels), summarize(rows)["nll"]],
        "brier_sum": [brier_score(logits, labels), summarize(rows)["brier"]],
        "ece_15_equal_width": [expected_calibration_error(logits, labels), summarize(rows)["ece"]],
        "mce_15_equal_width": [expected_calibration_error(logits, labels, norm="max")],
        "ece_15_equal_mass": [expected_calibration_error(logits, labels, variant="equal_mass")],
        "classwise_ece_15_equal_width": [expected_calibration_error(logits, labels, variant="classwise")],
        "accuracy": [summarize(rows)["accuracy"]],
    }
    for name, values in ours.items():
        assert values == pytest.approx([expected[name]["value"]] * len(values), abs=1e-6), name
    bins = reliability_bins(*confidences(logits, labels))
    np.testing.assert_array_equal(bins.count, expected["bins_15_equal_width"]["count"])
    gaps = np.abs(bins.correct - bins.confidence) / np.maximum(bins.count, 1)
    np.testing.assert_allclose(gaps, expected["bins_15_equal_width"]["gap"], atol=1e-6)
    measured = measure(rows, n_resamples=200)
    assert measured.metrics["ece"].value == pytest.approx(expected["ece_15_equal_width"]["value"], abs=1e-6)


@pytest.mark.parametrize("case", ["dyadic_edges", "confidence_one", "decimal_edges"])
def test_edge_cases(case: str) -> None:
    data = REFERENCE["edge_cases"][case]
    predictions = [[p, 1 - p] for p in data["probabilities_of_class_0"]]
    ece = expected_calibration_error(predictions, data["labels"], probabilities=True, n_bins=data["bins"])
    assert ece == pytest.approx(data["ece"]["reference_right_closed"], abs=1e-9)
