"""Several files that change together: written beside those they replace, then moved into place."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


# Where files are written, and what says that all of them are.
DRAFT = "_writing"
COMPLETE = "complete.json"


@contextmanager
def atomic_folder(folder: str | Path, *, replaces: Sequence[str] = (), last: str = "config.json") -> Iterator[Path]:
    """
    A new folder to write files into, which at the end of the block take the places of the files of `folder`. If the
    block fails, for example because the disk is full, nothing of `folder` has changed.

    If the process is killed while the files are moved, [`finish_writing`] moves the rest. Until then there is no file
    `last`, so that nobody takes a mixture of old and new files for a model.

    Args:
        folder (`str` or `Path`): The folder to change, made if it is not there.
        replaces (`Sequence[str]`, *optional*): Patterns of files of `folder` that are removed if the block writes none
            of their name.
        last (`str`, *optional*, defaults to `"config.json"`): The file that is moved last.
    """
    folder = Path(folder)
    place = folder / DRAFT
    shutil.rmtree(place, ignore_errors=True)
    # Named as the folder: pictures show the name of a run.
    draft = place / folder.absolute().name
    try:
        draft.mkdir(parents=True)
        yield draft
        for path in draft.iterdir():
            _sync(path)
        removed = {path.name for pattern in replaces for path in folder.glob(pattern) if path.is_file()}
        removed -= {path.name for path in draft.iterdir()}
        plan = {"draft": draft.name, "removed": sorted(removed), "last": last}
        unfinished = place / f"{COMPLETE}.tmp"
        unfinished.write_text(json.dumps(plan))
        _sync(unfinished)
        for path in draft.iterdir():
            with suppress(PermissionError):  # some network disks have no modes
                path.chmod(unfinished.stat().st_mode)  # safetensors lets nobody but the owner read its files
        unfinished.replace(place / COMPLETE)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    finish_writing(folder)


def finish_writing(folder: str | Path) -> None:
    """Move the files of an interrupted [`atomic_folder`] into place if all of them were written, else remove them."""
    folder = Path(folder)
    place = folder / DRAFT
    if place.is_symlink() or not place.is_dir():
        return
    if (plan := _plan(place)) is not None:
        draft, last = place / plan["draft"], plan["last"]
        if blocked := sorted(path.name for path in draft.iterdir() if _is_folder(folder / path.name)):
            raise FileExistsError(
                f"{str(folder / blocked[0])!r} is a folder, where an interrupted command has a file to put. Move it "
                f"away, or delete {str(place)!r} to do without what that command had written."
            )
        if (draft / last).exists():
            (folder / last).unlink(missing_ok=True)
        for name in plan["removed"]:
            if not _is_folder(folder / name):  # that is somebody else's
                (folder / name).unlink(missing_ok=True)
        for path in sorted(draft.iterdir(), key=lambda path: (path.name == last, path.name)):
            path.replace(folder / path.name)
    shutil.rmtree(place, ignore_errors=True)


def write_text_atomically(path: str | Path, text: str) -> None:
    """Write a file of text whole: whoever reads it meanwhile, or after a crash, has the old one or the new one."""
    path = Path(path)
    draft = path.with_name(f"{path.name}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _plan(place: Path) -> dict[str, Any] | None:
    """What is to be done with a draft; `None` if it is not complete, or if it would touch anything outside."""
    try:
        plan = json.loads((place / COMPLETE).read_text(encoding="utf-8"))
        names = [plan["draft"], plan["last"], *plan["removed"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if any(not isinstance(name, str) or Path(name).name != name or name == os.pardir for name in names):
        return None
    draft = place / plan["draft"]
    if not draft.is_dir() or draft.is_symlink():
        return None
    return plan if all(path.is_file() and not path.is_symlink() for path in draft.iterdir()) else None


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _sync(path: Path) -> None:
    """Have the operating system write a file to the disk, where errors of writing may show only now."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
