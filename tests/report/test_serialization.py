"""Dataclasses from plain data: what is read, and that what is wrong is named by its path."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from macs_hf.report.serialization import from_plain, to_plain


@dataclass(frozen=True)
class Leaf:
    value: float
    note: str | None = None

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError(f"value must not be negative, got {self.value}")


@dataclass(frozen=True)
class Tree:
    leaf: Leaf
    by_name: dict[str, Leaf] = field(default_factory=dict)
    by_number: dict[int, Leaf] = field(default_factory=dict)
    counts: tuple[int, ...] = ()
    size: tuple[int, int] | None = None
    kind: Literal["oak", "elm"] = "oak"
    old: bool = False
    extra: dict[str, bool | int | float | str | list[int] | None] = field(default_factory=dict)
    kept_elsewhere: Any = field(default=None, compare=False)


FULL = Tree(
    Leaf(1.0, "x"),
    {"a": Leaf(2.0)},
    {3: Leaf(3.0)},
    (1, 2),
    (4, 5),
    "elm",
    True,
    {"a": True, "b": 1, "c": 1.5, "d": "text", "e": None, "f": [1, 2]},
    kept_elsewhere=object(),
)


def test_round_trip() -> None:
    data = to_plain(FULL)
    assert data["by_number"] == {"3": {"value": 3.0, "note": None}}
    assert data["counts"] == [1, 2]
    assert "kept_elsewhere" not in data
    assert from_plain(Tree, data) == FULL
    assert from_plain(Tree, {"leaf": {"value": 1}}) == Tree(Leaf(1.0))
    assert type(from_plain(Leaf, {"value": 1}).value) is float


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"leaf": 3}, "leaf must be an object, got 3"),
        ({"leaf": {}}, "leaf.value is missing"),
        ({"leaf": {"value": 1, "colour": 2}}, "leaf.colour is not a field of Leaf"),
        ({"leaf": {"value": True}}, "leaf.value must be a finite number, got True"),
        ({"leaf": {"value": float("nan")}}, "leaf.value must be a finite number, got nan"),
        ({"leaf": {"value": 10**400}}, "leaf.value must be a finite number"),
        ({"leaf": {"value": 1, "note": 2}}, "leaf.note must be text, got 2"),
        ({"by_name": {"a": {"value": -1}}}, "by_name.a.value must not be negative, got -1.0"),
        ({"by_name": []}, r"by_name must be an object, got \[\]"),
        ({"by_number": {"x": {"value": 1}}}, "by_number.x: the key must be of type int"),
        ({"counts": [1, 2.0]}, r"counts\[1\] must be a whole number, got 2.0"),
        ({"counts": 3}, "counts must be a list, got 3"),
        ({"size": [1, 2, 3]}, "size must be a list of 2"),
        ({"kind": "ash"}, "kind must be one of 'oak', 'elm', got 'ash'"),
        ({"old": 1}, "old must be true or false, got 1"),
        ({"extra": {"a": {}}}, "extra.a must be one of bool, int, float, str, list, NoneType"),
        ({"kept_elsewhere": 1}, "kept_elsewhere is not a field of Tree"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        from_plain(Tree, to_plain(FULL) | changes)
    with pytest.raises(ValueError, match=r"^tree\."):
        from_plain(Tree, to_plain(FULL) | changes, "tree")
