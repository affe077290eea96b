"""Attacks by arguments of functions: each is refused as a wrong value or type."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from macs_hf import Objective, calibration, metrics
from macs_hf.objective import (
    consistency_loss,
    jensen_shannon,
    logit_margin,
    macs_loss,
    margin_loss,
    objective_of,
    perturb,
)


LOGITS = np.random.default_rng(0).normal(size=(300, 3))
LABELS = np.arange(300) % 3
T, Y = torch.tensor(LOGITS, dtype=torch.float32), torch.tensor(LABELS)
HALVES = np.array([0.5, 0.6])
IMAGES = torch.rand(2, 3, 8, 8)
NOISE = Objective(noise_std=0.1)

# By the word that the sentence has to hold.
API: list[tuple[str, Callable[[], Any]]] = [
    # Losses
    ("float32", lambda: logit_margin(T, Y.float())),
    ("shape", lambda: margin_loss(T, Y[:, None])),
    ("Label -100", lambda: margin_loss(T, torch.full_like(Y, -100))),
    ("shape", lambda: consistency_loss(T, T[:1])),
    ("shape", lambda: jensen_shannon([])),
    ("shape", lambda: jensen_shannon(T)),
    ("Objective", lambda: objective_of({"margin": 2})),
    ("None", lambda: objective_of(None)),
    ("uint8", lambda: perturb(IMAGES.byte(), NOISE)),
    ("shape", lambda: perturb(IMAGES[0], NOISE)),
    ("ndarray", lambda: macs_loss(LOGITS, LABELS, LOGITS)),
    ("int64", lambda: logit_margin(T.long(), Y)),
    # Metrics
    ("complex", lambda: metrics.brier_score(LOGITS.astype(complex), LABELS)),
    ("masked", lambda: metrics.brier_score(np.ma.masked_greater(LOGITS, 0), LABELS)),
    ("references", lambda: metrics.brier_score(LOGITS, LABELS.astype(str))),
    ("correct", lambda: metrics.calibration_error(HALVES, np.array([2, 0]))),
    ("correct", lambda: metrics.smooth_calibration_error(HALVES, np.array([0, 0.3]))),
    ("n_bins", lambda: metrics.reliability_bins(HALVES, np.array([True, False]), n_bins=-3)),
    ("n_bins", lambda: metrics.expected_calibration_error(LOGITS, LABELS, n_bins="15")),
    ("n_resamples", lambda: metrics.estimate_calibration_error(LOGITS, LABELS, n_resamples=0)),
    ("level", lambda: metrics.estimate_calibration_error(LOGITS, LABELS, level=95)),
    ("7", lambda: metrics.wilson(7, 5)),
    ("shape", lambda: metrics.paired_difference(np.arange(5.0), np.arange(6.0))),
    # What is fitted on held-out data
    ("NoneType", lambda: calibration.fold_temperature(None, 2.0)),
    ("numbers", lambda: calibration.fit_temperature("abc", "abc")),
    ("empty", lambda: calibration.fit_temperature([], [])),
    ("Label -1", lambda: calibration.fit_temperature(LOGITS, LABELS - 1)),
    ("labels", lambda: calibration.calibrate_logits(LOGITS, LABELS[:100])),
    ("accuracy", lambda: calibration.abstention_threshold(LOGITS, LABELS, accuracy="0.9")),
    ("coverage", lambda: calibration.prediction_set_threshold(LOGITS, LABELS, coverage=1.0)),
]


@pytest.mark.parametrize(("named", "call"), API)
def test_arguments(named: str, call: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        call()
