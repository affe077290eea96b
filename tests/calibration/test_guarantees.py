"""All guarantees in one call, in the model's config, and what plain transformers does with them."""

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from tiny import build, overconfident
from transformers import AutoModelForImageClassification, ViTImageProcessor

from macs_hf.calibration import (
    abstention_threshold,
    calibrate_logits,
    fit_temperature,
    fold_temperature,
    make_guarantees,
    measure_guarantees,
    prediction_set_threshold,
    prediction_sets,
    split_held_out,
    store_guarantees,
    stored_abstention_threshold,
)
from macs_hf.calibration.guarantees import guaranteed_levels
from macs_hf.report.report import Guarantees


ROOT = Path(__file__).parents[2]
TEMPERATURE = 2.0


@pytest.fixture(scope="module")
def guarantees() -> Guarantees:
    made = make_guarantees(*overconfident(600, 1), TEMPERATURE, num_temperature=600, exact=False)
    return measure_guarantees(made, *overconfident(1000, 2))


def test_sets_are_those_of_the_single_functions(guarantees: Guarantees) -> None:
    (held_out, labels), (test, test_labels) = overconfident(600, 1), overconfident(1000, 2)
    levels = [(method, coverage) for method in ("lac", "raps") for coverage in (0.8, 0.9, 0.95, 0.99)]
    assert [(p.method, p.coverage) for p in guarantees.prediction_sets] == levels
    assert guarantees.class_counts == tuple(np.bincount(test_labels).tolist())
    for guarantee in guarantees.prediction_sets:
        threshold = prediction_set_threshold(held_out / TEMPERATURE, labels, guarantee.coverage, guarantee.method)
        assert guarantee.threshold == threshold and guarantee.num_samples == 600
        sets = prediction_sets(test / TEMPERATURE, threshold, guarantee.method)
        covered = sets[torch.arange(1000), test_labels]
        assert guarantee.test_coverage.value == pytest.approx(covered.double().mean().item(), abs=1e-12)
        assert guarantee.test_coverage.n == 1000
        wilson = stats.binomtest(int(covered.sum()), 1000).proportion_ci(method="wilson")
        assert (guarantee.test_coverage.low, guarantee.test_coverage.high) == pytest.approx(tuple(wilson), abs=1e-12)
        assert guarantee.mean_size == pytest.approx(sets.sum(1).double().mean().item(), abs=1e-12)
        assert guarantee.class_covered[2] == int(covered[test_labels == 2].sum())


def test_one_part_fits_the_temperature_and_the_other_makes_the_guarantees() -> None:
    logits, labels = overconfident(500, 5)
    fitting, others = split_held_out(500)
    fit, made = calibrate_logits(logits, labels, exact=False)
    assert fit.value == fit_temperature(logits[fitting], labels[fitting])
    assert made == make_guarantees(logits[others], labels[others], fit.value, num_temperature=250, exact=False)
    assert (made.num_test, made.prediction_sets[0].test_coverage, made.abstentions[0].test_answered) == (0, None, None)


def test_abstention_is_that_of_the_single_function(guarantees: Guarantees) -> None:
    (held_out, labels), (test, test_labels) = overconfident(600, 1), overconfident(1000, 2)
    confidence, prediction = (held_out.double() / TEMPERATURE).softmax(1).max(1)
    sure, answer = (test.double() / TEMPERATURE).softmax(1).max(1)
    assert [guarantee.accuracy for guarantee in guarantees.abstentions] == [0.9, 0.95, 0.99]
    for guarantee in guarantees.abstentions:
        assert guarantee.threshold == abstention_threshold(confidence, prediction == labels, guarantee.accuracy)
        if guarantee.threshold is None:
            continue
        answered = sure >= guarantee.threshold
        assert guarantee.test_answered.value == pytest.approx(answered.double().mean().item())
        right = (answer == test_labels)[answered]
        assert guarantee.test_accuracy.value == pytest.approx(right.double().mean().item())
        assert guarantee.test_accuracy.n == len(right)
    assert guarantees.abstentions[0].threshold < guarantees.abstentions[1].threshold


def test_what_cannot_be_guaranteed_has_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    logits, labels = overconfident(399, 0)
    _, others = split_held_out(399)
    nothing = make_guarantees(logits[others], labels[others], 2.0, num_temperature=399)
    assert nothing.prediction_sets == () and nothing.abstentions == () and "399" in nothing.reason
    made = measure_guarantees(make_guarantees(*overconfident(200, 0), 2.0), *overconfident(50, 1))
    assert "200" in made.abstentions[-1].reason and made.abstentions[-1].test_answered is None
    logits, labels = overconfident(600, 0, classes=6)
    with caplog.at_level(logging.WARNING, logger="macs_hf.calibration"):
        make_guarantees(logits[labels != 4], labels[labels != 4])
    assert "class 4" in caplog.text


@pytest.mark.parametrize("name", ["vit", "timm"])
def test_a_few_lines_of_plain_transformers_make_the_sets(guarantees: Guarantees, name: str, tmp_path: Path) -> None:
    model = build(name)
    images = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.eval()
        fold_temperature(model, (model(images).logits.std() / 3).item(), images)  # logits that differ
    store_guarantees(model.config, guarantees)
    model.save_pretrained(tmp_path)

    reloaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    logits, thresholds = reloaded(images).logits.detach(), reloaded.config.prediction_set_thresholds
    probabilities, lac = logits.double().softmax(-1), thresholds["lac"]["0.9"]
    assert lac == guarantees.prediction_sets[1].threshold
    sets = (1 - probabilities <= lac) | (probabilities == probabilities.amax(-1, keepdim=True))
    assert torch.equal(sets, prediction_sets(logits, lac))
    raps = thresholds["raps"]
    ordered, classes = probabilities.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(1, ordered.shape[-1] + 1)
    scores = ordered.cumsum(-1) - ordered / 2 + raps["lambda"] * (rank - raps["k_reg"]).clamp(min=0)
    kept = (scores <= raps["0.95"]) | (rank == 1)
    assert torch.equal(
        torch.zeros_like(kept).scatter(-1, classes, kept), prediction_sets(logits, raps["0.95"], "raps")
    )


def test_the_threshold_for_an_accuracy_is_that_of_the_next_stored_one(guarantees: Guarantees) -> None:
    config = build("vit").config
    assert stored_abstention_threshold(config, 0.9) is None
    store_guarantees(config, guarantees)
    at_90, at_95 = (guarantee.threshold for guarantee in guarantees.abstentions[:2])
    assert stored_abstention_threshold(config, 0.5) == stored_abstention_threshold(config, 0.9) == at_90
    assert stored_abstention_threshold(config, 0.91) == stored_abstention_threshold(config, 0.95) == at_95
    assert stored_abstention_threshold(config, 0.999) is None


def test_another_temperature_removes_the_thresholds(guarantees: Guarantees) -> None:
    model = build("vit")
    store_guarantees(model.config, guarantees)
    fold_temperature(model, 1.0)  # changes no logits
    assert "prediction_set_thresholds" in model.config.to_dict()
    fold_temperature(model, 1.5)
    assert not {"prediction_set_thresholds", "abstention_thresholds"} & model.config.to_dict().keys()
    nothing = make_guarantees(np.zeros((0, 4)), np.zeros(0, int), num_temperature=10)
    store_guarantees(model.config, guarantees)
    store_guarantees(model.config, nothing)
    assert (model.config.prediction_set_thresholds, model.config.abstention_thresholds) == ({}, {})
    assert model.config.guarantee_reason == nothing.reason
    store_guarantees(model.config, guarantees)
    assert "0.9" in model.config.abstention_thresholds and "guarantee_reason" not in model.config.to_dict()


def test_thresholds_are_stored_by_level_and_approximate_ones_as_such(guarantees: Guarantees) -> None:
    model = build("vit")
    store_guarantees(model.config, replace(guarantees, exact=True))
    exact, sets = dict(model.config.abstention_thresholds), dict(model.config.prediction_set_thresholds)
    guaranteed = {str(p.accuracy): p.threshold for p in guarantees.abstentions if p.threshold is not None}
    assert exact == guaranteed | {"delta": 0.05}
    store_guarantees(model.config, replace(guarantees, exact=False))
    assert model.config.abstention_thresholds == exact | {"exact": False}
    assert model.config.prediction_set_thresholds == {name: levels | {"exact": False} for name, levels in sets.items()}
    levels = {p.coverage: p.threshold for p in guarantees.prediction_sets if p.method == "raps"}
    assert guaranteed_levels(model.config.prediction_set_thresholds["raps"]) == levels
    assert stored_abstention_threshold(model.config, 0.9) == exact["0.9"]


@pytest.mark.slow
def test_the_example_answers_only_where_the_model_guarantees(guarantees: Guarantees, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32), (90, 10, 200)).save(tmp_path / "blue.png")
    model = build("vit")
    processor = ViTImageProcessor(size={"height": 32, "width": 32})

    def answer() -> str:
        model.save_pretrained(tmp_path / "model")
        processor.save_pretrained(tmp_path / "model")
        command = [sys.executable, ROOT / "examples" / "use_model.py", "model", "blue.png", "--accuracy", "0.9"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    assert "No guarantee" in answer()
    store_guarantees(model.config, replace(guarantees, exact=True))
    assert "blue.png: not sure enough" in answer()  # an untrained model: about a quarter for each of four classes
    model.config.abstention_thresholds["0.9"] = 0.0
    always = answer()
    assert "blue.png: LABEL_" in always and "at least 90 %" in always
    model.config.abstention_thresholds["exact"] = False
    assert "about 90 %" in answer()
