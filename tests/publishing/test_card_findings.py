"""What the card says beyond the means, and that pictures of test images are published only on request."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from loopback_hub.card import card_errors
from transformers import ViTImageProcessor

from macs_hf.metrics import group_measures, risk_coverage
from macs_hf.plots import alt_texts
from macs_hf.publishing.card import model_card
from macs_hf.publishing.card_settings import CardSettings
from macs_hf.publishing.folder import files_to_push, write_card
from macs_hf.publishing.push import _stale
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.groups import ConfusionMatrix, GroupMeasures, GroupTable
from macs_hf.report.interval import Interval
from macs_hf.report.leakage import Copies, Leakage
from macs_hf.report.rows import SampleRows
from macs_hf.report.unknowns import Answered, Detection, Unknowns

from .reports import REPORT, SETTINGS, outline


GOLDEN = Path(__file__).parent / "golden" / "model_card_findings.md"


def group(name: str, n: int, accuracy: float, gap: float, significant: bool) -> GroupMeasures:
    intervals = (Interval(value, value - 0.04, value + 0.04) for value in (accuracy, gap))
    return GroupMeasures(name, n, n < 30, next(intervals), 0.05, 0.02, next(intervals), significant, significant)


def with_coverage(table: GroupTable, shares: dict[str, float], promised: float) -> GroupTable:
    groups = (
        replace(g, coverage=Interval(shares[g.name], shares[g.name] - 0.02, shares[g.name] + 0.02))
        for g in table.groups
    )
    worst, *others = groups
    return replace(table, groups=(replace(worst, coverage_significant=True), *others), promised_coverage=promised)


def detections(auroc: float) -> tuple[Detection, ...]:
    parts = Interval(auroc, auroc - 0.01, auroc + 0.01), Interval(0.3, 0.28, 0.33)
    return tuple(Detection(score, *parts) for score in ("max_probability", "max_logit", "energy"))


CLASSES = GroupTable(
    "label",
    (group("cat", 400, 0.7, 0.1, True), group("bird", 300, 0.8, 0.02, False), group("ship", 300, 0.9, 0, True)),
)
CAMERAS = GroupTable("camera", (group("old", 500, 0.8, 0.02, False), group("new", 500, 0.81, -0.01, False)))
CONFUSION = ConfusionMatrix(
    3, (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 0, 2), (280, 90, 30, 240, 60, 300), ("cat", "bird", "ship")
)
UNKNOWNS = Unknowns(
    dataset="user/textures",
    split="train",
    n=500,
    total=900,
    confidence=0.61,
    known_confidence=0.87,
    before=detections(0.9),
    after=detections(0.92),
    answered=(Answered(0.95, 0.8123, Interval(0.1, 0.08, 0.13), Interval(0.7, 0.68, 0.73)),),
    left_out=("cat",),
    copies=2,
)
LEAKAGE = Leakage(
    {"train": 2000, "validation": 400, "test": 1000},
    {"train": 50_000, "validation": 400, "test": 1000},
    (Copies("validation", "train", 0), Copies("test", "train", 12), Copies("test", "validation", 0)),
)
FOUND = replace(
    REPORT,
    image_size=(32, 48),
    classes=with_coverage(CLASSES, {"cat": 0.85, "bird": 0.91, "ship": 0.95}, 0.9),
    confusion=CONFUSION,
    groups=CAMERAS,
    unknowns=UNKNOWNS,
    leakage=LEAKAGE,
    corruptions=None,
    guarantees=None,
    risk_coverage=None,
)


def test_card_is_as_it_was_read_and_approved() -> None:
    """After a change of the template: read the new text, then store it in `golden`."""
    content = model_card(FOUND, SETTINGS).content
    assert content == GOLDEN.read_text(encoding="utf-8")
    assert card_errors(content) == []


def test_parts_that_were_not_measured_are_not_mentioned() -> None:
    headings = ("## Where it is less accurate", "## Images of none of its classes", "## Copies between splits")
    text = model_card(FOUND, SETTINGS).text
    assert all(heading in text for heading in headings)
    plain = model_card(replace(REPORT, image_size=None), SETTINGS).text
    assert not any(heading in plain for heading in headings) and "pixels" not in plain
    unscaled = replace(FOUND, after=None, temperature=None, unknowns=replace(UNKNOWNS, after=None))
    assert "| score | AUROC | FPR |\n" in model_card(unscaled, SETTINGS).text
    one = replace(FOUND, classes=GroupTable("label", (group("cat", 1000, 0.7, 0.1, False),)), groups=None)
    assert "Where it is less accurate" not in model_card(one, SETTINGS).text


def test_a_model_without_mistakes_has_no_worst_classes_and_no_ranking() -> None:
    logits = 9 * torch.eye(2).repeat(FOUND.n // 2, 1)
    rows = SampleRows.from_logits(logits, logits.argmax(1))
    report = replace(
        FOUND,
        classes=group_measures(rows),
        groups=None,
        confusion=None,
        risk_coverage=risk_coverage(rows, n_resamples=2),
    )
    text = model_card(report, SETTINGS).text
    assert "Where it is less accurate" not in text and "AURC" not in text
    assert alt_texts(report)["risk_coverage.png"].endswith("0 % everywhere: no answer was wrong.")


@pytest.mark.parametrize("outside", ["a|b", "[a](x)", "<script>", "`", "```\n# Title", "*a* \\"])
def test_names_from_outside_are_no_markup(outside: str) -> None:
    def card(name: str) -> str:
        report: EvaluationReport = replace(
            FOUND,
            classes=replace(CLASSES, groups=tuple(replace(each, name=name) for each in CLASSES.groups)),
            groups=replace(CAMERAS, column=name, groups=tuple(replace(each, name=name) for each in CAMERAS.groups)),
            confusion=replace(CONFUSION, names=(name,) * 3),
            unknowns=replace(UNKNOWNS, dataset=name, split=name, left_out=(name,)),
        )
        return model_card(report, SETTINGS).text

    text = card(outside)
    assert outline(text) == outline(card("plain"))
    prose = re.sub(r"(`+).*?\1", "", text, flags=re.DOTALL)
    assert "](x)" not in prose.replace("\\](x)", "") and "<script>" not in prose


# ---- The gallery ----


@pytest.fixture
def run(tmp_path: Path) -> Path:
    model = tiny.build("resnet")
    model.config.calibration_temperature = 1.5
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


def test_a_gallery_of_an_earlier_push_is_removed() -> None:
    assert _stale(["mistakes.png", "other.png"], {}) == ["mistakes.png"]
