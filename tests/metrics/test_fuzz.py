"""Metrics of anything: a number within its bounds or a `ValueError` or `TypeError`, the same however it is divided."""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from macs_hf.metrics import (
    SampleRows,
    brier_score,
    calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
    reliability_bins,
    smooth_calibration_error,
    summarize,
    wilson,
)


SHAPES = st.tuples(st.integers(1, 30), st.integers(1, 6))
# Beyond these float32 rounds one logit's difference to another away.
LOGITS = st.floats(-1e4, 1e4, width=32)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)
SCORES = {expected_calibration_error: (0, 1), brier_score: (0, 2), negative_log_likelihood: (0, np.inf)}


@st.composite
def predictions(draw: st.DrawFn, elements: st.SearchStrategy = LOGITS) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(SHAPES)
    logits = draw(arrays.arrays(np.float32, shape, elements=elements))
    labels = draw(arrays.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))
    return logits, labels


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # logits that look like probabilities
        yield


@pytest.mark.parametrize("score", SCORES)
@given(predictions())
def test_bounds(score: Callable, given_: tuple[np.ndarray, np.ndarray]) -> None:
    low, high = SCORES[score]
    assert low <= score(*given_) <= high


@pytest.mark.parametrize("score", SCORES)
@given(ANYTHING, ANYTHING)
def test_anything_is_refused_or_scored(score: Callable, values: Any, labels: Any) -> None:
    with contextlib.suppress(ValueError, TypeError):
        assert np.isfinite(score(values, labels)) or score is negative_log_likelihood


@pytest.mark.parametrize("score", SCORES)
@given(predictions(st.floats(width=32)), st.booleans())
def test_numbers_that_are_none(score: Callable, given_: tuple[np.ndarray, np.ndarray], probabilities: bool) -> None:
    low, high = SCORES[score]
    with contextlib.suppress(ValueError):
        assert low <= score(*given_, probabilities=probabilities) <= high


@given(arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats()), st.lists(st.booleans(), max_size=20))
def test_confidences_of_any_value(confidence: np.ndarray, correct: list[bool]) -> None:
    for score in (calibration_error, smooth_calibration_error, lambda *args: reliability_bins(*args).count.sum()):
        try:
            value = score(confidence, np.array(correct))
        except (ValueError, TypeError):
            continue
        assert np.isfinite(value) and value >= 0


@given(
    arrays.arrays(np.float64, 20, elements=st.floats(0, 1)),
    arrays.arrays(bool, 20),
    st.integers(-3, 40),
    st.sampled_from(["equal_width", "equal_mass", "other"]),
)
def test_any_bins(confidence: np.ndarray, correct: np.ndarray, n_bins: int, variant: str) -> None:
    try:
        error = calibration_error(confidence, correct, n_bins=n_bins, variant=variant)
    except ValueError:
        assert n_bins < 1 or variant == "other"
        return
    assert 0 <= error <= 1 + 1e-12
    # No binning finds more than the bins of single samples do, nor less than one bin for all.
    assert abs(confidence.mean() - correct.mean()) - 1e-9 <= error <= np.abs(confidence - correct).mean() + 1e-9


@given(predictions())
def test_rows_of_a_batch_are_those_of_its_samples(given_: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = map(torch.from_numpy, given_)
    assume(logits.shape[1] > 1)
    batch = SampleRows.from_logits(logits, labels)
    single = [SampleRows.from_logits(logits[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]
    for name in ("label", "prediction", "confidence", "nll", "brier", "margin"):
        column = np.concatenate([getattr(rows, name) for rows in single])
        np.testing.assert_allclose(getattr(batch, name), column, rtol=1e-5, atol=1e-6)
    summary = summarize(batch)
    assert summary["nll"] == pytest.approx(negative_log_likelihood(*given_), rel=1e-4, abs=1e-5)
    assert summary["brier"] == pytest.approx(brier_score(*given_), rel=1e-4, abs=1e-5)


@given(st.integers(-2, 50), st.integers(-2, 50), st.floats())
def test_wilson(right: int, n: int, level: float) -> None:
    try:
        low, high = wilson(right, n, level)
    except ValueError:
        assert not (0 <= right <= n and n > 0 and 0 < level < 1)
        return
    assert 0 <= low <= right / n + 1e-12 and right / n - 1e-12 <= high <= 1
