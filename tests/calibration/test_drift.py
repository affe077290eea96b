"""The temperature of a changed copy of a model against that of the model."""

import math

import numpy as np
import pytest
import torch

from macs_hf.calibration import fit_temperature
from macs_hf.calibration.drift import temperature_drift


def test_a_copy_with_scaled_logits_needs_exactly_that_scale(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = (part[:2000] for part in real_logits)
    drift = temperature_drift(logits, 1.25 * logits, labels)
    # Each image asks for the same change: nothing is left to chance.
    assert (drift.ratio, drift.low, drift.high) == pytest.approx((1.25, 1.25, 1.25), rel=1e-6)
    assert drift.is_beyond_chance and drift.reason is None and drift.num_samples == 2000


def test_the_same_logits_need_the_same_temperature(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = (part[:500] for part in real_logits)
    drift = temperature_drift(logits, logits, labels)
    assert (drift.ratio, drift.low, drift.high) == (1.0, 1.0, 1.0)
    assert not drift.is_beyond_chance


def test_the_interval_is_that_of_the_bootstrap(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = (torch.as_tensor(part[:2000]) for part in real_logits)
    noise = torch.Generator().manual_seed(0)
    copy = logits + torch.randn(logits.shape, generator=noise)
    drift = temperature_drift(logits, copy, labels)
    ratios = []
    for _ in range(100):
        drawn = torch.randint(len(labels), (len(labels),), generator=noise)
        ratios.append(fit_temperature(copy[drawn], labels[drawn]) / fit_temperature(logits[drawn], labels[drawn]))
    spread = math.log(drift.high / drift.low) / (2 * 1.96)
    assert spread == pytest.approx(np.std(np.log(ratios)), rel=0.25)
    # Far narrower than that of one temperature: both models see the same images.
    alone = np.std([math.log(fit_temperature(logits[i::20], labels[i::20])) for i in range(20)]) / math.sqrt(20)
    assert spread < alone / 2


def test_too_few_samples_give_a_reason() -> None:
    drift = temperature_drift(torch.zeros(20, 3), torch.ones(20, 3), [0] * 20)
    assert drift.ratio == 1.0 and not drift.is_beyond_chance
    assert "20 samples are fewer" in drift.reason


def test_different_samples_are_refused(real_logits: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = real_logits
    with pytest.raises(ValueError, match="labels of shape"):
        temperature_drift(logits[:300], logits[:200], labels[:300])


def test_only_the_ratio_matters_however_uncertain_the_temperatures_are(
    real_logits: tuple[np.ndarray, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    logits, labels = (part[:120] for part in real_logits)
    fit_temperature(logits, labels)
    assert "is uncertain" in caplog.text
    caplog.clear()
    assert temperature_drift(logits, logits, labels).reason is None
    assert not caplog.text
