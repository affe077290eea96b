"""The page about one image says what was promised, where it holds, and where the model had better not answer."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from page_reader import HOSTILE
from PIL import Image

from macs_hf.app.answer_markup import APPROXIMATE, NO_PROMISE, answer_page, sureness
from macs_hf.app.model_calibration import Calibration, stored_calibration
from macs_hf.app.prediction import Answer, Reading
from macs_hf.report.markup import SPACE

from .test_markup import said


KNOWN = Calibration(1.0, 2.0, {0.9: 0.4}, {0.9: 0.5, 0.95: 0.8})


def answer(*after: tuple[float, ...], calibration: Calibration = KNOWN) -> Answer:
    readings = tuple(Reading((1 / 3,) * 3, shares, {0.9: (0, 2)} if calibration.sets else {}) for shares in after)
    return Answer(tuple(HOSTILE), (Image.new("RGB", (8, 8)),) * len(after), readings, calibration)


def headline(page: str) -> str:
    return said(re.search(r"<header.*?</header>", page)[0]).replace("\u00a0", " ")


def test_a_sure_answer_carries_its_promise() -> None:
    page = answer_page(answer((0.1, 0.85, 0.05)), 0, None, 0.9, 0.95)
    assert headline(page) == f"{HOSTILE[1]}85.0 % sure. At least 95 % of answers from 80 % on are right."
    shown = said(page)
    assert "before calibration" in shown and "after calibration" in shown
    assert re.search(r"Prediction set.*right class", shown)
    assert [said(chip) for chip in re.findall(r'<span class="chip">.*?</span>', page)] == [HOSTILE[0], HOSTILE[2]]


def test_an_approximate_promise_says_so() -> None:
    page = answer_page(answer((0.1, 0.85, 0.05), calibration=replace(KNOWN, exact=False)), 0, None, 0.9, 0.95)
    assert headline(page) == f"{HOSTILE[1]}85.0 % sure. About 95 % of answers from 80 % on are right. {APPROXIMATE}"
    assert said(page).count(APPROXIMATE) == 2 and "At least" not in said(page)
    config = SimpleNamespace(prediction_set_thresholds={"lac": {"0.9": 0.4, "exact": False}})
    assert stored_calibration(config, 2.0) == Calibration(1.0, 2.0, {0.9: 0.4}, {}, exact=False)


def test_below_the_threshold_it_does_not_answer() -> None:
    page = answer_page(answer((0.1, 0.79, 0.11)), 0, None, 0.9, 0.95)
    assert headline(page).startswith("I would not answer")
    assert "It answers from 80 % on" in headline(page)
    assert not headline(answer_page(answer((0.1, 0.79, 0.11)), 0, None, 0.9, 0.9)).startswith("I would")


def test_no_promise_is_made_for_a_corrupted_image() -> None:
    worse = answer((0.1, 0.85, 0.05), (0.9, 0.05, 0.05))
    page = answer_page(worse, 1, "fog", 0.9, 0.95)
    assert headline(page).startswith(f"{HOSTILE[0]}90.0 % sure. Not corrupted, it was {HOSTILE[1]}, with 85.0 %.")
    assert said(page).count(NO_PROMISE) == 2 and "on are right" not in said(page)
    assert "fog, severity 1" in said(page) and "verdict bad" in page


def test_what_is_not_promised_is_said() -> None:
    page = answer_page(answer((0.1, 0.85, 0.05)), 0, None, 0.8, 0.99)
    assert headline(page).endswith("How sure it must be for 99 % of answers to be right is not known.")
    assert "Nothing is promised for 80" in said(page)


@pytest.mark.parametrize("severity", [0, 3])
def test_without_a_temperature_there_is_one_column(severity: int) -> None:
    page = answer_page(answer((0.2, 0.7, 0.1), calibration=Calibration()), severity, None, 0.9, 0.95)
    shown = said(page)
    assert "before calibration" not in shown and "audit it to get one" in shown and "Prediction set" not in shown
    assert headline(page) == f"{HOSTILE[1]}70.0 % sure."


def test_nearly_certain_is_not_certain() -> None:
    shown = [sureness(share).replace(SPACE, " ") for share in (0, 0.0004, 0.0005, 0.5, 0.9994, 0.9995, 1)]
    assert shown == ["0.0 %", "&lt;0.1 %", "0.1 %", "50.0 %", "99.9 %", "&gt;99.9 %", "100.0 %"]
