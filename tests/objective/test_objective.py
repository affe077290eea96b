"""The objective as data: the methods and their sets, and every value or combination that is refused."""

import doctest
import math
from typing import Any

import pytest
from transformers import TrainingArguments

from macs_hf.objective import METHODS, Objective, objective_of
from macs_hf.objective import objective as objective_module


def test_methods_by_name() -> None:
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
    assert expected == METHODS


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
        "focal_gamma": 0.0,
        "label_smoothing_factor": 0.0,
        "mixup_alpha": 0.0,
        "lambda_jsd": 0.0,
        "lambda_mbls": 0.0,
        "mbls_margin": 10.0,
    }


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_valid_and_can_be_overridden(method: str) -> None:
    assert Objective(**METHODS[method] | {"margin": 3.0}).margin == 3.0


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "name",
    ["lambda_margin", "lambda_consistency", "lambda_jsd", "lambda_mbls", "focal_gamma", "mixup_alpha", "margin",
     "mbls_margin", "noise_std", "rotation_degrees", "translation_pixels", "consistency_fraction",
     "label_smoothing_factor", "perturbed_share", "blur_sigma_min", "jpeg_quality_min"],
)  # fmt: skip
def test_negative_and_infinite_values_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name}={value} must"):
        Objective(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("margin", 0.0, "> 0"),
        ("mbls_margin", 0.0, "> 0"),
        ("consistency_fraction", 0.0, r"\(0, 1\]"),
        ("consistency_fraction", 1.1, r"\(0, 1\]"),
        ("perturbed_share", 1.0, r"\(0, 1\)"),
        ("label_smoothing_factor", 1.0, r"\[0, 1\)"),
        ("blur_sigma_min", 0.0, "blur_sigma_max=2.0"),
        ("blur_sigma_min", 3.0, "blur_sigma_max=2.0"),
        ("blur_sigma_max", math.inf, "blur_sigma_max=inf"),
        ("jpeg_quality_min", 0, "jpeg_quality_max=95"),
        ("jpeg_quality_min", 96, "jpeg_quality_max=95"),
        ("jpeg_quality_max", 101, "jpeg_quality_max=101 <= 100"),
        ("perturbation", "blur+noise", "perturbation='blur.noise' must be one of .*'noise.blur'"),
        ("perturbation", None, "perturbation=None must be one of"),
        ("perturbation_space", "lab", "perturbation_space='lab' must be one of .*'pixel'"),
    ],
)
def test_values_at_and_beyond_their_bounds_are_refused(name: str, value: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        Objective(**{name: value})
    assert str(value) in str(caught.value)


def test_text_in_place_of_a_number_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^lambda_margin='1e-1' must be a number"):
        Objective(lambda_margin="1e-1")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mixup_alpha": 0.2}, r"mixup_alpha=0.2 with lambda_margin=0.1.*no single label.*Set lambda_margin=0"),
        ({**METHODS["mixup"], "lambda_jsd": 12.0}, r"mixup_alpha=0.2 with lambda_jsd=12.0.*Set one of them to 0"),
        ({**METHODS["mixup"], "focal_gamma": 2.0}, r"focal_gamma=2.0 with mixup_alpha=0.2.*Set focal_gamma=0"),
        ({"focal_gamma": 2.0, "label_smoothing_factor": 0.1}, r"focal_gamma=2.0 .*label_smoothing_factor=0.1"),
        (
            {"perturb_as_augmentation": True},
            r"perturb_as_augmentation=True with lambda_consistency=0.5.*no clean view",
        ),
    ],
)
def test_combinations_without_meaning_are_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Objective(**settings)


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, False),
        ({"perturbation_space": "pixel"}, True),
        ({"perturbation_space": "pixel", "perturbation": "blur"}, True),
        ({"perturbation_space": "pixel", "perturbation": "geometric"}, False),
        ({"perturbation": "jpeg"}, True),
        ({"perturbation": "jpeg", "lambda_consistency": 0.0}, False),
        ({"perturbation": "jpeg", **METHODS["perturb_augment"]}, True),
    ],
)
def test_pixel_statistics_are_needed_only_to_leave_the_input_space(settings: dict[str, Any], needed: bool) -> None:
    assert Objective(**settings).needs_pixel_stats == needed


def test_plain_training_arguments_mean_the_papers_objective(tmp_path: object) -> None:
    plain = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    assert objective_of(plain) == Objective()
    smoothed = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, label_smoothing_factor=0.1)
    assert objective_of(smoothed) == Objective(label_smoothing_factor=0.1)


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(objective_module).failed == 0
