"""The page in a real browser: what a visitor does, from the first click to the download."""

import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from page_reader import HOSTILE

from ..app.small_run import free_port, picture
from .conftest import SECONDS, wait_for


if TYPE_CHECKING:
    from playwright.sync_api import Page

Visit = Callable[..., "Page"]


def tab(page: "Page", name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def audit(page: "Page", **fields: str) -> None:
    for name, value in fields.items():
        page.locator(f"#{name} textarea, #{name} input").first.fill(value)
    page.locator("#start").click()


def finished(page: "Page") -> str:
    """The verdict, once it is there and the form can be used again."""
    page.locator("#report .verdict h2").wait_for()
    page.wait_for_selector("#start:not([disabled])")
    return page.locator("#report .verdict").inner_text()


def give_image(page: "Page", folder: Path, label: int = 0) -> None:
    picture(label, 3).save(folder / "given.png")
    page.locator("#try-image input[type=file]").set_input_files(folder / "given.png")


def test_audit_from_the_form_to_the_download(visit: Visit, tmp_path: Path) -> None:
    page = visit()
    page.get_by_role("radio", name="100", exact=True).check()
    audit(page)
    page.locator("#status .progress").wait_for()
    said = finished(page)
    assert "Overconfident" in said and "It is right on" in said and "of corrupted ones" in said
    report = page.locator("#report").inner_text()
    for title in ("Risk and coverage", "Classes", "Mistakes it was sure of", "orruption"):
        assert title in report
    assert "[" in page.locator("#report table").first.inner_text()  # intervals
    broken = "[...document.querySelectorAll('#report img')].filter(image => !image.naturalWidth).length"
    assert page.evaluate(broken) == 0
    page.locator("#prepare").click()
    page.locator("#download").wait_for()
    with page.expect_download() as download:
        page.locator("#download").click()
    download.value.save_as(tmp_path / "model.zip")
    names = [Path(name).name for name in zipfile.ZipFile(tmp_path / "model.zip").namelist()]
    assert {"model.safetensors", "README.md", "evaluation.json"} <= set(names)


def test_try_an_image_with_the_sliders(visit: Visit, tmp_path: Path) -> None:
    page = visit()
    tab(page, "Try")
    give_image(page, tmp_path)
    answer = page.locator("#answer")
    answer.locator(".verdict").wait_for()
    text = answer.inner_text()
    assert "before calibration" in text and "after calibration" in text and "not corrupted" in text
    assert re.search(r"\d+\.\d\s%", text)
    page.locator("#coverage").get_by_text("80 %").click()
    answer.get_by_text("with a probability of 80").wait_for()
    page.locator("#corruption input").click()
    page.get_by_role("option", name="noise: shot noise").click()
    page.locator("#severity input[type=range]").fill("4")
    answer.get_by_text("shot noise, severity 4").wait_for()
    answer.get_by_text("not for corrupted ones").first.wait_for()
    page.locator("#accuracy").get_by_text("95 %").click()
    answer.get_by_text("I would not answer").wait_for()


def test_compare_runs(visit: Visit) -> None:
    page = visit()
    tab(page, "Compare")
    for name in ("runs/calm", "runs/model"):
        page.locator("#runs input").click()
        page.get_by_role("option", name=name, exact=True).click()
    page.locator("#comparison table").wait_for()
    text = page.locator("#comparison").inner_text()
    assert "Compared with calm" in text
    assert "worse in: Negative log-likelihood, Calibration error" in text


def test_whoever_cancels_or_leaves_frees_the_queue(visit: Visit) -> None:
    gone, page = visit(), visit()
    for one in (gone, page):
        one.get_by_role("radio", name="All", exact=True).check()
        audit(one)
    gone.get_by_text("19 corruptions x 5").wait_for()
    gone.close()
    page.get_by_text("19 corruptions x 5").wait_for()
    page.locator("#cancel").click()
    page.get_by_text("Cancelled.").wait_for()
    page.wait_for_selector("#start:not([disabled])")
    page.get_by_role("radio", name="None", exact=True).check()
    audit(page)
    assert "It is right on" in finished(page)


def test_a_zip_of_class_folders_and_a_broken_one(visit: Visit, folder: Path) -> None:
    page = visit()
    page.locator("#archive input[type=file]").set_input_files(folder / "broken.zip")
    page.locator("#archive").get_by_label("broken.zip").wait_for()
    audit(page)
    page.locator("#status [role=alert]").wait_for()
    page.wait_for_selector("#start:not([disabled])")
    page.locator("#cancel").wait_for(state="hidden")
    assert "not a zip that can be read" in page.locator("#status").inner_text()
    page.locator("#archive").get_by_label(re.compile("clear|remove", re.IGNORECASE)).first.click()
    page.locator("#archive input[type=file]").set_input_files(folder / "photos.zip")
    page.locator("#archive").get_by_label("photos.zip").wait_for()
    audit(page)
    assert "on photos, test" in finished(page)


def test_names_with_markup_are_only_names(visit: Visit, tmp_path: Path) -> None:
    page = visit()
    audit(page, model="hostile", dataset="hostile-data")
    finished(page)
    report = page.locator("#report").inner_text()
    for name in HOSTILE:
        assert name in report
    tab(page, "Try")
    give_image(page, tmp_path)
    for name in HOSTILE:  # the model that was audited answers, also where the image came before its name was passed on
        page.locator("#answer").get_by_text(name).first.wait_for()
    assert page.evaluate("window.pwned") is None
    assert page.locator("#report img[src=x]").count() == 0


def test_a_signal_ends_the_app_and_deletes_what_it_kept(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "app.log"
    kept = tmp_path / "kept"
    kept.mkdir()
    with log.open("wb") as file:
        command = [sys.executable, "-m", "macs_hf.cli", "app", "--port", str(port)]
        app = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, "TMPDIR": str(kept)})
    wait_for(app, f"http://127.0.0.1:{port}", log)
    assert list(kept.glob("macs-hf-app-*"))
    app.terminate()
    assert app.wait(SECONDS) == 128 + signal.SIGTERM
    assert not list(kept.glob("macs-hf-app-*"))


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_nothing_is_wider_than_the_window(width: int, scheme: str, visit: Visit) -> None:
    page = visit(width, scheme)
    for name in ("Audit", "Try", "Compare"):
        tab(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
