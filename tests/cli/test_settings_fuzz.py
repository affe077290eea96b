"""Any file as settings: it is read as what it says, or refused with a `ValueError`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from macs_hf.cli.settings import read_settings
from macs_hf.cli.train_arguments import CLASSES


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
NAMES = st.sampled_from(
    ["seed", "learning_rate", "method", "streaming", "report_to", "warmup_steps", "image_size", "nope"]
)
# Pieces of YAML put together, which is likelier to mean something than characters are.
PIECES = [
    "seed",
    "method",
    ":",
    ": ",
    "\n",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!!int ",
    "!!python/name:os.system",
]
PIECES += [
    "'",
    '"',
    "|",
    ">",
    "#",
    "~",
    "1",
    "0x1",
    "1e3",
    ".inf",
    "true",
    "no",
    "\t",
    "---\n",
    "...\n",
    "<<",
    "? ",
    "%YAML 9",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "settings.yaml"


def read(path: Path, content: str | bytes) -> dict[str, Any] | None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    try:
        return read_settings(path, *CLASSES)
    except ValueError as error:
        assert str(path) in str(error)  # which file it is
        return None


@given(st.binary() | st.text() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("[" * 5000)
@example("a: &a [*a]")
@example("? [seed]\n: 1")
@example("? {seed: 1}\n: 1")
@example("seed: !!timestamp x")
@example("seed: !!int x")
@example("seed: !!float x")
@example("seed: !!binary x")
@example("seed: !!set {a}")
@example("seed: !!omap [a]")
@example("!!seq {a: 1}")
@example("!!map [1]")
@example("<<: 1")
@example("<<: [1]")
@example("seed: !!bool x")
@example("seed: " + "9" * 5000)
@example("\x00")
@example("\ufeffseed: 1")
def test_any_file(path: Path, content: str | bytes) -> None:
    found = read(path, content)
    assert found is None or isinstance(found, dict)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
def test_any_values(path: Path, values: dict[str, Any]) -> None:
    for content in (json.dumps(values), yaml.safe_dump(values)):
        found = read(path, content)
        assert found is None or found.keys() == values.keys()


@settings(max_examples=25)
@given(
    st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**31),
            "learning_rate": st.floats(0, 1),
            "streaming": st.booleans(),
            "run_name": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
            "image_size": st.none() | st.integers(1, 1000),
        }
    )
)
def test_settings_mean_what_they_say(path: Path, values: dict[str, Any]) -> None:
    assert read(path, json.dumps(values)) == values
