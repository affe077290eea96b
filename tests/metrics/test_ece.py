"""Expected calibration error: closed forms, bin edges, properties, and other implementations."""

import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from macs_hf.metrics import (
    calibration_error,
    estimate_calibration_error,
    expected_calibration_error,
    reliability_bins,
    smooth_calibration_error,
)


def random_logits(seed: int, n: int = 300, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 3 * rng.standard_normal((n, classes)), rng.integers(0, classes, n)


seeds = st.integers(0, 2**32 - 1)


def test_norms_and_debiasing_in_closed_form() -> None:
    # Two bins: 8 samples at 0.5 with accuracy 0.75, 2 samples at 1.0 with accuracy 0.5.
    confidence, correct = np.repeat([0.5, 1.0], [8, 2]), np.array([1] * 6 + [0] * 2 + [1, 0])
    assert calibration_error(confidence, correct) == pytest.approx(0.8 * 0.25 + 0.2 * 0.5)
    assert calibration_error(confidence, correct, norm="l2") == pytest.approx(np.sqrt(0.8 * 0.0625 + 0.2 * 0.25))
    assert calibration_error(confidence, correct, norm="max") == pytest.approx(0.5)
    noise = 0.8 * 0.75 * 0.25 / 7 + 0.2 * 0.5 * 0.5 / 1
    expected = np.sqrt(0.8 * 0.0625 + 0.2 * 0.25 - noise)
    assert calibration_error(confidence, correct, norm="l2", debiased=True) == pytest.approx(expected)


def test_debiasing_removes_most_of_the_noise_and_keeps_a_large_gap() -> None:
    rng = np.random.default_rng(0)
    plain, debiased, shifted = [], [], []
    for _ in range(50):
        confidence = rng.uniform(0.5, 1, 1000)
        correct = rng.random(1000) < confidence
        plain.append(calibration_error(confidence, correct))
        debiased.append(calibration_error(confidence, correct, debiased=True))
        shifted.append(calibration_error(confidence, rng.random(1000) < confidence - 0.3, debiased=True))
    assert np.mean(debiased) < 0.6 * np.mean(plain)
    assert np.mean(shifted) == pytest.approx(0.3, abs=0.01)


def test_equal_mass_is_array_split_of_the_sorted_confidences() -> None:
    confidence, correct = np.array([0.9, 0.2, 0.6, 0.4, 0.8]), np.array([1, 0, 1, 0, 0])
    bins = reliability_bins(confidence, correct, 2, "equal_mass")
    np.testing.assert_array_equal(bins.count, [3, 2])
    np.testing.assert_allclose(bins.confidence, [1.2, 1.7])
    np.testing.assert_array_equal(bins.correct, [1, 1])
    np.testing.assert_array_equal([bins.lower, bins.upper], [[0.2, 0.8], [0.6, 0.9]])
    assert calibration_error(confidence, correct, n_bins=2, variant="equal_mass") == pytest.approx(0.9 / 5)


def brute_force_smooth(confidence: np.ndarray, residual: np.ndarray, bandwidth: float, points: int = 20_000) -> float:
    """The definition: images of the Gaussian at 2m + f and 2m - f, midpoint rule."""
    t = (np.arange(points) + 0.5) / points
    images = np.concatenate([2 * m + sign * confidence for m in range(-3, 4) for sign in (1, -1)])
    kernel = np.exp(-(((t[:, None] - images) / bandwidth) ** 2) / 2) / (bandwidth * np.sqrt(2 * np.pi))
    return float(np.abs(kernel @ np.tile(residual, 14) / len(confidence)).mean())


@pytest.mark.parametrize("pile", [0.0, 0.5])
def test_smooth_error_is_the_fixed_point_of_its_definition(pile: float) -> None:
    rng = np.random.default_rng(1)
    confidence = np.where(rng.random(40) < pile, 1.0, rng.beta(5, 1, 40))
    correct = rng.random(40) < confidence**3
    score = smooth_calibration_error(confidence, correct)
    assert brute_force_smooth(confidence, correct - confidence, score) == pytest.approx(score, abs=1e-6)


@settings(deadline=None, max_examples=25)
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_bounds_permutation_and_shift(seed: int, scale: float) -> None:
    logits, labels = random_logits(seed)
    logits *= scale
    order = np.random.default_rng(seed).permutation(len(labels))
    for variant in ("equal_width", "equal_mass", "classwise", "smooth"):
        ece = expected_calibration_error(logits, labels, variant=variant)
        assert 0 <= ece <= 1
        if variant != "equal_mass" or len(np.unique(logits.max(axis=1))) == len(logits):
            permuted = expected_calibration_error(logits[order], labels[order], variant=variant)
            assert permuted == pytest.approx(ece, abs=1e-9)
        assert expected_calibration_error(logits + 7.0, labels, variant=variant) == pytest.approx(ece, abs=1e-6)


def test_numpy_torch_lists_and_half_precision_agree() -> None:
    logits, labels = random_logits(3)
    half = logits.astype(np.float16)
    expected = expected_calibration_error(half.astype(np.float64), labels)
    tensor = torch.from_numpy(half).requires_grad_()
    for predictions in (half, half.astype(np.float32), half.tolist(), tensor):
        assert expected_calibration_error(predictions, torch.from_numpy(labels)) == expected
    brain = torch.from_numpy(logits).bfloat16()
    assert expected_calibration_error(brain, labels) == expected_calibration_error(brain.double(), labels)


def test_one_sample_one_class_and_empty_bins() -> None:
    assert expected_calibration_error([[3.0]], [0]) == 0
    assert expected_calibration_error([[0.25, 0.75]], [0], probabilities=True) == 0.75
    assert expected_calibration_error([[0.25, 0.75]], [1], probabilities=True, variant="equal_mass") == 0.25
    assert expected_calibration_error([[800.0, -800.0]], [0]) == 0
    assert expected_calibration_error([[0.0, -np.inf]], [1]) == 1  # a masked class is a probability of zero
    np.testing.assert_array_equal(reliability_bins(np.array([1.0]), np.array([True])).count, [0] * 14 + [1])


@pytest.mark.parametrize(
    ("predictions", "references", "options", "message"),
    [
        ([[0.1, 0.2], [float("nan"), 0.0]], [0, 1], {}, r"predictions\[1\].*nan"),
        (np.pad([[np.nan]], ((2345, 654), (6, 993))), np.zeros(3000, int), {}, r"predictions\[2345\]"),  # many chunks
        ([[0.1, 0.2]], [2], {}, "Label 2 of row 0 in references"),
        ([0.1, 0.2], [0, 1], {}, "predictions"),
        ([[0.1, 0.2]], [0], {"n_bins": 10**8}, "n_bins"),  # before it fills the memory
        ([[0.1, 0.2]], [0], {"norm": "max", "debiased": True}, "debiased"),
        ([[0.1, 0.2]], [0], {"variant": "smooth", "norm": "l2"}, "smooth"),
    ],
)
def test_errors_name_the_value(predictions: list, references: list, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(predictions, references, **options)


@pytest.mark.parametrize("variant", ["equal_width", "classwise"])
@pytest.mark.parametrize("function", [expected_calibration_error, estimate_calibration_error])
def test_probabilities_read_as_logits_get_one_warning(function: Callable, variant: str) -> None:
    probabilities = np.random.default_rng(0).dirichlet(np.ones(4), 3000)
    labels = probabilities.argmax(axis=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(probabilities, labels, variant=variant)
        assert len(caught) == 1 and "probabilities=True" in str(caught[0].message)
        assert caught[0].filename == __file__
        function(probabilities, labels, variant=variant, probabilities=True)
        probabilities[2999] *= 1.01  # the last row alone shows that these are logits
        function(probabilities, labels, variant=variant)
        function(np.ones((3, 1)), [0, 0, 0])  # of one class, both readings are the same
        assert len(caught) == 1


def test_memory_does_not_grow_with_the_number_of_samples() -> None:
    peaks = []
    for n in (2000, 8000):
        logits, labels = np.zeros((n, 500), dtype=np.float32), np.zeros(n, dtype=np.int64)
        tracemalloc.start()
        expected_calibration_error(logits, labels, variant="classwise")
        expected_calibration_error(logits, labels)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2**20  # a float64 copy of the second would take 32 MB
