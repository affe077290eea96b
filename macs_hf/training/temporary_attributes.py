"""Attributes that have another value for a while."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def temporarily(target: Any, **attributes: Any) -> Iterator[None]:
    """Give attributes of `target` other values inside the block; afterwards they are what they were."""
    before = {name: getattr(target, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(target, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)


def replaced(value: Any, **attributes: Any) -> Any:
    """A shallow copy of `value` with other attributes; `value` stays as it is."""
    other = copy.copy(value)
    for name, attribute in attributes.items():
        setattr(other, name, attribute)
    return other
