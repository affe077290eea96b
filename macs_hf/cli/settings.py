"""Settings from a JSON or YAML file, each with the type that the flag of its name has."""

import argparse
import dataclasses
from os import PathLike
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from transformers import HfArgumentParser


def read_settings(path: str | PathLike, *classes: type) -> dict[str, Any]:
    """
    The settings in a file for the fields of the dataclasses `classes`, checked as [`~transformers.HfArgumentParser`]
    checks flags. YAML takes `1e-3` for text, which this makes the number that the flag would be.
    """
    try:
        settings = yaml.safe_load(Path(path).read_text())  # JSON is YAML
    except yaml.YAMLError as error:
        raise ValueError(f"{path} can be read neither as YAML nor as JSON: {error}") from error
    settings = {} if settings is None else settings
    if not isinstance(settings, dict):
        raise ValueError(
            f"{path} holds a {type(settings).__name__} in place of named settings: write one `name: value` a line."
        )
    known = {field.name for cls in classes for field in dataclasses.fields(cls) if field.init}
    if unknown := set(settings) - known:
        raise ValueError(f"Unknown settings {sorted(map(str, unknown))} in {path}; --help lists those there are.")
    hints = {name: hint for cls in classes for name, hint in get_type_hints(cls).items()}
    parser = HfArgumentParser(classes, add_help=False, allow_abbrev=False, exit_on_error=False)
    typed = {}
    for name, value in settings.items():
        try:
            typed[name] = _typed(name, value, hints[name], parser)
        except (argparse.ArgumentError, TypeError) as error:
            wanted = hints[name].__name__ if isinstance(hints[name], type) else hints[name]
            reason = getattr(error, "message", error)
            raise ValueError(f"{path}: {name}={value!r} must be of type {wanted} ({reason}).") from None
    return typed


def _typed(name: str, value: Any, hint: Any, parser: HfArgumentParser) -> Any:
    """The value if it has one of the types asked for, else what the flag makes of it as text."""
    kinds = {get_origin(kind) or kind for kind in (hint, *get_args(hint))}
    if type(value) in kinds - {str}:
        return value
    if value is None or isinstance(value, list | dict):
        raise TypeError(f"got {type(value).__name__}")
    return getattr(parser.parse_known_args([f"--{name}={value}"])[0], name)
