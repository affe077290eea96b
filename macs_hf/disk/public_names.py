"""What local files are called in results: by name, since a path says where they are on one machine."""

import hashlib
import os
from collections.abc import Iterable


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
