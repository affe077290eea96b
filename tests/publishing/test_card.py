"""The model card: its text and metadata for a known report, and that text from outside is no markup."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from loopback_hub.card import card_errors

from macs_hf.publishing.card import model_card
from macs_hf.publishing.card_settings import CardSettings
from macs_hf.report.corruption_table import STANDARD_15
from macs_hf.report.evaluation import EvaluationReport, Interval, Temperature
from macs_hf.report.guarantees import Guarantees

from .reports import REPORT, SETTINGS, outline


GOLDEN = Path(__file__).parent / "golden"
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


# ---- Text from outside ----


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
            renamed_classes=((text, text),),
            guarantees=replace(REPORT.guarantees, class_names=(text, text)),
        )
        return model_card(report, CardSettings(text)).text

    text = card(outside)
    assert outline(text) == outline(card("plain"))
    prose = re.sub(r"(`+).*?\1", "", text, flags=re.DOTALL)
    assert "](x)" not in prose.replace("\\](x)", "") and "<script>" not in prose
    for snippet in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert repr(outside)[1:-1] in repr(compile(snippet, "snippet", "exec").co_consts)
