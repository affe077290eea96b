"""Names of a package that load their module when they are used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_getattr(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """
    The function `__getattr__` of a package.

    Args:
        package (`str`): Its `__name__`.
        homes (`Mapping[str, str]`): Public names, and the modules that they live in, as relative imports name them.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    return load
