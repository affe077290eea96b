"""One image through a model: its probabilities, what is guaranteed for it, and where it had better not answer."""

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
    CORRUPTED,
    Answer,
    Calibration,
    answer,
    answer_page,
    classifier,
    stored_calibration,
    sureness,
)
from macs_hf.corruptions import corrupt
from macs_hf.report.text import SPACE

from .small_run import ANSWERS, CLASSES, SETS, picture, save_model


TEMPERATURE = 4.0
KNOWN = Calibration(2.0, {0.9: 0.4}, {0.9: 0.5, 0.95: 0.8})


# ---- The answer ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("trying") / "model", temperature=TEMPERATURE, guarantees=True)


def logits_of(folder: Path, pixels: torch.Tensor) -> torch.Tensor:
    """By transformers alone, of uint8 images at the network's size."""
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]
    with torch.no_grad():
        return model(**processor(images, return_tensors="pt")).logits.double()


def test_probabilities_are_those_of_transformers_for_the_corruptions_of_the_benchmark(folder: Path) -> None:
    image, model = picture(2, 7), classifier(str(folder))
    assert model is classifier(str(folder))  # visitors share it
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    worse = torch.cat([pixels, corrupt(pixels, "gaussian_noise", 3)])
    found = answer(model, image, "gaussian_noise", 3, model.stored)
    assert (found.label_names, found.corruption) == (tuple(CLASSES), "gaussian noise, severity 3")
    assert list(found.picture.tobytes()) == worse[1].permute(1, 2, 0).flatten().tolist()
    logits = logits_of(folder, worse)
    torch.testing.assert_close(found.after.exp(), logits.softmax(1), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.before.exp(), (logits * TEMPERATURE).softmax(1), rtol=1e-4, atol=1e-6)
    name, confidence = found.prediction()
    assert (name, confidence) == (CLASSES[logits[1].argmax()], pytest.approx(float(logits[1].softmax(0).max()), 1e-4))
    plain = answer(model, image, "fog", 0, Calibration())
    assert plain.corruption == ""
    torch.testing.assert_close(plain.after, found.before[:1], rtol=1e-4, atol=1e-5)


def test_sets_hold_the_classes_below_the_threshold(folder: Path) -> None:
    model = classifier(str(folder))
    known = model.stored
    assert known.temperature == TEMPERATURE
    assert known.sets == {float(level): value for level, value in SETS.items()}
    assert known.answers == {float(level): value for level, value in ANSWERS.items()}
    found = answer(model, picture(0, 1), "fog", 0, known)
    shares = dict(zip(CLASSES, found.after[0].exp().tolist(), strict=True))
    for coverage, threshold in known.sets.items():
        expected = {name for name, share in shares.items() if 1 - share <= threshold} | {found.prediction()[0]}
        assert found.prediction_set(coverage) == sorted(expected, key=shares.get, reverse=True)
    assert found.prediction_set(0.99) is None


# ---- The page ----


def answer_of(*after: tuple[float, ...], calibration: Calibration = KNOWN) -> Answer:
    shares = torch.tensor(after, dtype=torch.float64).log()
    before, corruption = torch.full_like(shares, 1 / 3).log(), "fog, severity 1" if len(after) > 1 else ""
    return Answer(tuple(HOSTILE), Image.new("RGB", (8, 8)), before, shares, calibration, corruption)


def headline(page: str) -> str:
    return said(re.search(r"<header.*?</header>", page)[0]).replace("\u00a0", " ")


def test_a_sure_answer_carries_its_guarantee() -> None:
    sure = answer_of((0.1, 0.85, 0.05), calibration=replace(KNOWN, sets={0.9: 0.9}))
    page = answer_page(sure, 0.9, 0.95)
    assert headline(page) == f"{HOSTILE[1]}85.0 % sure. At least 95 % of answers from 80 % on are right."
    assert "before calibration" in said(page) and "after calibration" in said(page)
    assert [said(chip) for chip in re.findall(r'<span class="chip">.*?</span>', page)] == [HOSTILE[1], HOSTILE[0]]
    nothing = answer_page(sure, 0.8, 0.99)
    assert "is not known" in headline(nothing) and "chip" not in nothing


def test_an_approximate_guarantee_says_so() -> None:
    page = answer_page(answer_of((0.1, 0.85, 0.05), calibration=replace(KNOWN, exact=False)), 0.9, 0.95)
    assert said(page).count(APPROXIMATE) == 2 and "About 95" in headline(page) and "At least" not in said(page)
    config = SimpleNamespace(prediction_set_thresholds={"lac": {"0.9": 0.4, "exact": False}})
    assert stored_calibration(config, 2.0) == Calibration(2.0, {0.9: 0.4}, {}, exact=False)


def test_below_the_threshold_it_does_not_answer() -> None:
    unsure = answer_of((0.1, 0.79, 0.11))
    assert headline(answer_page(unsure, 0.9, 0.95)).startswith("I would not answer")
    assert headline(answer_page(unsure, 0.9, 0.9)).startswith(HOSTILE[1])


def test_nothing_is_guaranteed_for_a_corrupted_image() -> None:
    page = answer_page(answer_of((0.1, 0.85, 0.05), (0.9, 0.05, 0.05)), 0.9, 0.95)
    assert headline(page).startswith(f"{HOSTILE[0]}90.0 % sure. Not corrupted, it was {HOSTILE[1]}, with 85.0 %.")
    assert said(page).count(CORRUPTED) == 2 and "on are right" not in said(page)
    assert "fog, severity 1" in said(page) and "verdict bad" in page


def test_without_a_temperature_there_is_one_column() -> None:
    page = answer_page(answer_of((0.2, 0.7, 0.1), calibration=Calibration()), 0.9, 0.95)
    assert page.count("<ol") == 1 and "Prediction set" not in page
    assert headline(page) == f"{HOSTILE[1]}70.0 % sure."


def test_nearly_certain_is_not_certain() -> None:
    shown = [sureness(share).replace(SPACE, " ") for share in (0, 0.0004, 0.0005, 0.5, 0.9994, 0.9995, 1)]
    assert shown == ["0.0 %", "&lt;0.1 %", "0.1 %", "50.0 %", "99.9 %", "&gt;99.9 %", "100.0 %"]
