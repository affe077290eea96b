"""The model card: its text and metadata for a known report, and that its snippets run."""

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from loopback_hub.card import card_errors
from PIL import Image
from small_models import build
from transformers import PreTrainedModel, ViTImageProcessor

from macs_hf.calibration import prediction_sets, store_guarantees
from macs_hf.metrics import wilson
from macs_hf.models.timm_layout import save_in_timm_layout
from macs_hf.publishing.card import model_card
from macs_hf.publishing.card_settings import CardSettings
from macs_hf.publishing.corruption_shift import harmful_severity
from macs_hf.publishing.guarantees import lowest_class
from macs_hf.report.corruption_table import CORRUPTIONS, SEVERITIES, STANDARD_15, Cell, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from macs_hf.report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share
from macs_hf.report.risk_coverage import RiskCoverage


GOLDEN = Path(__file__).parent / "golden"
COMMITTED = sorted(path.parent for path in (Path(__file__).parents[2] / "model_cards").glob("*/card.json"))


def measurement(ece: float, nll: float) -> Measurement:
    metrics = {
        "accuracy": Interval(0.85, 0.83, 0.87),
        "nll": Interval(nll, nll - 0.02, nll + 0.02),
        "ece": Interval(ece, ece - 0.01, ece + 0.01),
        "brier": Interval(0.2, 0.19, 0.21),
        "logit_margin": Interval(2.0, 1.9, 2.1),
    }
    bins = ReliabilityTable(
        (0.0, 0.25, 0.5, 0.75), (0.25, 0.5, 0.75, 1.0), (0, 200, 200, 600), *[(0, 0.4, 0.7, 0.98)] * 2
    )
    return Measurement(metrics, 0.025, bins)


def corruptions() -> CorruptionTable:
    def row(accuracy: float) -> dict[int, Cell]:
        return {severity: Cell(500, accuracy, 1.0, 0.1, 0.9, 0.06) for severity in SEVERITIES}

    cells = {name: row(0.5 + 0.01 * i) for i, name in enumerate(CORRUPTIONS)}
    clean = Cell(500, 0.85, 0.5, 0.08, 0.45, 0.03)
    return CorruptionTable(
        "cifar",
        "generated",
        500,
        cells,
        clean,
        seed=0,
        temperature=1.5,
        standard_error={"mean15": 0.01, "mean19": 0.01},
        confidence_gap={"clean": Interval(0.001, -0.029, 0.031), "mean15": Interval(0.052, 0.041, 0.063)},
    )


def guarantees() -> Guarantees:
    by_severity = {severity: Share(0.9 - 0.1 * severity, 0.2, 0.9, 500) for severity in SEVERITIES}
    sets = [
        PredictionSetGuarantee(
            "lac", level, level - 0.1, 200, Share(level + 0.01, level, 1.0, 1000), 1 + level, (480, 430), by_severity
        )
        for level in (0.8, 0.9)
    ]
    sets.append(replace(sets[-1], method="raps"))
    sure = AbstentionGuarantee(
        0.95, 0.05, 200, 0.83, None, Share(0.7, 0.67, 0.73, 1000), Share(0.96, 0.94, 0.97, 700), by_severity
    )
    none = AbstentionGuarantee(0.99, 0.05, 200, reason="200 held-out samples are too few | by far")
    return Guarantees(200, 200, 1000, 1.5, False, None, (500, 500), ("cat", "dog"), tuple(sets), (sure, none))


RISK = RiskCoverage(
    aurc=Interval(0.042, 0.031, 0.053),
    excess_aurc=Interval(0.03, 0.02, 0.04),
    coverage_at_risk={"1%": Interval(0.2, 0.1, 0.3), "5%": Interval(0.6, 0.5, 0.7)},
    coverage=(0.5, 1.0),
    risk=(0.01, 0.15),
)


REPORT = EvaluationReport(
    model="user/base",
    dataset="user/pictures",
    split="test",
    n=1000,
    before=measurement(0.08, 0.6),
    after=measurement(0.02, 0.5),
    temperature=Temperature(1.5, None, "validation", 200, 0.06, 0.012, nll_gain=Interval(0.1, 0.08, 0.12)),
    corruptions=corruptions(),
    guarantees=guarantees(),
    risk_coverage=RISK,
    training_arguments={"learning_rate": 0.005, "push_to_hub": True, "seed": 3},
    command="python examples/train.py --dataset user/pictures --learning_rate 5e-3",
    versions={"torch": "2.9.0", "macs-hf": "0.1.0"},
)
SETTINGS = CardSettings(
    "pictures",
    repo_id="user/pictures-macs",
    license="mit",
    base_model="user/base",
    datasets=("user/pictures",),
    timm=True,
    pictures=("reliability.png", "corruptions.png"),
    tags=("mine",),
)
CASES = {
    "full": (REPORT, SETTINGS),
    "uncalibrated": (
        replace(
            REPORT,
            dataset="/home/someone/pictures",
            after=None,
            temperature=Temperature(1.0, "60 samples are fewer than the 100 a fit needs", "validation", 60),
            corruptions=None,
            guarantees=Guarantees(60, 0, 0, 1.0, True, "promises take at least 400 held-out samples"),
            training_arguments={"lambda_margin": 0.0, "lambda_consistency": 0.0},
        ),
        CardSettings("small"),
    ),
    "unmeasured": (None, CardSettings("unmeasured", repo_id="user/unmeasured")),
}


@pytest.mark.parametrize("case", CASES)
def test_card_is_as_it_was_read_and_approved(case: str) -> None:
    """After a change of the template: read the new text, then store it in `golden`."""
    report, settings = CASES[case]
    content = model_card(report, settings).content
    assert content == (GOLDEN / f"model_card_{case}.md").read_text(encoding="utf-8")
    assert card_errors(content) == []
    assert "/home" not in content


@pytest.mark.parametrize("case", CASES)
def test_a_card_is_rendered_again_from_the_settings_beside_it(case: str, tmp_path: Path) -> None:
    report, settings = CASES[case]
    settings.save(tmp_path)
    assert CardSettings.load(tmp_path) == settings
    assert model_card(report, CardSettings.load(tmp_path)).content == model_card(report, settings).content


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    assert CardSettings.load(tmp_path) is None
    for text, message in (("{", "Expecting"), ('{"name": 3}', "name must be text"), ("{}", "name is missing")):
        (tmp_path / "card.json").write_text(text)
        with pytest.raises(ValueError, match=rf"card.json cannot be used: {message}.*delete it"):
            CardSettings.load(tmp_path)


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_committed_cards_agree_with_their_reports(folder: Path) -> None:
    report, settings = EvaluationReport.load(folder / "evaluation.json"), CardSettings.load(folder)
    assert model_card(report, settings).content == (folder / "README.md").read_text(encoding="utf-8")
    assert set(settings.pictures) == {path.name for path in folder.glob("*.png")}


def test_metadata_are_plain_and_complete() -> None:
    content = model_card(REPORT, SETTINGS).content
    metadata = yaml.safe_load(content.split("---\n")[1])
    assert {"license", "base_model", "datasets", "tags", "metrics", "model-index"} <= metadata.keys()
    assert (metadata["library_name"], metadata["pipeline_tag"]) == ("timm", "image-classification")
    [result] = metadata["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    corrupted = REPORT.corruptions.mean(STANDARD_15)
    assert values == pytest.approx(
        {"accuracy": 0.85, "ece": 0.02, "nll": 0.5, "corruption_accuracy": corrupted}, abs=1e-6
    )
    assert all(type(value) is float for value in values.values())
    assert next(m for m in result["metrics"] if m["type"] == "ece")["args"] == {"n_bins": 4}
    assert result["dataset"] == {"name": "user/pictures", "type": "user/pictures", "split": "test"}


def test_numpy_numbers_become_plain_ones() -> None:
    metrics = {name: Interval(*map(np.float32, (i.value, i.low, i.high))) for name, i in REPORT.after.metrics.items()}
    content = model_card(replace(REPORT, after=replace(REPORT.after, metrics=metrics)), SETTINGS).content
    assert "!!python" not in content
    assert card_errors(content) == []


def test_a_picture_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'cat.png' is not a picture of a run"):
        model_card(REPORT, CardSettings("name", pictures=("cat.png",)))


@pytest.mark.parametrize(
    ("ece", "floor", "claim"),
    [
        (Interval(0.02, 0.0, 0.03), 0.025, "no miscalibration was detected"),
        (Interval(0.03, 0.0, 0.04), 0.025, "cannot be decided from so few images"),
        (Interval(0.08, 0.07, 0.09), 0.025, "the error is larger than chance explains"),
    ],
)
def test_what_the_noise_floor_says(ece: Interval, floor: float, claim: str) -> None:
    part = replace(REPORT.after, metrics=REPORT.after.metrics | {"ece": ece}, noise_floor=floor)
    assert claim in model_card(replace(REPORT, after=part), SETTINGS).text


# ---- What the card may claim ----


@pytest.mark.parametrize(
    ("gain", "titles", "sentence"),
    [
        (
            Interval(0.1, 0.08, 0.12),
            "| before calibration | as published |",
            "lowered the NLL of the test images by 0.1",
        ),
        (Interval(0.1, -0.01, 0.2), "| without temperature | with temperature, as published |", "**It did not lower"),
        (Interval(0.0, 0.0, 0.0), "| without temperature | with temperature, as published |", "**It did not lower"),
        (
            Interval(-0.1, -0.2, -0.01),
            "| without temperature | with temperature, as published |",
            "**It raised the NLL",
        ),
    ],
)
def test_calibrated_is_said_only_where_the_temperature_helped(gain: Interval, titles: str, sentence: str) -> None:
    text = model_card(replace(REPORT, temperature=replace(REPORT.temperature, nll_gain=gain)), SETTINGS).text
    assert titles in text and sentence in text
    assert ("return calibrated" in text) == (gain.low > 0)
    assert ("probabilities are not\ncalled calibrated" in text) == (gain.low <= 0)


@pytest.mark.parametrize(("shift", "warned"), [(0.0099, False), (0.01, True), (None, False)])
def test_an_uncertain_temperature_is_called_so(shift: float | None, warned: bool) -> None:
    temperature = replace(REPORT.temperature, confidence_shift=shift)
    text = model_card(replace(REPORT, temperature=temperature), SETTINGS).text
    assert "1.5000 ± 0.0600 (standard error), was fitted on 200 images" in text
    assert ("**The temperature is uncertain**" in text) == warned


@pytest.mark.parametrize(
    ("gap", "claim"),
    [
        (
            Interval(0.052, 0.041, 0.063),
            "overconfident: its mean confidence is 5.2 points above its accuracy [4.1, 6.3]",
        ),
        (
            Interval(-0.052, -0.063, -0.041),
            "underconfident: its mean confidence is 5.2 points below its accuracy [4.1, 6.3]",
        ),
        (Interval(0.01, -0.02, 0.04), "neither over- nor underconfident beyond chance"),
    ],
)
def test_the_sign_of_the_gap_says_whether_confidence_is_too_high(gap: Interval, claim: str) -> None:
    table = replace(REPORT.corruptions, confidence_gap=REPORT.corruptions.confidence_gap | {"mean15": gap})
    assert f"Under corruption (mean of the standard 15) the model is {claim}" in card_of(table)
    # Nothing is said without a measured sign, as of older reports.
    silent = card_of(replace(table, confidence_gap=None))
    assert "overconfident" not in silent and "underconfident" not in silent and "usually too high" not in silent


def card_of(table: CorruptionTable) -> str:
    return model_card(replace(REPORT, corruptions=table), SETTINGS).text


def harmed(by_severity: dict[int, float], spread: float = 0.0) -> CorruptionTable:
    """With an ECE of 40 % without temperature, and with it of so much more."""
    cells = {
        name: {s: Cell(500, 0.6, 1.0, 0.4, 0.9, 0.4 + harm + spread * (-1) ** i) for s, harm in by_severity.items()}
        for i, name in enumerate(CORRUPTIONS)
    }
    return replace(REPORT.corruptions, cells=cells)


@pytest.mark.parametrize(
    ("harm", "severity"),
    [
        ((-0.05, -0.02, 0.01, 0.02, 0.03), 3),
        ((0.01, 0.01, 0.01, 0.01, 0.01), 1),
        ((0.01, -0.01, 0.01, -0.01, 0.02), 5),
        ((0.02, 0.02, 0.02, 0.02, -0.01), None),  # helps where it is worst
        ((0.0, 0.0, 0.0, 0.0, 0.0), None),
    ],
)
def test_the_severity_from_which_on_the_temperature_does_harm(harm: tuple[float, ...], severity: int | None) -> None:
    table = harmed(dict(zip(SEVERITIES, harm, strict=True)))
    assert harmful_severity(table) == severity
    text = card_of(table)
    assert ("the temperature does harm" in text) == (severity is not None)
    if severity == 3:
        assert "From severity 3 on the temperature does harm: at severity 3 the mean ECE is 41.0 % with it" in text
        assert "and 40.0 % without." in text
    # A harm that differs in sign from corruption to corruption is chance.
    assert harmful_severity(harmed(dict(zip(SEVERITIES, harm, strict=True)), spread=0.2)) is None


def test_calibration_under_corruption_is_compared_with_the_same_images_and_its_noise() -> None:
    cell = Cell(500, 0.5, 1.0, 0.1, 0.9, 0.06, 0.03, 0.02)
    cells = {name: dict.fromkeys(SEVERITIES, cell) for name in CORRUPTIONS}
    clean = Cell(500, 0.85, 0.5, 0.08, 0.45, 0.03, 0.02, 0.011)
    text = card_of(replace(REPORT.corruptions, cells=cells, clean=clean))
    assert "The mean ECE is 6.0 % (noise floor 2.0 %), that of the same images" in text
    assert "without corruption 3.0 % (noise floor 1.1 %)." in text


def test_approximate_promises_are_called_so() -> None:
    exact = model_card(replace(REPORT, guarantees=replace(REPORT.guarantees, exact=True)), SETTINGS).text
    assert "that fitted nothing else." in exact and "approximate" not in exact
    approximate = model_card(REPORT, SETTINGS).text
    assert "**the promise is approximate**" in approximate and "approximately, as above" in approximate


def test_the_lowest_class_is_not_one_of_a_few_images() -> None:
    promise = PredictionSetGuarantee("lac", 0.9, 0.4, 200, Share(0.9, 0.8, 1.0, 604), 1.2, (2, 210, 288, 0))
    promises = Guarantees(200, 200, 604, 1.0, True, None, (4, 300, 300, 0), (), (promise,))
    assert lowest_class(promise, promises) == ("class 1", Share(0.7, *wilson(210, 300), 300))
    named = replace(promises, class_names=("ant", "bee", "cat", "dog"))
    assert lowest_class(promise, named)[0] == "bee"


def test_where_no_answers_are_promised_there_is_no_table() -> None:
    sure, none = REPORT.guarantees.abstentions
    text = model_card(replace(REPORT, guarantees=replace(REPORT.guarantees, abstentions=(none,))), SETTINGS).text
    assert "smallest confidence" not in text
    assert "guarantees these shares of right answers: 99 % (200 held-out samples are too few \\| by far)." in text
    text = model_card(replace(REPORT, guarantees=replace(REPORT.guarantees, abstentions=(sure,))), SETTINGS).text
    assert (
        "| 95 % | 0.83 | 70.0 % [67.0, 73.0] | 96.0 % [94.0, 97.0] |" in text and "No threshold was found" not in text
    )


def test_a_severity_without_answers_leaves_a_gap() -> None:
    sure, none = REPORT.guarantees.abstentions
    answered = {severity: share for severity, share in sure.severity_accuracy.items() if severity != 4}
    changed = replace(REPORT.guarantees, abstentions=(replace(sure, severity_accuracy=answered), none))
    assert "| 80.0 / 70.0 / 60.0 / - / 40.0 % |" in model_card(replace(REPORT, guarantees=changed), SETTINGS).text


# ---- Text from outside ----


def outline(text: str) -> list[str]:
    """Headings, table rows by their number of cells, and the ends of code blocks."""
    found, fence = [], None
    for line in text.splitlines():
        if fence is not None or line.startswith("```"):
            ticks = re.match("`*", line)[0]
            if fence is None or line == fence:
                found.append("code")
                fence = ticks if fence is None else None
        elif line.startswith("#"):
            found.append("heading")
        elif line.startswith("|"):
            found.append("row of " + str(len(re.findall(r"(?<!\\)[|]", line)) - 1))
    return found


@pytest.mark.parametrize("outside", ["a|b", "[a](x)", "<script>", "`", "```\n# Title", "*a* \\"])
def test_text_from_outside_is_no_markup(outside: str) -> None:
    """Names, arguments and commands are shown as they are: no new cells, headings, links, tags or blocks of code."""

    def card(text: str) -> str:
        report = replace(
            REPORT,
            split=text,
            dataset=text,
            temperature=Temperature(1.0, text, text, 3),
            training_arguments={text: text},
            command=text,
            corruptions=replace(REPORT.corruptions, source=text),
            guarantees=replace(REPORT.guarantees, class_names=(text, text)),
        )
        return model_card(report, CardSettings(text)).text

    text = card(outside)
    assert outline(text) == outline(card("plain"))
    prose = re.sub(r"(`+).*?\1", "", text, flags=re.DOTALL)
    assert "](x)" not in prose.replace("\\](x)", "") and "<script>" not in prose
    for snippet in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert repr(outside)[1:-1] in repr(compile(snippet, "snippet", "exec").co_consts)


# ---- Snippets ----


def save(name: str, folder: Path) -> PreTrainedModel:
    model = build(name)
    store_guarantees(model.config, REPORT.guarantees)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    if name == "resnet34":
        save_in_timm_layout(model, folder, {"input_size": (3, 32, 32), "crop_pct": 1.0})
    else:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", ["resnet34", "vit"])
def test_snippets_run_and_agree(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(name, tmp_path / "saved")
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.jpg")
    monkeypatch.chdir(tmp_path)
    text = model_card(REPORT, CardSettings("saved", timm=name == "resnet34")).text
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == (4 if name == "resnet34" else 3)
    found = []
    for snippet in snippets:
        namespace: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(snippet, namespace)
        assert "class" in printed.getvalue()
        found.append(namespace)
    probabilities = found[1]["probabilities"]
    labels = found[1]["model"].config.id2label
    scores = {answer["label"]: answer["score"] for answer in found[0]["classifier"]("image.jpg")}
    assert scores == pytest.approx({labels[i]: p for i, p in enumerate(probabilities.tolist())}, abs=1e-5)
    if name == "resnet34":
        torch.testing.assert_close(found[2]["probabilities"], probabilities)
    # The set is that of the library, from the threshold in the downloaded config.
    logits = found[-1]["model"](**found[-1]["inputs"]).logits
    assert found[-1]["threshold"] == REPORT.guarantees.prediction_sets[1].threshold
    assert torch.equal(found[-1]["chosen"], prediction_sets(logits, found[-1]["threshold"])[0])
    assert 0 < found[-1]["chosen"].sum() < len(probabilities)
