"""`macs-hf train` in this process, in a folder of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macs_hf import MaCSTrainer
from macs_hf.cli import train


Run = Callable[..., MaCSTrainer]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than to train a tiny model."""
    monkeypatch.setattr("macs_hf.rendering.html.report_pictures", lambda report: [])


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command with the module's `QUICK` arguments, and returns its trainer."""
    monkeypatch.chdir(tmp_path)

    def main(*argv: str, callbacks: Any = None) -> MaCSTrainer:
        made: list[MaCSTrainer] = []

        class Kept(MaCSTrainer):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs, callbacks=callbacks)
                made.append(self)

        monkeypatch.setattr(train, "MaCSTrainer", Kept)
        train.main([*request.module.QUICK, *argv])
        return made[0]

    return main
