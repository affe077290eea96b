"""What several processes of a launch say once."""

import os
import signal
from pathlib import Path

import pytest

from macs_hf.cli import once
from macs_hf.cli.errors import ends_on_signals, plain_errors
from macs_hf.cli.once import SECONDS, is_explained, is_first_to_say


@pytest.fixture(autouse=True)
def own_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once.tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")


def test_a_single_process_says_everything(tmp_path: Path) -> None:
    assert is_first_to_say("no") and is_first_to_say("no") and not is_explained()
    assert not list(tmp_path.iterdir())


def test_the_same_sentence_once_and_others_too(of_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_first_to_say(text) for text in ("a", "a", "b")] == [True, False, True]
    monkeypatch.setenv("MASTER_PORT", "12345")  # another launch
    assert not is_explained() and is_first_to_say("a") and is_explained()


def test_old_marks_hide_nothing(of_two: None, tmp_path: Path) -> None:
    assert is_first_to_say("a")
    (mark,) = tmp_path.iterdir()
    os.utime(mark, (mark.stat().st_mtime - SECONDS - 1,) * 2)
    assert not is_explained() and is_first_to_say("a")


def test_an_error_that_all_have_is_one_sentence(of_two: None, capsys: pytest.CaptureFixture) -> None:
    for _ in range(2):
        with pytest.raises(SystemExit) as ended, plain_errors("macs-hf train"):
            raise ValueError("seed='x' is no number.")
        assert ended.value.code == 2
    assert capsys.readouterr().err.count("seed='x' is no number.") == 1


@pytest.mark.parametrize("explained", [False, True])
def test_a_launcher_that_stops_the_others_is_no_news(
    explained: bool, of_two: None, capsys: pytest.CaptureFixture
) -> None:
    if explained:
        is_first_to_say("macs-hf train: the disk is full")
    with pytest.raises(SystemExit) as ended, ends_on_signals("macs-hf train", lambda: "Start it again."):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143
    assert ("Start it again." in capsys.readouterr().err) != explained
