"""The folder of a run: one command at a time writes into it, whole files or none, no secrets and no local paths."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..exceptions import ArgumentError


# ---- A folder belongs to one run ----


REPORT_FILE = "evaluation.json"
ROWS_FILE = "samples.parquet"
# The report with its pictures as one page, to read and to mail.
PAGE_FILE = "report.html"
# Pictures that may lie beside the report, and what they show.
PICTURES = {
    "reliability.png": "Reliability diagram: accuracy against confidence, without and with the temperature",
    "risk_coverage.png": "Risk and coverage: the share of wrong answers if only the surest images are answered",
    "corruptions.png": "Accuracy by corruption and severity",
    "severity.png": "Accuracy and calibration by severity",
    "classes.png": "Accuracy and confidence of each class, worst first",
    "confusion.png": "How often each class was taken for each",
    "groups.png": "Accuracy and confidence of each group, worst first",
}
# A picture of test images: it is neither shown nor pushed unless the user asks for it.
GALLERY = "mistakes.png"
# What a run was asked to do.
IDENTITY_FILE = "run.json"
LOCK_FILE = "run.lock"
# Weights, by the names that transformers and PEFT give them.
WEIGHTS_FILE = "model.safetensors"
WEIGHTS_INDEX = f"{WEIGHTS_FILE}.index.json"
ADAPTER_FILE = "adapter_model.safetensors"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
# What commands write. A folder that has any of these holds results.
RESULTS = (
    *("checkpoint-[0-9]*", "*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*", "training_args.bin"),
    *("config.json", "preprocessor_config.json", "card.json", "README.md"),
    *(REPORT_FILE, ROWS_FILE, PAGE_FILE, *PICTURES, GALLERY),
    *("trainer_state.json", "train_results.json", "all_results.json"),
)


@contextmanager
def locked_folder(folder: str | Path, hold: bool = True) -> Iterator[None]:
    """
    Inside the block no other command writes into `folder`, which is made if it is not there, and removed again if
    nothing was written. The operating system frees the lock of a process that dies. Of a run's processes only the main
    one holds it.
    """
    if not hold:
        yield
        return
    folder = Path(folder)
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()]  # the innermost first
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise FileExistsError(
            f"{str(folder)!r} is in use: another command is writing into it. Wait for its end, or choose another "
            "output_dir."
        ) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise type(error)(
            f"output_dir={str(folder)!r} cannot be written to: {reason}. Choose another folder, or a copy of this one."
        ) from error
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
    Make `folder` that of the run which `identity` describes, on record in `run.json`; a `FileExistsError` if it holds
    results of another run, or of an unknown one. A run that `continues` from a checkpoint of this folder may have
    other values of the `changeable` parts of its identity, and no record of its own.
    """
    folder = Path(folder)
    # What was asked for: an argument that was left out, or that an earlier version did not have, says nothing.
    plain = json.loads(redact(json.dumps({name: part for name, part in identity.items() if part is not None})))
    earlier = _read(folder / IDENTITY_FILE)
    if held := sorted(path.name for pattern in RESULTS for path in folder.glob(pattern)):
        own = continues is not None and Path(continues).resolve().is_relative_to(folder.resolve())
        why = "" if own else "it has no record of what made it"
        if earlier is not None:
            names = [name for name in earlier | plain if earlier.get(name) != plain.get(name)]
            names = [name for name in names if not (own and name in changeable)]
            names = ["command"] if "command" in names else names  # then nearly everything differs
            why = ", ".join(f"{name}: {earlier.get(name)!r}, now {plain.get(name)!r}" for name in names)
        if why:
            raise FileExistsError(
                f"{str(folder)!r} has results of another run, such as {held[0]} ({why}). Choose another "
                f"output_dir, or delete this one{advice}."
            )
    if earlier != plain:  # the other processes of a run find it written
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(folder / IDENTITY_FILE, json.dumps(plain, indent=2) + "\n")


def _read(record: Path) -> dict[str, Any] | None:
    """What a run left about itself; `None` if there is nothing that can be read."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# ---- Files that change together ----
# They are written beside those they replace, then moved into place.


DRAFT = "_writing"  # the folder of what is being written, in `FILES`
FILES = "files"
COMPLETE = "complete.json"  # that all is written, and which files it replaces
LAST = "config.json"


@contextmanager
def atomic_folder(folder: str | Path, *, replaces: Sequence[str] = ()) -> Iterator[Path]:
    """
    A new folder to write files into, which at the end of the block take the places of the files of `folder`. If the
    block fails, for example because the disk is full, nothing of `folder` has changed.

    If the process is killed while the files are moved, [`finish_writing`] moves the rest. Until then there is no
    `config.json`, so that nobody takes a mixture of old and new files for a model. Files of the patterns `replaces`
    are removed if the block writes none of their name.
    """
    folder = Path(folder)
    place = folder / DRAFT
    draft = place / FILES
    shutil.rmtree(place, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        yield draft
        for path in draft.iterdir():
            _sync(path)
        removed = {path.name for pattern in replaces for path in folder.glob(pattern) if path.is_file()}
        removed -= {path.name for path in draft.iterdir()}
        unfinished = place / f"{COMPLETE}.tmp"
        unfinished.write_text(json.dumps({"removed": sorted(removed)}))
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
    if (removed := _removed(place)) is not None:
        new = sorted(place.joinpath(FILES).iterdir(), key=lambda path: (path.name == LAST, path.name))
        if new and new[-1].name == LAST:
            (folder / LAST).unlink(missing_ok=True)
        for name in removed:
            (folder / name).unlink(missing_ok=True)
        for path in new:
            path.replace(folder / path.name)
    shutil.rmtree(place, ignore_errors=True)


def _removed(place: Path) -> list[str] | None:
    """Which files only go; `None` if the draft is not whole, or the plan would touch anything outside."""
    names, draft = (_read(place / COMPLETE) or {}).get("removed"), place / FILES
    if not isinstance(names, list) or not all(Path(str(name)).name == name != os.pardir for name in names):
        return None
    whole = draft.is_dir() and not draft.is_symlink()
    return names if whole and all(path.is_file() and not path.is_symlink() for path in draft.iterdir()) else None


def _sync(path: Path) -> None:
    """Have the operating system write a file to the disk, where errors of writing may show only now."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


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


def weight_files(folder: str | Path) -> list[str]:
    """The names of the files that hold a saved model's weights: one, or the shards that an index lists."""
    folder = Path(folder)
    for name in (WEIGHTS_FILE, ADAPTER_FILE):
        if (folder / name).is_file():
            return [name]
    if not (folder / WEIGHTS_INDEX).is_file():
        return []
    try:
        shards = sorted(set(json.loads((folder / WEIGHTS_INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / WEIGHTS_INDEX} cannot be read: {error!r}") from error
    for name in shards:
        if not SHARD.fullmatch(str(name)) or not (folder / name).is_file():
            raise ValueError(f"{folder / WEIGHTS_INDEX} lists {name!r}, which is not there: save the model again.")
    return shards


def sha256(path: str | Path) -> str:
    """Of a file, as the Hub and `sha256sum` write it."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- Secrets ----
# Tokens and keys: refused among the arguments of a command, and never written.


# Tokens of the Hub, of GitHub, of OpenAI and of AWS, by the form they have.
TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:hf|api_org|gh[pousr])_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{16})"
)
SECRET_NAME = re.compile("TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
# A shorter value of such a variable is a switch (TOKENIZERS_PARALLELISM=false), not a secret.
SHORTEST = 12
REDACTED = "REDACTED"


def redact(text: str) -> str:
    """The text without anything that looks like a token or is the value of a secret environment variable."""
    for value in _secret_values().values():
        text = text.replace(value, REDACTED)
    return TOKEN.sub(REDACTED, text)


def refuse_secrets(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that hold a secret, before they are written into reports, cards and checkpoints."""
    secrets = _secret_values()
    for name, value in arguments.items():
        for text in _texts(value):
            found = next((f"the value of {variable}" for variable, secret in secrets.items() if secret in text), None)
            if found is None and (token := TOKEN.search(text)):
                found = f"a token ({token[0][:4]}...)"
            if found is not None:
                message = f"holds {found}, which would be written into files that may be published. Leave it out; for "
                message += "the Hub, run `hf auth login` or set HF_TOKEN."
                raise ArgumentError(name, message, "...")  # and not the secret


def _secret_values() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if SECRET_NAME.search(name) and len(value) >= SHORTEST and not os.path.exists(value)
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _texts(item)


# ---- Names without paths ----
# What local files are called in results: by name, since a path says where they are on one machine.


def public_name(name: str) -> str:
    """The last part of a local path; a Hub id, or a name that this package knows, as it is."""
    path = os.path.expanduser(name)
    return os.path.basename(os.path.abspath(path)) if os.path.exists(path) or os.path.isabs(path) else name


def public_words(words: Iterable[str]) -> list[str]:
    """
    The words of a command, with only the names of files outside of the current folder.

    ```python
    >>> public_words(["train", "--dataset", "/home/me/photos", "--output_dir=../out", "--model", "runs/first"])
    ['train', '--dataset', 'photos', '--output_dir=out', '--model', 'runs/first']

    ```
    """
    shown = []
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        path = os.path.normpath(os.path.expanduser(value)) if value else value
        if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
            value = os.path.basename(os.path.abspath(path))
        shown.append(f"{flag}{equals}{value}")
    return shown


def path_fingerprint(name: str, seen_from: str | os.PathLike) -> str | None:
    """
    A fingerprint of where a local file is, relative to the folder `seen_from`: two folders of one name have different
    ones, and both may move together. `None` for what is not local.
    """
    path = os.path.expanduser(name)
    if not os.path.exists(path):
        return None
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(seen_from))
    return hashlib.blake2b(relative.encode(), digest_size=8).hexdigest()
