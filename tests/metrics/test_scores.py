"""NLL, Brier score and rows of samples: closed forms, torch, and values of public implementations on real logits."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from macs_hf.metrics import (
    brier_score,
    expected_calibration_error,
    measure,
    negative_log_likelihood,
    reliability_bins,
    summarize,
)
from macs_hf.metrics.ece import confidences
from macs_hf.report.rows import SampleRows, sample_rows


# ---- Scores ----


def test_extreme_logits_do_not_overflow() -> None:
    assert negative_log_likelihood([[1000.0, -1000.0]], [1]) == 2000
    assert brier_score([[1000.0, -1000.0]], [1]) == 2
    assert negative_log_likelihood([[3.0]], [0]) == 0  # one class


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(1, 12))
def test_agree_with_torch(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = 5 * rng.standard_normal((50, classes)), rng.integers(0, classes, 50)
    z, y = torch.from_numpy(logits), torch.from_numpy(labels)
    nll = float(torch.nn.functional.cross_entropy(z, y))
    brier = float((z.softmax(1) - torch.nn.functional.one_hot(y, classes)).square().sum(1).mean())
    assert negative_log_likelihood(logits, labels) == pytest.approx(nll, abs=1e-12)
    assert brier_score(logits, labels) == pytest.approx(brier, abs=1e-12)
    probabilities = z.softmax(1)
    assert negative_log_likelihood(probabilities, y, probabilities=True) == pytest.approx(nll, abs=1e-9)
    assert brier_score(probabilities, y, probabilities=True) == pytest.approx(brier, abs=1e-12)


@pytest.mark.parametrize("function", [negative_log_likelihood, brier_score])
def test_errors(function) -> None:
    with pytest.raises(ValueError, match=r"predictions\[1\]"):
        function([[0.0, 0.0], [0.0, math.nan]], [0, 0])
    with pytest.raises(ValueError, match=r"predictions\[0\]"):
        function([[0.5, 0.4]], [0], probabilities=True)


# ---- Rows of samples ----


def random_batch(seed: int, n: int = 64, classes: int = 5, scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, classes, generator=generator), torch.randint(0, classes, (n,), generator=generator)


def test_more_classes_than_float32_can_number() -> None:
    with pytest.raises(ValueError, match="16777217 classes are too many"):
        sample_rows(torch.zeros(1, 1).expand(1, 2**24 + 1), torch.tensor([0]))


def test_probabilities_in_bfloat16_are_noticed() -> None:
    probabilities = torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]]).bfloat16()
    with pytest.warns(UserWarning, match="look like probabilities"):
        expected_calibration_error(probabilities, [0, 1, 1])
    with pytest.warns(UserWarning, match="look like probabilities"):
        SampleRows.from_logits(probabilities, torch.tensor([0, 1, 1]))


def test_rows_by_hand() -> None:
    logits = torch.tensor([[0.0, np.log(3)], [np.log(3), 0.0]])
    expected = [[0, 1, 0.75, np.log(4), 1.125, -np.log(3)], [0, 0, 0.75, np.log(4 / 3), 0.125, np.log(3)]]
    rows = sample_rows(logits, torch.tensor([0, 0]))
    assert rows.dtype == torch.float32
    np.testing.assert_allclose(rows, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_and_untouched_inputs(dtype: torch.dtype) -> None:
    logits, labels = random_batch(0)
    logits = logits.to(dtype).requires_grad_()
    kept = logits.detach().clone()
    rows = sample_rows(logits, labels)
    torch.testing.assert_close(rows, sample_rows(kept.double(), labels), rtol=1e-5, atol=1e-6)
    assert torch.equal(logits, kept) and not rows.requires_grad


def test_the_first_of_equal_logits_is_predicted() -> None:
    assert sample_rows(torch.zeros(1, 3), torch.tensor([2]))[0, 1] == 0


def test_a_confident_right_prediction() -> None:
    rows = SampleRows.from_logits(torch.tensor([[12.0, 0.0], [300.0, 0.0]]), torch.tensor([0, 0]))
    assert rows.brier[0] == pytest.approx(2 * np.exp(-24), rel=0.02)  # 1 - 2 p + p^2 would be lost in rounding
    assert (rows.confidence[1], rows.nll[1], rows.brier[1]) == (1, 0, 0)
    assert not np.signbit(rows.nll[1])


def test_nan_names_the_row() -> None:
    logits, labels = random_batch(0)
    logits[7, 2] = torch.nan
    with pytest.raises(ValueError, match=r"confidence of row 7 must be a finite number"):
        SampleRows.from_logits(logits, labels)


def test_labels_are_checked() -> None:
    for labels, message in (([0.0, 1.5, 1.0], "class ids"), ([0, 1, -100], "Label -100 of row 2")):
        with pytest.raises(ValueError, match=message):
            sample_rows(torch.zeros(3, 2), torch.tensor(labels))


def test_columns_are_checked() -> None:
    with pytest.raises(ValueError, match=r"\(n, 6\), got \(3, 5\)"):
        SampleRows.from_array(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="n > 0"):
        SampleRows.from_array(np.zeros((0, 6)))


# ---- Other implementations ----


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
