"""Attacks by arguments of functions: each is refused in a sentence that says what was given."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from macs_hf import Objective, metrics
from macs_hf.calibration import (
    abstention_threshold,
    fit_temperature,
    fold_temperature,
    prediction_set_threshold,
    split_held_out,
)
from macs_hf.objective import (
    consistency_loss,
    focal_loss,
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

API: list[tuple[str, Callable[[], Any], str]] = [
    # Losses
    ("float labels", lambda: logit_margin(T, Y.float()), "type torch.float32 are neither class numbers"),
    (
        "labels in a column",
        lambda: margin_loss(T, Y[:, None]),
        r"shape \(300, 1\) do not fit logits of shape \(300, 3",
    ),
    ("labels to ignore", lambda: margin_loss(T, torch.full_like(Y, -100)), "Label -100 of row 0"),
    ("a negative margin", lambda: margin_loss(T, Y, margin=-1), "margin=-1 must be a finite number >= 0"),
    ("a margin of nan", lambda: margin_loss(T, Y, margin=float("nan")), "margin=nan must be a finite number"),
    ("an infinite gamma", lambda: focal_loss(T, Y, gamma=float("inf")), "gamma=inf must be a finite number >= 0"),
    ("one row for all", lambda: consistency_loss(T, T[:1]), r"one shape .*\[\(300, 3\), \(1, 3\)\]"),
    ("other rows", lambda: consistency_loss(T, T[:5]), r"one shape .*\[\(300, 3\), \(5, 3\)\]"),
    ("no views", lambda: jensen_shannon([]), r"Views must be logits of one shape \(batch, classes\), got \[\]"),
    ("views of other sizes", lambda: jensen_shannon([T, T[:4]]), "Views must be logits of one shape"),
    ("rows in place of views", lambda: jensen_shannon(T), r"got \[\(3,\), \(3,\), \(3,\)\]"),
    ("a dict of weights", lambda: objective_of({"margin": 2}), r"Write Objective\(\*\*weights\)"),
    ("no weights", lambda: objective_of(None), "None has no attributes"),
    ("bytes of images", lambda: perturb(IMAGES.byte(), NOISE), "type torch.uint8 must be floats of shape"),
    ("one image", lambda: perturb(IMAGES[0], NOISE), r"images of shape \(3, 8, 8\)"),
    ("arrays of NumPy", lambda: macs_loss(LOGITS, LABELS, LOGITS), "logits must be a tensor .* got ndarray"),
    ("labels of NumPy", lambda: macs_loss(T, LABELS, T), "labels must be a tensor, got ndarray"),
    ("whole logits", lambda: margin_loss(T.long(), Y), "floating-point numbers, got torch.int64"),
    ("whole logits of a margin", lambda: logit_margin(T.long(), Y), "floating-point numbers, got torch.int64"),
    ("no model", lambda: fold_temperature(None, 2.0), "must be a torch.nn.Module, got NoneType"),
    # Metrics
    ("complex", lambda: metrics.brier_score(LOGITS.astype(complex), LABELS), "must be real numbers, got complex128"),
    ("masked", lambda: metrics.brier_score(np.ma.masked_greater(LOGITS, 0), LABELS), "a masked array has values"),
    ("text", lambda: metrics.brier_score(LOGITS, LABELS.astype(str)), "references must be whole class ids"),
    ("twice right", lambda: metrics.calibration_error(HALVES, np.array([2, 0])), r"correct\[0\] must be True"),
    ("half right", lambda: metrics.smooth_calibration_error(HALVES, np.array([0, 0.3])), r"correct\[1\] must be True"),
    ("text for right", lambda: metrics.calibration_error(HALVES, np.array(["a", "b"])), r"correct\[0\] must be True"),
    ("-3 bins", lambda: metrics.reliability_bins(HALVES, np.array([True, False]), n_bins=-3), "n_bins"),
    ("bins in text", lambda: metrics.expected_calibration_error(LOGITS, LABELS, n_bins="15"), "n_bins"),
    ("no resamples", lambda: metrics.estimate_calibration_error(LOGITS, LABELS, n_resamples=0), "n_resamples"),
    ("95 for 0.95", lambda: metrics.estimate_calibration_error(LOGITS, LABELS, level=95), "level"),
    ("7 of 5", lambda: metrics.wilson(7, 5), "7"),
    ("of none", lambda: metrics.wilson(5, 0), "0"),
    ("other lengths", lambda: metrics.paired_difference(np.arange(5.0), np.arange(6.0)), "shape|length|rows"),
    # What is fitted on held-out data
    ("text for logits", lambda: fit_temperature("abc", "abc"), "expected an array of numbers"),
    ("nothing to fit", lambda: fit_temperature([], []), "not empty"),
    ("labels of -1", lambda: fit_temperature(LOGITS, LABELS - 1), "Label -1 of row 0"),
    ("accuracy in text", lambda: abstention_threshold(LOGITS, LABELS, accuracy="0.9"), "accuracy must lie between"),
    ("all covered", lambda: prediction_set_threshold(LOGITS, LABELS, coverage=1.0), "coverage must lie between"),
    ("-1 samples", lambda: split_held_out(-1), "samples=-1 must be at least 0"),
]


@pytest.mark.parametrize(("call", "sentence"), [row[1:] for row in API], ids=[row[0] for row in API])
def test_arguments(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()
