"""Dataclasses from and to plain data (what JSON holds), by their type hints.

A field with `compare=False` is not part of a dataclass's value: it is neither written nor read. Values are checked by
the dataclasses themselves, in `__post_init__`; their messages begin with the name of the field.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints


T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses become dictionaries, tuples become lists, and keys of dictionaries become text."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in _stored(type(value))}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], data: Any, path: str = "") -> T:
    """
    The inverse of [`to_plain`].

    Args:
        kind (`type`): A dataclass, or one of the types that its fields may have: `bool`, `int`, `float`, `str`,
            `None`, `Literal`, unions, `list[X]`, `tuple[X, ...]`, `tuple[X, Y]`, `dict[str, X]` and `dict[int, X]`.
        data: What JSON gave.
        path (`str`, *optional*): Where `data` is, for messages: `after.metrics.ece`.

    Raises:
        `ValueError`: Names the path of what is missing, unknown, or of a wrong type or value.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _dataclass(kind, data, path)
    if origin in (Union, UnionType):
        return _union(arguments, data, path)
    if origin is Literal:
        if any(data == choice and type(data) is type(choice) for choice in arguments):
            return data
        raise _wrong(path, f"one of {', '.join(map(repr, arguments))}", data)
    if origin is dict:
        if not isinstance(data, Mapping):
            raise _wrong(path, "an object", data)
        return {_key(arguments[0], key, path): from_plain(arguments[1], data[key], _join(path, key)) for key in data}
    if origin in (tuple, list):
        return _sequence(origin, arguments, data, path)
    return _scalar(kind, data, path)


def _dataclass(kind: type[T], data: Any, path: str) -> T:
    if not isinstance(data, Mapping):
        raise _wrong(path, "an object", data)
    known = {field.name: field for field in _stored(kind)}
    if unknown := sorted(map(str, data.keys() - known.keys())):
        raise ValueError(
            f"{_join(path, unknown[0])} is not a field of {kind.__name__}; a newer version of macs_hf may have "
            "written it"
        )
    needed = (name for name, f in known.items() if f.default is MISSING and f.default_factory is MISSING)
    if missing := [name for name in needed if name not in data]:
        raise ValueError(f"{_join(path, missing[0])} is missing")
    hints = _hints(kind)
    values = {name: from_plain(hints[name], data[name], _join(path, name)) for name in known if name in data}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(_join(path, str(error))) from None


def _union(choices: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and NoneType in choices:
        return None
    others = [choice for choice in choices if choice is not NoneType]
    if len(others) == 1:
        return from_plain(others[0], data, path)
    for choice in others:
        try:
            return from_plain(choice, data, path)
        except ValueError:
            continue
    names = [getattr(choice, "__name__", str(choice)) for choice in choices]
    raise _wrong(path, f"one of {', '.join(names)}", data)


def _sequence(origin: type, arguments: tuple[Any, ...], data: Any, path: str) -> Any:
    if not isinstance(data, list | tuple):
        raise _wrong(path, "a list", data)
    if origin is list or arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(data)
    if len(arguments) != len(data):
        raise _wrong(path, f"a list of {len(arguments)}", data)
    items = zip(arguments, data, strict=True)
    return origin(from_plain(kind, item, f"{path}[{place}]") for place, (kind, item) in enumerate(items))


def _scalar(kind: Any, data: Any, path: str) -> Any:
    if kind in (bool, str):
        if isinstance(data, kind):
            return data
        raise _wrong(path, {bool: "true or false", str: "text"}[kind], data)
    if kind is int:
        if isinstance(data, int) and not isinstance(data, bool):
            return data
        raise _wrong(path, "a whole number", data)
    if kind is float:
        if isinstance(data, int | float) and not isinstance(data, bool) and _is_finite(data):
            return float(data)
        raise _wrong(path, "a finite number", data)
    raise TypeError(f"{path} is of type {kind}, which cannot be read from plain data")


def _key(kind: type, key: Any, path: str) -> Any:
    if kind is str:
        return key
    try:
        return kind(key)
    except ValueError:
        raise ValueError(f"{_join(path, key)}: the key must be of type {kind.__name__}") from None


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond any float
        return False


@cache
def _stored(kind: type) -> tuple[Field, ...]:
    return tuple(field for field in fields(kind) if field.init and field.compare)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _join(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _wrong(path: str, wanted: str, data: Any) -> ValueError:
    shown = repr(data)
    return ValueError(f"{path or 'the data'} must be {wanted}, got {shown if len(shown) < 60 else shown[:57] + '...'}")
