"""The record in a checkpoint: which run it belongs to, and what its files hold.

`Trainer` writes `trainer_state.json` last; the record is written just before it. So a folder with a readable state was
saved to its end, and the record says whether anything has happened to it since.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from .run_identity import Identity


RECORD_FILE = "checkpoint.json"
STATE_FILE = "trainer_state.json"
# Not needed to resume, and never pushed: a checkpoint that comes from the Hub does not have it.
ARGUMENTS_FILE = "training_args.bin"
# Of a file that is larger than all of them together, only so many blocks of so many bytes are read, spread evenly.
BLOCKS, BLOCK_BYTES = 256, 2**16


def write_record(checkpoint: str | Path, identity: Identity) -> None:
    """Record the files that are in a checkpoint now, and the run that they belong to."""
    checkpoint = Path(checkpoint)
    files = {}
    for path in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        name = path.relative_to(checkpoint).as_posix()
        if name not in (RECORD_FILE, STATE_FILE, ARGUMENTS_FILE):
            files[name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
    record = {"run": identity.run, "length": identity.length, "files": files}
    (checkpoint / RECORD_FILE).write_text(json.dumps(record, indent=2) + "\n")


def read_identity(checkpoint: str | Path) -> Identity:
    record = _read_json(Path(checkpoint) / RECORD_FILE)
    return Identity(record["run"], record["length"])


def digest(path: Path) -> str:
    """SHA-256 of a file, or of 16 MiB of a larger one: its first and last bytes, and blocks between them."""
    size, sha = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        if size <= BLOCKS * BLOCK_BYTES:
            sha.update(file.read())
        else:
            for block in range(BLOCKS):
                file.seek(block * (size - BLOCK_BYTES) // (BLOCKS - 1))
                sha.update(file.read(BLOCK_BYTES))
    return sha.hexdigest()


def was_finished(checkpoint: str | Path) -> bool:
    """Whether a checkpoint was saved to its end, whatever has become of it since."""
    state = _read_json(Path(checkpoint) / STATE_FILE)
    return isinstance(state, dict) and isinstance(state.get("global_step"), int)


def flaw_of(checkpoint: str | Path) -> str | None:
    """Why training cannot continue from a checkpoint as if it had never stopped; `None` if it can."""
    checkpoint = Path(checkpoint)
    if not was_finished(checkpoint):
        return f"{STATE_FILE} is missing or damaged: it was cut off while it was saved"
    named, step = checkpoint.name.removeprefix("checkpoint-"), _read_json(checkpoint / STATE_FILE)["global_step"]
    if named.isdecimal() and int(named) != step:
        return f"{STATE_FILE} is of step {step}, and the folder of step {named}"
    if not (checkpoint / RECORD_FILE).is_file():
        missing = [name for name in ("optimizer.pt", "scheduler.pt") if not (checkpoint / name).is_file()]
        if missing:
            return f"it holds a model without {' and '.join(missing)}, as save_only_model=True leaves it"
        return f"it has no {RECORD_FILE}: it was saved by plain Trainer or by an earlier version, for an unknown run"
    record = _read_json(checkpoint / RECORD_FILE)
    if not _is_record(record):
        return f"{RECORD_FILE} is damaged"
    for name, recorded in record["files"].items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        size = path.stat().st_size
        if size != recorded["bytes"]:
            return f"{name} is damaged: it has {size:,} bytes in place of {recorded['bytes']:,}"
        if digest(path) != recorded.get("sha256"):
            return f"{name} has changed since it was saved"
    return None


def _is_record(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and all(isinstance(record.get(part), dict) for part in ("run", "length", "files"))
        and all(isinstance(file, dict) and isinstance(file.get("bytes"), int) for file in record["files"].values())
    )


def _read_json(path: Path) -> Any:
    """What a file holds; `None` if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
