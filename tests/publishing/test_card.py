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

from macs_hf.calibration.selection import Selection, confidence_threshold, selections
from macs_hf.models.timm_layout import save_in_timm_layout
from macs_hf.publishing.card import model_card
from macs_hf.publishing.settings import CardSettings
from macs_hf.report.corruption_table import CORRUPTIONS, SEVERITIES, STANDARD_15, Cell, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature


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
    error = {"mean15": 0.01, "mean19": 0.01}
    clean = Cell(500, 0.85, 0.5, 0.08, 0.45, 0.03)
    return CorruptionTable("cifar", "generated", 500, cells, clean, seed=0, temperature=1.5, standard_error=error)


REPORT = EvaluationReport(
    model="user/base",
    dataset="user/pictures",
    split="test",
    n=1000,
    before=measurement(0.08, 0.6),
    after=measurement(0.02, 0.5),
    temperature=Temperature(1.5, None, "validation", 400),
    corruptions=corruptions(),
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
    with pytest.raises(ValueError, match=r"'cat.png' is no picture of a run"):
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
    text = model_card(None, CardSettings("saved", timm=name == "resnet34")).text
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == (3 if name == "resnet34" else 2)
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


# ---- Selective prediction ----


def test_selections_are_shares_of_the_bins() -> None:
    assert selections(REPORT) == [
        Selection(0.25, 1.0, pytest.approx(0.808), 1000),
        Selection(0.5, 0.8, pytest.approx(0.91), 800),
        Selection(0.75, 0.6, pytest.approx(0.98), 600),
    ]


@pytest.mark.parametrize(("wanted", "threshold"), [(0.5, 0.25), (0.808, 0.25), (0.81, 0.5), (0.91, 0.5), (0.98, 0.75)])
def test_threshold_is_the_lowest_that_is_accurate_enough(wanted: float, threshold: float) -> None:
    assert confidence_threshold(REPORT, wanted).threshold == threshold


def test_threshold_that_cannot_be_had() -> None:
    with pytest.raises(ValueError, match=r"No confidence gives an accuracy of 0.99: the best is 0.9800, above 0.7500"):
        confidence_threshold(REPORT, 0.99)
    for wrong in (0.0, 95):
        with pytest.raises(ValueError, match="is no share of right answers"):
            confidence_threshold(REPORT, wrong)
