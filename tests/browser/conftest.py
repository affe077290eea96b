"""The real app in a process of its own, and Debian's Chromium."""

import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from page_reader import HOSTILE

from macs_hf.cli.main import main

from ..app.small_run import free_port, save_data, save_model, save_zip


if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SECONDS = 120  # for a page or an audit, on a busy machine
OWN = ("data:", "blob:")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, one whose names are markup, their data, a zip, and two runs on the same images."""
    folder = tmp_path_factory.mktemp("browser")
    save_model(folder / "model", temperature=0.5, guarantees=True)
    save_model(folder / "calm", temperature=4.0)
    save_data(folder / "data", test=600)  # so many that an audit can be cancelled
    save_model(folder / "hostile", HOSTILE)
    save_data(folder / "hostile-data", HOSTILE)
    save_zip(folder / "photos.zip")
    (folder / "broken.zip").write_bytes(b"no zip at all")
    for name in ("model", "calm"):
        where = ["--dataset", folder / "data", "--output_dir", folder / "runs" / name]
        assert main([*map(str, ["evaluate", folder / name, *where]), "--cpu"]) == 0
    return folder


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    """The address of the app, started as people start it."""
    port = free_port()
    command = [sys.executable, "-m", "macs_hf.cli", "app", "model", "--dataset", "data", "--port", str(port)]
    log = folder / "app.log"
    with log.open("wb") as file:
        app = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file)
    try:
        wait_for(app, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        app.terminate()
        app.wait(30)


def wait_for(app: subprocess.Popen, address: str, log: Path) -> None:
    """Until it answers."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            assert app.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.2)


@pytest.fixture(scope="session")
def chromium() -> "Iterator[Browser]":
    sync_api = pytest.importorskip("playwright.sync_api")
    assert CHROMIUM, "install Chromium: apt-get install chromium"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: "Browser", url: str) -> "Iterator[Callable[..., Page]]":
    """Opens the page as a new visitor; errors in its scripts, and requests to elsewhere, fail the test."""
    contexts, errors, foreign = [], [], []

    def open_page(width: int = 1200, scheme: str = "light") -> "Page":
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(1000 * SECONDS)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith((*OWN, url)) else foreign.append(sent.url))
        page.goto(url)
        page.locator("#start").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors and not foreign
