"""Leakage: images that are in two splits at once, for the report. Nothing but data."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_count


@dataclass(frozen=True)
class Copies:
    """
    Args:
        split (`str`): The split that is looked at, such as `"test"`.
        other (`str`): The split that it should have nothing in common with, such as `"train"`.
        count (`int`): Images of `split` whose decoded pixels are equal to those of an image of `other`.
    """

    split: str
    other: str
    count: int


@dataclass(frozen=True)
class Leakage:
    """
    Exact copies of images between splits. Images that were scaled, cropped or compressed again are not found.

    Args:
        compared (`dict[str, int]`): By split, how many of its images were compared.
        total (`dict[str, int]`): By split, how many images it has. Where this is more, copies may be missing.
        copies (`tuple[Copies, ...]`): For each two splits.
    """

    compared: dict[str, int]
    total: dict[str, int]
    copies: tuple[Copies, ...]

    def __post_init__(self) -> None:
        if self.compared.keys() != self.total.keys():
            raise ValueError(f"total must have the splits of compared, {list(self.compared)}, got {list(self.total)}")
        for split, number in self.compared.items():
            check_count(f"compared.{split}", number)
            check_count(f"total.{split}", self.total[split], at_least=number)
        for place, pair in enumerate(self.copies):
            if unknown := {pair.split, pair.other} - self.compared.keys():
                raise ValueError(f"copies[{place}] names a split that was not compared, {sorted(unknown)[0]!r}")
            check_count(f"copies[{place}].count", pair.count)
            if pair.count > self.compared[pair.split]:
                raise ValueError(f"copies[{place}].count is {pair.count}, more than were compared")

    @property
    def found(self) -> tuple[Copies, ...]:
        """The pairs of splits that have images in common."""
        return tuple(pair for pair in self.copies if pair.count)
