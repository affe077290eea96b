"""The model card: its metadata and sections, text from outside, the gallery, and snippets that run."""

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import yaml
from loopback_hub.card import card_errors
from PIL import Image
from small_models import build
from transformers import PreTrainedModel, ViTImageProcessor

from macs_hf.calibration import prediction_sets, store_guarantees
from macs_hf.models.timm_layout import save_in_timm_layout
from macs_hf.publishing.card import GUARANTEES, OPTIONAL_PARTS, CardSettings, model_card, write_card
from macs_hf.publishing.push import files_to_push
from macs_hf.rendering.markdown import escaped, table_markdown
from macs_hf.report.report import EvaluationReport, Guarantees, Interval, Temperature
from macs_hf.report.rows import STANDARD_15
from macs_hf.report.run_folder import PICTURES
from macs_hf.report.sections import headline, sections

from .reports import FOUND, REPORT, SETTINGS, outline


COMMITTED = sorted(path.parent for path in (Path(__file__).parents[2] / "model_cards").glob("*/card.json"))
CASES = {
    "full": (REPORT, SETTINGS),
    "uncalibrated": (
        replace(
            REPORT,
            dataset="/home/someone/pictures",
            after=None,
            temperature=Temperature(1.0, "60 samples are fewer than the 100 a fit needs", "validation", 60),
            corruptions=None,
            guarantees=Guarantees(60, 0, 0, 1.0, True, "guarantees take at least 400 held-out samples"),
            training_arguments={"lambda_margin": 0.0, "lambda_consistency": 0.0},
        ),
        CardSettings("small"),
    ),
    "found": (FOUND, SETTINGS),
    "unmeasured": (None, CardSettings("unmeasured", repo_id="user/unmeasured")),
}


@pytest.mark.parametrize("case", CASES)
def test_a_card_has_all_sections_and_can_be_rendered_again_from_its_settings(case: str, tmp_path: Path) -> None:
    report, settings = CASES[case]
    content = model_card(report, settings).content
    assert card_errors(content) == [] and "/home" not in content and "undefined" not in content.lower()
    for part in sections(report) if report is not None else ():
        assert f"# {part.title}\n\n{escaped(part.lead)}\n" in content
        assert part.table is None or table_markdown(part.table) in content
        assert all(escaped(note) in content for note in part.notes)
    assert "(https://arxiv.org/abs/2603.05812)" in content  # the Hub then lists the model on the paper's page
    assert content.count("<details>") == content.count("</details>")
    settings.save(tmp_path)
    assert CardSettings.load(tmp_path) == settings
    assert model_card(report, CardSettings.load(tmp_path)).content == content


@pytest.mark.parametrize(
    "report", [REPORT, FOUND, *(EvaluationReport.load(at / "evaluation.json") for at in COMMITTED)]
)
def test_a_reader_finishes_what_is_not_folded(report: EvaluationReport) -> None:
    """What it is, how to use it, one table, two pictures, what is guaranteed, and what was not tested."""
    settings = replace(SETTINGS, pictures=tuple(PICTURES))
    above = model_card(report, settings).text.partition("<details>")[0]
    assert len(above.split()) <= 600
    assert above.count("|:--|") == 1 and above.count("![") == 1 + (report.corruptions is not None)
    titles = re.findall(r"^## (.*)$", above, re.MULTILINE)
    assert titles == ["How to use it", "Measured", "What is guaranteed", "What was not tested"]
    guaranteed = above.partition("## What is guaranteed")[2].partition("##")[0].count("\n- ")
    assert guaranteed == sum(part.title in GUARANTEES for part in sections(report)) or guaranteed == 1
    missing = [what for name, what in OPTIONAL_PARTS.items() if getattr(report, name) is None]
    assert all((what in above.partition("Not measured:")[2]) is (what in missing) for what in OPTIONAL_PARTS.values())


def test_what_the_beginning_says() -> None:
    text = model_card(*CASES["full"]).text
    assert headline(REPORT).title in text and "return calibrated\nprobabilities" in text
    chance = replace(REPORT, temperature=replace(REPORT.temperature, nll_gain=Interval(0.1, -0.1, 0.3)))
    assert "return calibrated" not in model_card(chance, SETTINGS).text
    only_measured = model_card(replace(REPORT, training_arguments={}), SETTINGS)
    assert "measured on" in only_measured.text and only_measured.data.datasets is None


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    assert CardSettings.load(tmp_path) is None
    for text, field in (("{", "JSON"), ('{"name": 3}', "name"), ("{}", "name"), ('{"name": "a", "x": 1}', "x")):
        (tmp_path / "card.json").write_text(text)
        with pytest.raises(ValueError, match=rf"card.json cannot be used: .*{field}"):
            CardSettings.load(tmp_path)


def test_committed_cards_show_the_pictures_beside_them() -> None:
    """Their text is checked with the pages: tests/docs."""
    for folder in COMMITTED:
        assert set(CardSettings.load(folder).pictures) == {path.name for path in folder.glob("*.png")}


def test_metadata_are_plain_and_complete() -> None:
    content = model_card(REPORT, SETTINGS).content
    metadata = yaml.safe_load(content.split("---\n")[1])
    assert {"license", "base_model", "datasets", "tags", "metrics", "model-index"} <= metadata.keys()
    assert (metadata["library_name"], metadata["pipeline_tag"]) == ("timm", "image-classification")
    assert metadata["base_model"] == SETTINGS.base_model and metadata["datasets"] == ["user/pictures"]
    assert {"macs", "calibration", "timm", "transformers", "mine"} <= set(metadata["tags"])
    assert model_card(REPORT, replace(SETTINGS, timm=False)).data.library_name == "transformers"
    [result] = metadata["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    corrupted = REPORT.corruptions.mean(STANDARD_15)
    assert values == pytest.approx(
        {"accuracy": 0.85, "ece": 0.02, "nll": 0.5, "corruption_accuracy": corrupted}, abs=1e-6
    )
    assert all(type(value) is float for value in values.values())
    assert next(m for m in result["metrics"] if m["type"] == "ece")["args"] == {"n_bins": 4}
    assert result["dataset"] == {"name": "user/pictures", "type": "user/pictures", "split": "test"}

    metrics = {name: Interval(*map(np.float32, (i.value, i.low, i.high))) for name, i in REPORT.after.metrics.items()}
    content = model_card(replace(REPORT, after=replace(REPORT.after, metrics=metrics)), SETTINGS).content
    assert "!!python" not in content and card_errors(content) == []  # numbers of numpy become plain ones


# ---- Text from outside ----


@pytest.mark.parametrize("outside", ["a|b", "[a](x)", "[1](x)", "<script>", "`", "```\n# Title", "*a* \\"])
def test_text_from_outside_is_no_markup(outside: str) -> None:
    """Names, arguments and commands are shown as they are: no new cells, headings, links, tags or blocks of code."""

    def card(text: str) -> str:
        report = replace(
            FOUND,
            split=text,
            dataset=text,
            temperature=Temperature(1.0, text, text, 3),
            training_arguments={text: text},
            command=text,
            corruptions=replace(REPORT.corruptions, source=text),
            renamed_classes=((text, text),),
            guarantees=replace(REPORT.guarantees, class_names=(text, text)),
            classes=replace(FOUND.classes, groups=tuple(replace(each, name=text) for each in FOUND.classes.groups)),
            groups=replace(FOUND.groups, column=text),
            confusion=replace(FOUND.confusion, names=(text,) * 3),
            ood=replace(FOUND.ood, dataset=text, split=text, left_out=(text,)),
        )
        return model_card(report, CardSettings(text)).text

    text = card(outside)
    assert outline(text) == outline(card("plain"))
    prose = re.sub(r"(`+).*?\1", "", text, flags=re.DOTALL)
    assert "](x)" not in prose.replace("\\](x)", "") and "<script>" not in prose
    for snippet in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert "from_pretrained" not in snippet or repr(outside)[1:-1] in repr(
            compile(snippet, "snippet", "exec").co_consts
        )


# ---- The gallery ----


@pytest.fixture
def run(tmp_path: Path) -> Path:
    model = tiny.build("resnet")
    model.config.calibration_temperature = 1.5
    store_guarantees(model.config, FOUND.guarantees)
    model.save_pretrained(tmp_path)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    for name in ("mistakes.png", "classes.png"):
        (tmp_path / name).touch()
    return tmp_path


def test_the_gallery_is_neither_shown_nor_pushed_unless_asked_for(run: Path) -> None:
    card = write_card(run, "user/model", FOUND)
    assert "mistakes.png" not in card.text and "![Accuracy and confidence of " in card.text
    assert "mistakes.png" not in files_to_push(run) and "classes.png" in files_to_push(run)
    assert CardSettings.load(run).gallery is False


def test_the_gallery_on_request(run: Path) -> None:
    card = write_card(run, "user/model", FOUND, gallery=True)
    assert "(mistakes.png)" in card.text and "mistakes.png" in files_to_push(run)
    assert "mistakes.png" not in files_to_push(run, with_report=False)
    assert "(mistakes.png)" in write_card(run, "user/other", FOUND).text  # as the earlier card has it
    write_card(run, "user/other", FOUND, gallery=False)
    assert "mistakes.png" not in files_to_push(run)
    (run / "mistakes.png").unlink()
    assert "mistakes.png" not in write_card(run, "user/model", FOUND, gallery=True).text


# ---- The snippets ----


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
    found, namespace = [], {}
    for snippet in snippets:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(snippet, namespace)
        assert "class" in printed.getvalue()
        found.append(dict(namespace))
    probabilities = found[1]["probabilities"]
    labels = found[1]["model"].config.id2label
    scores = {answer["label"]: answer["score"] for answer in found[0]["classifier"]("image.jpg")}
    assert scores == pytest.approx({labels[i]: p for i, p in enumerate(probabilities.tolist())}, abs=1e-5)
    if name == "resnet34":
        torch.testing.assert_close(found[3]["probabilities"].double(), probabilities)
    # The set is that of the library, from the threshold in the downloaded config.
    threshold, chosen = found[2]["threshold"], found[2]["chosen"]
    assert threshold == REPORT.guarantees.prediction_sets[1].threshold
    assert torch.equal(chosen, prediction_sets(probabilities.log()[None], threshold)[0])
    assert 0 < chosen.sum() < len(probabilities)
