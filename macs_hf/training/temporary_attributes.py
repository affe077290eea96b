"""Attributes that have another value for a while."""

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
