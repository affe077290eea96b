"""The examples in docstrings run."""

import doctest
import importlib
from pathlib import Path

import pytest

import macs_hf


PACKAGE = Path(macs_hf.__file__).parent
# Files with an example. `evaluate` modules have tests of their own; the other two show files that the reader has.
LEFT_OUT = {"modules", "exporting.py", "timm_layout.py"}
FILES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8") and LEFT_OUT.isdisjoint(path.parts)
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples(path: Path) -> None:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
