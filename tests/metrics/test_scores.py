"""NLL and Brier score: closed forms, agreement with torch, inputs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from macs_hf.metrics import brier_score, negative_log_likelihood


def test_uniform_guess() -> None:
    logits, labels = np.zeros((6, 4)), [0, 1, 2, 3, 0, 1]
    assert negative_log_likelihood(logits, labels) == pytest.approx(math.log(4))
    assert brier_score(logits, labels) == pytest.approx(1 - 1 / 4)


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
def test_probabilities_read_as_logits_get_a_warning(function) -> None:
    with pytest.warns(UserWarning, match="probabilities=True") as caught:
        function(torch.tensor([[0.25, 0.75], [1.0, 0.0]]), [1, 0])
    assert len(caught) == 1


@pytest.mark.parametrize("function", [negative_log_likelihood, brier_score])
def test_errors_and_untouched_inputs(function) -> None:
    with pytest.raises(ValueError, match=r"predictions\[1\]"):
        function([[0.0, 0.0], [0.0, math.nan]], [0, 0])
    with pytest.raises(ValueError, match=r"predictions\[0\]"):
        function([[0.5, 0.4]], [0], probabilities=True)
    probabilities = np.array([[0.5, 0.5]])
    function(probabilities, [0], probabilities=True)
    np.testing.assert_array_equal(probabilities, [[0.5, 0.5]])
