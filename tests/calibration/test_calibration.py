"""The fitted temperature against closed forms, the conditions of the optimum, and when it must stay 1."""

import doctest
import logging
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import macs_hf.calibration.temperature
from macs_hf.calibration.temperature import TemperatureFit, fit_temperature, fit_temperature_report


def replicated(probabilities: list[float], temperature: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` copies of one logit vector, its labels in the proportions of softmax(logits / temperature)."""
    labels = np.repeat(np.arange(len(probabilities)), [round(p * count) for p in probabilities])
    return np.tile(temperature * np.log(probabilities), (len(labels), 1)), labels


@pytest.mark.parametrize("temperature", [0.051, 0.1, 0.5, 0.99, 1.0, 2.386, 7.5, 19.9])
@pytest.mark.parametrize("probabilities", [[0.5, 0.25, 0.125, 0.125], [0.9, 0.1]])
def test_the_optimum_is_found_where_it_is_known(probabilities: list[float], temperature: float) -> None:
    logits, labels = replicated(probabilities, temperature, 200)
    fit = fit_temperature_report(logits, labels)
    assert fit.temperature == pytest.approx(temperature, rel=1e-8)
    assert fit.reason is None
    assert fit.num_samples == 200
    # At the optimum the mean loss is the entropy of the labels.
    assert fit.nll_after == pytest.approx(-sum(p * math.log(p) for p in probabilities), rel=1e-12)


def test_several_groups_of_logits_share_one_optimum() -> None:
    groups = [replicated(p, 3.2, 400) for p in ([0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.25, 0.25, 0.5])]
    logits, labels = (np.concatenate(parts) for parts in zip(*groups, strict=True))
    assert fit_temperature(logits, labels) == pytest.approx(3.2, rel=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(0.1, 40),
    temperature=st.floats(0.1, 10),
    classes=st.integers(2, 12),
    shift=st.floats(-1e3, 1e3),
)
def test_no_other_temperature_is_better(
    seed: int, scale: float, temperature: float, classes: int, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(150, classes))
    labels = (logits / temperature + rng.gumbel(size=logits.shape)).argmax(1)
    fit = fit_temperature_report(logits, labels)

    def nll(value: float) -> float:
        return torch.nn.functional.cross_entropy(torch.tensor(logits / value), torch.tensor(labels)).item()

    assert fit.nll_before == pytest.approx(nll(1.0), rel=1e-9, abs=1e-12)
    assert fit.nll_after == pytest.approx(nll(fit.temperature), rel=1e-9, abs=1e-12)
    if fit.reason is None:
        assert 0.05 < fit.temperature < 20
        for factor in (0.5, 0.99, 0.9999, 1.0001, 1.01, 2.0):
            assert nll(fit.temperature) <= nll(fit.temperature * factor) + 1e-13
        # Shifting every logit of a sample changes nothing; scaling all logits scales the temperature.
        moved = logits + shift * rng.normal(size=(150, 1))
        assert fit_temperature(moved, labels) == pytest.approx(fit.temperature, rel=1e-6)
        if 0.05 < 1.7 * fit.temperature < 20:
            assert fit_temperature(1.7 * logits, labels) == pytest.approx(1.7 * fit.temperature, rel=1e-7)
    else:
        assert fit.temperature == 1.0
        assert fit.nll_after == fit.nll_before


def test_few_evaluations_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    nll = macs_hf.calibration.temperature._nll
    monkeypatch.setattr(macs_hf.calibration.temperature, "_nll", lambda *args: calls.append(args) or nll(*args))
    for temperature in (0.06, 0.3, 1.0, 4.0, 18.0):
        logits, labels = replicated([0.6, 0.3, 0.1], temperature, 1000)
        calls.clear()
        assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=1e-8)
        assert len(calls) <= 20


def test_tensors_arrays_lists_and_low_precision_agree() -> None:
    logits, labels = replicated([0.5, 0.25, 0.25], 2.0, 200)
    reference = fit_temperature(logits, labels)
    tensor = torch.tensor(logits, requires_grad=True)
    assert fit_temperature(tensor, torch.tensor(labels)) == reference
    assert fit_temperature(logits.tolist(), labels.tolist()) == reference
    assert fit_temperature(logits.astype(np.float32), labels.astype(np.uint8)) == pytest.approx(reference, rel=1e-6)
    assert fit_temperature(torch.tensor(logits, dtype=torch.bfloat16), labels) == pytest.approx(reference, rel=1e-2)


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = replicated([0.6, 0.3, 0.1], 1.5, 1000)
    whole = fit_temperature_report(logits, labels)
    monkeypatch.setattr(macs_hf.calibration.temperature, "_VALUES_PER_CHUNK", 7)
    assert fit_temperature_report(logits, labels).temperature == pytest.approx(whole.temperature, rel=1e-12)


@pytest.mark.parametrize(
    ("logits", "labels", "reason"),
    [
        ([[1.0, 0.0]] * 99, [0] * 66 + [1] * 33, "99 samples are fewer than the 100"),
        ([[1.0, 0.0]] * 200, [0] * 200, "not above the lower bound 0.05"),  # always right: T would go to 0
        ([[1.0, 1.0]] * 200, [0, 1] * 100, "not above the lower bound 0.05"),  # T has no effect
        ([[1.0]] * 200, [0] * 200, "not above the lower bound 0.05"),  # one class
        ([[1.0, 0.0]] * 200, [1] * 150 + [0] * 50, "not below the upper bound 20.0"),  # worse than a coin
        (*replicated([0.6, 0.4], 20.5, 200), "not below the upper bound 20.0"),
        (*replicated([0.6, 0.4], 0.045, 200), "not above the lower bound 0.05"),
    ],
)
def test_the_temperature_stays_one_and_says_why(logits, labels, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="macs_hf.calibration"):
        fit = fit_temperature_report(logits, labels)
    assert isinstance(fit, TemperatureFit)
    assert fit.temperature == 1.0
    assert reason in fit.reason
    assert fit.nll_after == fit.nll_before
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        ([[1.0, 0.0]] * 3, [0, 1], ValueError, r"\(3, 2\) and \(2,\)"),
        ([1.0, 0.0], [0, 1], ValueError, r"\(2,\) and \(2,\)"),
        (np.zeros((0, 3)), np.zeros(0, dtype=int), ValueError, "not empty"),
        ([[1.0, 0.0], [math.nan, 0.0]], [0, 1], ValueError, "row 1 .*not finite"),
        ([[math.inf, 0.0], [1.0, 0.0]], [0, 1], ValueError, "row 0 .*not finite"),
        ([[1.0, 0.0]] * 2, [0, 2], ValueError, "label of row 1 is 2"),
        ([[1.0, 0.0]] * 2, [-100, 0], ValueError, "label of row 0 is -100"),
        ([[1.0, 0.0]] * 2, [0.0, 1.0], TypeError, "integer class indices"),
        ([[1.0, 0.0]] * 2, [True, False], TypeError, "integer class indices"),
        ([[1.0, 0.0]] * 2, [[0.5, 0.5]] * 2, ValueError, r"\(2, 2\) and \(2, 2\)"),
    ],
)
def test_wrong_inputs_are_refused(logits, labels, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fit_temperature(logits, labels)


def test_the_example_of_the_documentation() -> None:
    outcome = doctest.testmod(macs_hf.calibration.temperature)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_real_logits(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = real_logits
    fit = fit_temperature_report(logits[:5000], labels[:5000])
    assert fit.temperature == pytest.approx(2.385894515847462, rel=1e-8)
    assert fit.nll_before == pytest.approx(0.4003470984170002, rel=1e-9)
    assert fit.nll_after == pytest.approx(0.2602591873124391, rel=1e-9)
