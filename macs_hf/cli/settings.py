"""Settings from a JSON or YAML file, each with the type that the flag of its name has."""

import argparse
import dataclasses
import os
import re
import reprlib
import stat
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from transformers import HfArgumentParser


# Bytes of a file that is still read: all arguments of a run take a few thousand.
LARGEST = 1_000_000


class _Loader(yaml.SafeLoader):
    """
    YAML as JSON has it: `true`, `false`, `null` and decimal numbers, and every other word is text.

    PyYAML would read `no` as false, `010` as eight, `1:30` as ninety and `1e-3` as text.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key, times in Counter(keys).items():
            if times > 1:
                raise ValueError(f"sets {key!r} {times} times. Keep one of them.")
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        return _joined(super().construct_scalar(node))


_INTEGER = r"(?:0|[1-9][0-9]*)"
for _tag, _words, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", rf"[-+]?{_INTEGER}", list("-+0123456789")),
    ("float", rf"[-+]?(?:{_INTEGER}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_words})$"), _first)


def read_settings(path: str | PathLike, *classes: type) -> dict[str, Any]:
    """
    The settings in a file for the fields of the dataclasses `classes`, checked as [`~transformers.HfArgumentParser`]
    checks flags.

    Raises:
        `ValueError`: With the file and the setting, if one is unknown, given twice, or not of its flag's type.
    """
    found = os.stat(path)
    if stat.S_ISFIFO(found.st_mode) or found.st_size > LARGEST:
        raise ValueError(f"{path} is a pipe, or too large for settings (the limit is {LARGEST:,} bytes).")
    try:
        settings, written = _load(Path(path).read_text(encoding="utf-8"))  # JSON is YAML
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} can be read neither as YAML nor as JSON: {reason}") from error
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None
    if not isinstance(settings, dict):
        raise ValueError(
            f"{path} holds a {type(settings).__name__} in place of named settings: write one `name: value` a line."
        )
    known = {field.name for cls in classes for field in dataclasses.fields(cls) if field.init}
    if unknown := set(settings) - known:
        raise ValueError(f"Unknown settings {sorted(map(str, unknown))} in {path}; --help-all lists all settings.")
    hints = {name: hint for cls in classes for name, hint in get_type_hints(cls).items()}
    parser = HfArgumentParser(classes, add_help=False, allow_abbrev=False, exit_on_error=False)
    typed = {}
    for name, value in settings.items():
        try:
            typed[name] = _typed(name, value, written.get(name), hints[name], parser)
        except (argparse.ArgumentError, TypeError) as error:
            wanted = hints[name].__name__ if isinstance(hints[name], type) else hints[name]
            reason = getattr(error, "message", error)
            text = f"`{name}: {reprlib.repr(value)}`"
            raise ValueError(f"{path}: {text} must be of type {wanted} ({reason}).") from None
    return typed


def _load(text: str) -> tuple[Any, dict[str, str]]:
    """What a file holds, and how the values at its top are written: `1.10`, as text, is not 1.1."""
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is None:
        return {}, {}
    try:
        found = loader.construct_document(node)
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ValueError("has a tag (`!!...`) that its value does not fit. Leave tags out.") from None
    pairs = node.value if isinstance(found, dict) else []
    return found, {key.value: _joined(value.value) for key, value in pairs}


def _joined(value: Any) -> Any:
    """Text in which a character beyond the first 65,536 is one, and not the two that JSON writes it as."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16") if isinstance(value, str) else value


def _typed(name: str, value: Any, written: Any, hint: Any, parser: HfArgumentParser) -> Any:
    """The value if it has one of the types asked for, else what the flag makes of it as it is written."""
    kinds = {get_origin(kind) or kind for kind in (hint, *get_args(hint))}
    if type(value) in kinds - {str}:
        return value
    if value is None or isinstance(value, list | dict):
        raise TypeError(f"got {type(value).__name__}")
    return getattr(parser.parse_known_args([f"--{name}={written}"])[0], name)
