"""What `macs-hf push --space` pushes, started from its own files alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from loopback_hub.server import HubServer

from macs_hf.publishing.push import PORT, push_folder, push_space

from ..app.small_run import free_port, picture, save_data, save_model
from .conftest import SECONDS, wait_for


if TYPE_CHECKING:
    import pytest
    from playwright.sync_api import Browser


def test_a_pushed_space_serves_its_model(
    chromium: "Browser", hub: HubServer, tmp_path: Path, monkeypatch: "pytest.MonkeyPatch"
) -> None:
    run = save_model(tmp_path / "run", temperature=2.0, guarantees=True)
    save_data(tmp_path / "secret-data")
    push_folder(run, "alice/insects")
    push_space("alice/insects", run)
    port = free_port()
    for name, content in hub.files("alice/insects", "space").items():
        path = tmp_path / "space" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.replace(PORT.encode(), str(port).encode()) if name == "app.py" else content)
    environment = os.environ | hub.env(token=None) | {"PYTHONPATH": ""}  # nothing of this clone, and nobody's token
    log = tmp_path / "app.log"
    with log.open("wb") as file:
        command = [sys.executable, "app.py"]
        app = subprocess.Popen(command, cwd=tmp_path / "space", env=environment, stdout=file, stderr=file)
    try:
        wait_for(app, f"http://127.0.0.1:{port}", log)
        page = chromium.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.goto(f"http://127.0.0.1:{port}")
        page.get_by_role("tab", name="Try", exact=True).click()
        picture(1, 3).save(tmp_path / "given.png")
        page.locator("#try-image input[type=file]").set_input_files(tmp_path / "given.png")
        page.locator("#answer .verdict").wait_for()
        assert "after calibration" in page.locator("#answer").inner_text()
        page.get_by_role("tab", name="Audit", exact=True).click()
        page.locator("#dataset textarea, #dataset input").first.fill(str(tmp_path / "secret-data"))
        page.locator("#start").click()
        page.get_by_text("is no public dataset").wait_for()
        page.close()
    finally:
        app.terminate()
        app.wait(30)
