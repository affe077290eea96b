"""Files that change together: all of them or none, also if the process dies in between."""

import json
import os
from pathlib import Path

import pytest

from macs_hf.report.run_folder import atomic_folder, finish_writing, write_text_atomically


OLD = {"config.json": "old", "model.safetensors": "old", "model-1.safetensors": "old", "notes.txt": "mine"}
NEW = {"config.json": "new", "model.safetensors": "new", "evaluation.json": "new"}
AFTER = NEW | {"notes.txt": "mine"}


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def write(folder: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", OLD)
    return tmp_path / "run"


def test_all_of_them(folder: Path) -> None:
    with atomic_folder(folder, replaces=("model*.safetensors",)) as draft:
        write(draft, NEW)
        assert files(folder) == OLD
    assert files(folder) == AFTER and not (folder / "_writing").exists()


def test_files_are_readable_by_whom_the_user_lets_read(folder: Path) -> None:
    with atomic_folder(folder) as draft:
        write(draft, NEW)
        (draft / "model.safetensors").chmod(0o600)  # as safetensors leaves it
    usual = (folder / "notes.txt").stat().st_mode
    assert {(folder / name).stat().st_mode for name in NEW} == {usual}


@pytest.mark.parametrize("count", range(len(NEW) + 1))
def test_or_none(folder: Path, count: int) -> None:
    with pytest.raises(OSError, match="full"), atomic_folder(folder, replaces=("model*.safetensors",)) as draft:
        write(draft, dict(list(NEW.items())[:count]))
        raise OSError("full")
    assert files(folder) == OLD and not (folder / "_writing").exists()


@pytest.mark.parametrize("at", range(12))
def test_a_process_that_dies_between_two_changes(folder: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the operating system was asked to change last: old, or new, or no model; and new afterwards."""
    asked = []

    def dying(change: str) -> None:
        original = getattr(os, change)

        def call(path: os.PathLike, *args: object, **kwargs: object) -> object:
            asked.append(change)
            if len(asked) > at:
                raise KeyboardInterrupt
            return original(path, *args, **kwargs)

        monkeypatch.setattr(os, change, call)

    complete = folder / "_writing" / "complete.json"
    try:
        with atomic_folder(folder, replaces=("model*.safetensors",)) as draft:
            write(draft, NEW)
            for change in ("replace", "unlink", "rmdir"):
                dying(change)
    except KeyboardInterrupt:
        pass
    finally:
        monkeypatch.undo()
    was_complete = complete.exists()
    state = files(folder)
    assert state in (OLD, AFTER) or "config.json" not in state
    finish_writing(folder)
    assert files(folder) == (AFTER if was_complete or state == AFTER else OLD)
    assert not (folder / "_writing").exists()


@pytest.mark.parametrize(
    "plan",
    [
        None,  # cut off
        {"removed": ["../mine"]},
        {"removed": [3]},
        {},
        [],
    ],
)
def test_a_plan_that_is_not_whole_or_from_elsewhere_touches_nothing(folder: Path, plan: object) -> None:
    (folder.parent / "mine").write_text("mine")
    (folder / "_writing" / "files").mkdir(parents=True)
    write(folder / "_writing" / "files", {"config.json": "half"})
    if plan is not None:
        (folder / "_writing" / "complete.json").write_text(json.dumps(plan))
    finish_writing(folder)
    assert files(folder) == OLD and (folder.parent / "mine").read_text() == "mine"
    assert not (folder / "_writing").exists()


def test_a_draft_with_folders_is_none_of_ours(folder: Path) -> None:
    draft = folder / "_writing" / "files"
    (draft / "checkpoint-1").mkdir(parents=True)
    write(draft, NEW)
    (folder / "_writing" / "complete.json").write_text('{"removed": []}')
    finish_writing(folder)
    assert files(folder) == OLD and not (folder / "_writing").exists()


def test_a_link_in_place_of_a_draft_is_not_followed(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    (elsewhere / "files").mkdir(parents=True)
    (elsewhere / "complete.json").write_text('{"removed": []}')
    (folder / "_writing").symlink_to(elsewhere)
    finish_writing(folder)
    assert (elsewhere / "complete.json").exists() and files(folder) == OLD


def test_text_is_replaced_and_links_are_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "README.md").symlink_to(tmp_path / "target")
    write_text_atomically(tmp_path / "README.md", "card")
    assert (tmp_path / "README.md").read_text() == "card" and (tmp_path / "target").read_text() == "mine"
    monkeypatch.setattr(Path, "replace", lambda *args: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_text_atomically(tmp_path / "README.md", "other")
    assert (tmp_path / "README.md").read_text() == "card" and not list(tmp_path.glob("*.tmp"))
