"""What all processes of a launch have to say is said once, by the first of them; what only one has to say is said too.

They may fail before they can talk to each other, so they leave marks on the disk of their machine.
"""

import hashlib
import os
import tempfile
import time
from pathlib import Path


SECONDS = 120.0  # older marks are of another launch whose number was the same


def is_first_to_say(text: str) -> bool:
    """Whether no other process of this launch, on this machine, has said the same; always true of a single process."""
    prefix = _prefix()
    if prefix is None:
        return True
    mark = Path(f"{prefix}{hashlib.sha256(text.encode()).hexdigest()[:16]}")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return not _is_fresh(mark)
    except OSError:  # a sentence too many is better than none
        return True
    return True


def is_explained() -> bool:
    """Whether a process of this launch has said why it ends."""
    prefix = _prefix()
    return prefix is not None and any(map(_is_fresh, prefix.parent.glob(f"{prefix.name}*")))


def _prefix() -> Path | None:
    """The beginning of the marks' paths; all processes of a launch on one machine have the same parent."""
    processes = os.environ.get("WORLD_SIZE", "1")
    if not processes.isdecimal() or int(processes) < 2:  # what is no number is refused elsewhere, in a sentence
        return None
    launch = f"{os.getppid()}-{os.environ.get('MASTER_PORT', '')}"
    return Path(tempfile.gettempdir(), f"macs-hf-said-{launch}-")


def _is_fresh(mark: Path) -> bool:
    try:
        found = mark.stat()
    except OSError:  # it was removed
        return False
    return time.time() - found.st_mtime < SECONDS
