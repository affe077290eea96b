"""The objective as data: the methods and their sets, and every value or combination that is refused."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from transformers import TrainingArguments

from macs_hf.objective import METHODS, Objective, objective_of
from macs_hf.objective.objective import settings_of


def test_methods_by_name() -> None:
    """What each method changes of the paper's objective."""
    off = {"lambda_margin": 0.0, "lambda_consistency": 0.0}
    expected = {
        "ce": off,
        "label_smoothing": {**off, "label_smoothing_factor": 0.1},
        "focal": {**off, "focal_gamma": 2.0},
        "mixup": {**off, "mixup_alpha": 0.2},
        "augmix": {**off, "lambda_jsd": 12.0},
        "mbls": {**off, "lambda_mbls": 0.1},
        "perturb_augment": {**off, "perturb_as_augmentation": True},
        "two_view_ce": {**off, "two_view_cross_entropy": True},
        "margin_only": {"lambda_consistency": 0.0},
        "consistency_only": {"lambda_margin": 0.0},
        "macs": {},
        "macs_pixel": {"perturbation_space": "pixel"},
        "macs_augmix": {"lambda_jsd": 12.0},
        "recommended": {"lambda_margin": 0.0, "perturbation_space": "pixel", "consistency_fraction": 0.25},
    }
    assert {name: Objective(**values) for name, values in expected.items()} == {
        name: Objective(**values) for name, values in METHODS.items()
    }


@pytest.mark.parametrize("ask", [lambda: METHODS["recomended"], lambda: settings_of("recomended")])
def test_a_typo_in_a_method_names_the_one_that_was_meant(ask: Callable[[], Any]) -> None:
    with pytest.raises((KeyError, ValueError)) as caught:
        ask()
    assert "'recommended'?" in str(caught.value)
    assert METHODS.get("recomended") is None


def test_defaults_are_the_papers() -> None:
    assert vars(Objective(**METHODS["macs"])) == {
        "lambda_margin": 0.1,
        "margin": 1.0,
        "lambda_consistency": 0.5,
        "consistency_fraction": 1.0,
        "separate_views": False,
        "perturbation": "noise+blur",
        "perturbation_space": "normalized",
        "noise_std": 0.1,
        "blur_sigma_min": 0.1,
        "blur_sigma_max": 2.0,
        "jpeg_quality_min": 50,
        "jpeg_quality_max": 95,
        "rotation_degrees": 5.0,
        "translation_pixels": 2.0,
        "two_view_cross_entropy": False,
        "perturbed_share": 0.5,
        "perturb_as_augmentation": False,
        "augment_fraction": 1.0,
        "class_weights": None,
        "focal_gamma": 0.0,
        "label_smoothing_factor": 0.0,
        "mixup_alpha": 0.0,
        "lambda_jsd": 0.0,
        "lambda_mbls": 0.0,
        "mbls_margin": 10.0,
    }


def test_pixel_statistics_are_needed_only_to_leave_the_input_space() -> None:
    pixel = {"perturbation_space": "pixel"}
    for settings in (pixel, {"perturbation": "jpeg"}, METHODS["perturb_augment"] | {"perturbation": "jpeg"}):
        assert Objective(**settings).needs_pixel_stats
    for settings in ({}, pixel | {"perturbation": "geometric"}, {"perturbation": "jpeg", "lambda_consistency": 0.0}):
        assert not Objective(**settings).needs_pixel_stats


def test_plain_training_arguments_mean_the_default_method(tmp_path: object) -> None:
    plain = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    assert objective_of(plain) == Objective(**METHODS["recommended"])
    smoothed = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, label_smoothing_factor=0.1)
    assert objective_of(smoothed) == Objective(**METHODS["recommended"], label_smoothing_factor=0.1)


@pytest.mark.parametrize(
    "weights", ["even", "1,a", [], (0.0, 0.0), (1.0, -1.0), (1.0, math.nan), (1.0, math.inf), 3.0]
)
def test_class_weights_that_are_none_are_refused(weights: Any) -> None:
    with pytest.raises(ValueError, match=r"^class_weights="):
        Objective(class_weights=weights)


NUMBERS = (
    *("lambda_margin", "lambda_consistency", "lambda_jsd", "lambda_mbls", "focal_gamma", "mixup_alpha", "margin"),
    *("mbls_margin", "noise_std", "rotation_degrees", "translation_pixels", "consistency_fraction"),
    *("label_smoothing_factor", "perturbed_share", "blur_sigma_min", "jpeg_quality_min"),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("margin", 0.0),
        ("mbls_margin", 0.0),
        ("consistency_fraction", 0.0),
        ("consistency_fraction", 1.1),
        ("augment_fraction", 0.0),
        ("augment_fraction", 1.1),
        ("perturbed_share", 1.0),
        ("label_smoothing_factor", 1.0),
        ("blur_sigma_min", 0.0),
        ("blur_sigma_min", 3.0),
        ("blur_sigma_max", math.inf),
        ("jpeg_quality_min", 0),
        ("jpeg_quality_min", 96),
        ("jpeg_quality_max", 101),
        ("perturbation", "blur+noise"),
        ("perturbation", None),
        ("perturbation_space", "lab"),
        ("lambda_margin", "1e-1"),  # text, as YAML reads it
        *((name, value) for name in NUMBERS for value in (-1.0, math.nan, math.inf)),
    ],
)
def test_values_at_and_beyond_their_bounds_are_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(f"{name}={value!r}")):
        Objective(**{name: value})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"mixup_alpha": 0.2}, ("mixup_alpha=0.2", "lambda_margin=0.1")),
        ({**METHODS["mixup"], "lambda_jsd": 12.0}, ("mixup_alpha=0.2", "lambda_jsd=12.0")),
        ({**METHODS["mixup"], "focal_gamma": 2.0}, ("focal_gamma=2.0", "mixup_alpha=0.2")),
        ({"focal_gamma": 2.0, "label_smoothing_factor": 0.1}, ("focal_gamma=2.0", "label_smoothing_factor=0.1")),
        ({"perturb_as_augmentation": True}, ("perturb_as_augmentation=True", "lambda_consistency=0.5")),
    ],
)
def test_combinations_without_meaning_are_refused(settings: dict[str, Any], named: tuple[str, str]) -> None:
    with pytest.raises(ValueError) as caught:
        Objective(**settings)
    assert all(each in str(caught.value) for each in named)
