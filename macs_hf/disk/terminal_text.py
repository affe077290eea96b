"""Text from elsewhere on a terminal: names of classes, datasets and files are shown, and never obeyed."""

import re
from collections.abc import Mapping
from typing import Any


# Escapes that clear a screen or set its title, marks that turn the direction of writing, and halves of characters,
# which cannot be written at all. Lines and tabs stay.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""
    The text with control characters as Python writes them.

    ```python
    >>> printable("a \x1b[2J bee")
    'a \\x1b[2J bee'

    ```
    """
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def refuse_nul(arguments: Mapping[str, Any]) -> None:
    """
    Refuse text with NUL characters, which no path can have and many functions stumble over without naming it.

    Args:
        arguments (`Mapping[str, Any]`): Values by name.
    """
    for name, value in arguments.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and "\0" in text:
                raise ValueError(f"{name}={text!r} has a NUL character (\\x00). Leave it out.")
