"""A folder belongs to one run: one command at a time writes into it, and it holds the results of that run only."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .atomic_writes import finish_writing, write_text_atomically
from .secrets import redact


# What a run was asked to do.
IDENTITY_FILE = "run.json"
LOCK_FILE = "run.lock"
# What commands write. A folder that has any of these holds results.
RESULTS = (
    *("checkpoint-[0-9]*", "*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*", "training_args.bin"),
    *("config.json", "preprocessor_config.json", "card.json", "README.md"),
    *("evaluation.json", "samples.parquet", "report.html", "reliability.png", "risk_coverage.png", "corruptions.png"),
    *("severity.png", "classes.png", "confusion.png", "groups.png", "mistakes.png"),
    *("trainer_state.json", "train_results.json", "all_results.json"),
)


@contextmanager
def locked_folder(folder: str | Path, hold: bool = True) -> Iterator[None]:
    """
    Inside the block no other command writes into `folder`, which is made if it is not there, and removed again if
    nothing was written. The operating system frees the lock of a process that dies.

    Args:
        folder (`str` or `Path`): The run's folder.
        hold (`bool`, *optional*, defaults to `True`): `False` for all processes of a run but the main one.

    Raises:
        `FileExistsError`: If another command is writing there.
        `OSError`: If nothing can be written there.
    """
    if not hold:
        yield
        return
    folder = Path(folder)
    made = _make(folder)
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FileExistsError(
            f"{str(folder)!r} is in use: another command is writing into it. Wait for its end, or choose another "
            "output_dir."
        ) from None
    except OSError as error:
        raise _cannot_write(folder, error) from error
    try:
        finish_writing(folder)  # what an earlier command was about to move into place when it was killed
        yield
    finally:
        if folder in made and {path.name for path in folder.iterdir()} == {LOCK_FILE, IDENTITY_FILE}:
            (folder / IDENTITY_FILE).unlink()
        (folder / LOCK_FILE).unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # not empty
            for path in made:
                path.rmdir()


def claim_folder(
    folder: str | Path,
    identity: Mapping[str, Any],
    *,
    continues: str | None = None,
    changeable: Sequence[str] = (),
    advice: str = "",
) -> None:
    """
    Make `folder` that of the run which `identity` describes, on record in `run.json`.

    Args:
        folder (`str` or `Path`): The run's folder.
        identity (`Mapping[str, Any]`): What makes a run the same run when it is started again.
        continues (`str`, *optional*): The checkpoint that the user named to continue from. If it is one of this
            folder, the run may go on with other values of `changeable`, and without a record of its own.
        changeable (`Sequence[str]`, *optional*): Parts of `identity`.
        advice (`str`, *optional*): What else the user can do if the folder is another run's.

    Raises:
        `FileExistsError`: If it holds results of another run, or of an unknown one.
    """
    folder = Path(folder)
    plain = _stated(json.loads(redact(json.dumps(identity))))
    if held := sorted(path.name for pattern in RESULTS for path in folder.glob(pattern)):
        earlier = _read(folder / IDENTITY_FILE)
        own = continues is not None and Path(continues).resolve().is_relative_to(folder.resolve())
        if not _is_same(earlier, plain, own, changeable):
            what = held[0] if earlier is None else "the results"
            raise FileExistsError(
                f"{str(folder)!r} holds {what} of another run ({_differences(earlier, plain)}). Choose another "
                f"output_dir, or delete this one{advice}."
            )
    if _read(folder / IDENTITY_FILE) != plain:  # the other processes of a run find it written
        _make(folder)
        write_text_atomically(folder / IDENTITY_FILE, json.dumps(plain, indent=2) + "\n")


def _is_same(earlier: dict[str, Any] | None, identity: dict[str, Any], own: bool, changeable: Sequence[str]) -> bool:
    if earlier is None:
        return own
    left_out = changeable if own else ()
    return all(earlier.get(name) == identity.get(name) for name in {**earlier, **identity} if name not in left_out)


def _stated(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for: an argument that was left out, or that an earlier version did not have, says nothing."""
    return {name: value for name, value in identity.items() if value is not None}


def _differences(earlier: dict[str, Any] | None, identity: Mapping[str, Any]) -> str:
    if earlier is None:
        return "it has no record of what made it"
    names = [name for name in earlier | identity if earlier.get(name) != identity.get(name)]
    if "command" in names:  # then nearly everything differs
        return f"made by another command, {earlier.get('command', 'train')}"
    return ", ".join(f"{name}: {_given(earlier, name)}, now {_given(identity, name)}" for name in names)


def _given(identity: Mapping[str, Any], name: str) -> str:
    return repr(identity[name]) if name in identity else "not given"


def _read(record: Path) -> dict[str, Any] | None:
    """What a run left about itself; `None` if there is nothing that can be read."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it; returns the ones that were not there, the innermost first."""
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return missing


def _cannot_write(folder: Path, error: OSError) -> OSError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return type(error)(
        f"output_dir={str(folder)!r} cannot be written to: {reason}. Choose another folder, or a copy of this one."
    )
