"""One image through a model: its probabilities, what is promised for it, and where it had better not answer."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from page_reader import HOSTILE, said
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification

from macs_hf.app.try_image import (
    APPROXIMATE,
    NO_PROMISE,
    Answer,
    Calibration,
    Reading,
    answer,
    answer_page,
    classifier,
    severity_curve,
    stored_calibration,
    sureness,
)
from macs_hf.corruptions import corrupt
from macs_hf.report.text import SPACE

from .small_run import ANSWERS, CLASSES, SETS, picture, save_model


TEMPERATURE = 4.0
KNOWN = Calibration(1.0, 2.0, {0.9: 0.4}, {0.9: 0.5, 0.95: 0.8})


# ---- The answer ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("trying") / "model", temperature=TEMPERATURE, promises=True)


def pixels_of(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]


def logits_of(folder: Path, pixels: torch.Tensor) -> torch.Tensor:
    """By transformers alone, of uint8 images at the network's size."""
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]
    with torch.no_grad():
        return model(**processor(images, return_tensors="pt")).logits.double()


def test_what_is_stored_in_the_config_is_known(folder: Path) -> None:
    model = classifier(str(folder))
    known = stored_calibration(model.config, model.temperature)
    assert (known.before, known.after, known.is_known) == (1.0, TEMPERATURE, True)
    assert known.sets == {float(level): value for level, value in SETS.items()}
    assert known.answers == {float(level): value for level, value in ANSWERS.items()}
    assert model.label_names == tuple(CLASSES)


def test_probabilities_are_those_of_transformers(folder: Path) -> None:
    image, model = picture(1, 5), classifier(str(folder))
    (reading,) = answer(model, image, None, stored_calibration(model.config, model.temperature)).readings
    logits = logits_of(folder, pixels_of(image))
    torch.testing.assert_close(torch.tensor(reading.after).double(), logits[0].softmax(0), rtol=1e-4, atol=1e-6)
    before = (logits[0] * TEMPERATURE).softmax(0)
    torch.testing.assert_close(torch.tensor(reading.before).double(), before, rtol=1e-4, atol=1e-6)
    assert reading.confidence == max(reading.after) and reading.after[reading.prediction] == reading.confidence


def test_sets_hold_the_classes_below_the_threshold(folder: Path) -> None:
    model = classifier(str(folder))
    (reading,) = answer(model, picture(0, 1), None, stored_calibration(model.config, model.temperature)).readings
    for coverage, threshold in stored_calibration(model.config, model.temperature).sets.items():
        expected = {index for index, share in enumerate(reading.after) if 1 - share <= threshold} or {
            reading.prediction
        }
        members = reading.members[coverage]
        assert set(members) == expected
        assert [reading.after[index] for index in members] == sorted((reading.after[i] for i in members), reverse=True)


def test_it_gets_the_corruptions_of_the_benchmark(folder: Path) -> None:
    image, model = picture(2, 7), classifier(str(folder))
    found = answer(model, image, "gaussian_noise", Calibration())
    pixels = pixels_of(image)
    worse = torch.cat([pixels, *(corrupt(pixels, "gaussian_noise", severity) for severity in (1, 2, 3, 4, 5))])
    for place, shown in enumerate(found.pictures):
        assert list(shown.tobytes()) == worse[place].permute(1, 2, 0).flatten().tolist()
    expected = (logits_of(folder, worse) * TEMPERATURE).softmax(1)
    found = torch.tensor([reading.after for reading in found.readings]).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_visitors_share_a_model_that_none_of_them_changes(folder: Path) -> None:
    assert classifier(str(folder)) is classifier(str(folder))


# ---- The page ----


def answer_of(*after: tuple[float, ...], calibration: Calibration = KNOWN) -> Answer:
    readings = tuple(Reading((1 / 3,) * 3, shares, {0.9: (0, 2)} if calibration.sets else {}) for shares in after)
    return Answer(tuple(HOSTILE), (Image.new("RGB", (8, 8)),) * len(after), readings, calibration)


def headline(page: str) -> str:
    return said(re.search(r"<header.*?</header>", page)[0]).replace("\u00a0", " ")


def test_a_sure_answer_carries_its_promise() -> None:
    page = answer_page(answer_of((0.1, 0.85, 0.05)), 0, None, 0.9, 0.95)
    assert headline(page) == f"{HOSTILE[1]}85.0 % sure. At least 95 % of answers from 80 % on are right."
    shown = said(page)
    assert "before calibration" in shown and "after calibration" in shown
    assert re.search(r"Prediction set.*right class", shown)
    assert [said(chip) for chip in re.findall(r'<span class="chip">.*?</span>', page)] == [HOSTILE[0], HOSTILE[2]]


def test_an_approximate_promise_says_so() -> None:
    page = answer_page(answer_of((0.1, 0.85, 0.05), calibration=replace(KNOWN, exact=False)), 0, None, 0.9, 0.95)
    assert headline(page) == f"{HOSTILE[1]}85.0 % sure. About 95 % of answers from 80 % on are right. {APPROXIMATE}"
    assert said(page).count(APPROXIMATE) == 2 and "At least" not in said(page)
    config = SimpleNamespace(prediction_set_thresholds={"lac": {"0.9": 0.4, "exact": False}})
    assert stored_calibration(config, 2.0) == Calibration(1.0, 2.0, {0.9: 0.4}, {}, exact=False)


def test_below_the_threshold_it_does_not_answer() -> None:
    page = answer_page(answer_of((0.1, 0.79, 0.11)), 0, None, 0.9, 0.95)
    assert headline(page).startswith("I would not answer")
    assert "It answers from 80 % on" in headline(page)
    assert not headline(answer_page(answer_of((0.1, 0.79, 0.11)), 0, None, 0.9, 0.9)).startswith("I would")


def test_no_promise_is_made_for_a_corrupted_image() -> None:
    worse = answer_of((0.1, 0.85, 0.05), (0.9, 0.05, 0.05))
    page = answer_page(worse, 1, "fog", 0.9, 0.95)
    assert headline(page).startswith(f"{HOSTILE[0]}90.0 % sure. Not corrupted, it was {HOSTILE[1]}, with 85.0 %.")
    assert said(page).count(NO_PROMISE) == 2 and "on are right" not in said(page)
    assert "fog, severity 1" in said(page) and "verdict bad" in page


def test_what_is_not_promised_is_said() -> None:
    page = answer_page(answer_of((0.1, 0.85, 0.05)), 0, None, 0.8, 0.99)
    assert headline(page).endswith("How sure it must be for 99 % of answers to be right is not known.")
    assert "Nothing is promised for 80" in said(page)


@pytest.mark.parametrize("severity", [0, 3])
def test_without_a_temperature_there_is_one_column(severity: int) -> None:
    page = answer_page(answer_of((0.2, 0.7, 0.1), calibration=Calibration()), severity, None, 0.9, 0.95)
    shown = said(page)
    assert "before calibration" not in shown and "audit it to get one" in shown and "Prediction set" not in shown
    assert headline(page) == f"{HOSTILE[1]}70.0 % sure."


def test_nearly_certain_is_not_certain() -> None:
    shown = [sureness(share).replace(SPACE, " ") for share in (0, 0.0004, 0.0005, 0.5, 0.9994, 0.9995, 1)]
    assert shown == ["0.0 %", "&lt;0.1 %", "0.1 %", "50.0 %", "99.9 %", "&gt;99.9 %", "100.0 %"]


def test_the_curves_have_a_point_for_each_severity() -> None:
    worse = answer_of((0.1, 0.85, 0.05), (0.2, 0.6, 0.2))
    drawn = severity_curve(worse, 0.95).set_index(["curve", "severity"])["confidence"].to_dict()
    assert drawn == {
        ("confidence", "0"): 0.85,
        ("confidence", "1"): 0.6,
        ("before calibration", "0"): 1 / 3,
        ("before calibration", "1"): 1 / 3,
        ("answers from", "0"): 0.8,
        ("answers from", "1"): 0.8,
    }
    plain = severity_curve(answer_of((0.2, 0.7, 0.1), calibration=Calibration()), 0.95)
    assert plain["curve"].unique().tolist() == ["confidence"]
