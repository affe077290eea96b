"""The objective as data: the methods and their sets, and every value or combination that is refused."""

import math
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from transformers import TrainingArguments

from macs_hf.objective import METHODS, Objective, objective_of
from macs_hf.objective.objective import settings_of


@pytest.mark.parametrize("ask", [lambda: METHODS["recomended"], lambda: settings_of("recomended")])
def test_a_typo_in_a_method_names_the_one_that_was_meant(ask: Callable[[], Any]) -> None:
    with pytest.raises((KeyError, ValueError)) as caught:
        ask()
    assert "'recommended'?" in str(caught.value)
    assert METHODS.get("recomended") is None


def test_defaults_are_the_papers() -> None:
    stated = {"lambda_margin": 0.1, "margin": 1.0, "lambda_consistency": 0.5, "consistency_fraction": 1.0}
    stated |= {"perturbation": "noise+blur", "perturbation_space": "normalized", "noise_std": 0.1}
    stated |= {"blur_sigma_min": 0.1, "blur_sigma_max": 2.0, "jpeg_quality_min": 50, "jpeg_quality_max": 95}
    stated |= {"rotation_degrees": 5.0, "translation_pixels": 2.0, "mbls_margin": 10.0}
    assert vars(Objective(**METHODS["macs"])).items() >= stated.items()
    assert Objective() == Objective(**METHODS["macs"])


def test_constants_of_the_other_methods_are_those_that_the_pages_name() -> None:
    stated = {
        "label_smoothing": {"label_smoothing_factor": 0.1},
        "focal": {"focal_gamma": 2.0},
        "mixup": {"mixup_alpha": 0.2},
        "mbls": {"lambda_mbls": 0.1, "mbls_margin": 10.0},
        "recommended": {"lambda_margin": 0.0, "perturbation_space": "pixel", "consistency_fraction": 0.25},
    }
    for name, constants in stated.items():
        assert METHODS[name].items() >= constants.items()


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


NUMBERS = [field.name for field in fields(Objective) if field.type in ("float", float, "int", int)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 0.0) for name in ("margin", "mbls_margin", "consistency_fraction", "augment_fraction")),
        *((name, 1.1) for name in ("consistency_fraction", "augment_fraction")),
        *((name, 1.0) for name in ("perturbed_share", "label_smoothing_factor")),
        ("blur_sigma_min", 0.0),
        ("blur_sigma_min", 3.0),
        ("jpeg_quality_min", 96),
        ("jpeg_quality_max", 101),
        ("perturbation", "blur+noise"),
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
