"""Tokens and keys: refused among the arguments of a command, and never written."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any


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
    """
    Refuse arguments that hold a secret, before they are written into reports, cards and checkpoints.

    Args:
        arguments (`Mapping[str, Any]`): Values by name; lists and dictionaries are searched too.

    Raises:
        `ValueError`: With the argument's name, and not with the secret.
    """
    secrets = _secret_values()
    for name, value in arguments.items():
        for text in _texts(value):
            found = next((variable for variable, secret in secrets.items() if secret in text), None)
            token = TOKEN.search(text)
            if found is None and token is None:
                continue
            what = f"the value of the environment variable {found}" if found else f"a token ({token[0][:4]}...)"
            raise ValueError(
                f"{name}=... holds {what}, which would be written into files that may be published. Leave it out; for "
                "the Hub, run `hf auth login` or set HF_TOKEN."
            )


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
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _texts(item)
