"""Interval: a value with its uncertainty, the smallest part of a report."""

from dataclasses import dataclass
from typing import Protocol

from .checks import ROUNDING, check_range


@dataclass(frozen=True)
class Interval:
    """A value and its confidence interval."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            check_range(name, getattr(self, name))
        slack = ROUNDING * max(1.0, abs(self.value))
        if not self.low - slack <= self.value <= self.high + slack:
            raise ValueError(f"value must lie between low and high, got {self.low} <= {self.value} <= {self.high}")


class Bounded(Protocol):
    """What has a value between two ends: an [`Interval`], or a share of images."""

    value: float
    low: float
    high: float


def digits_shown(found: Bounded, digits: int, most: int = 6) -> int:
    """At least so many digits, and as many more as it takes that an end beside 0 is not shown as 0."""
    while digits < most and any(number and not float(f"{number:.{digits}f}") for number in (found.low, found.high)):
        digits += 1
    return digits


def percent(share: float, digits: int = 1) -> str:
    """A share, as terminals and cards show it."""
    return f"{100 * share:.{digits}f} %"


def interval_text(found: Bounded, scale: float = 1, unit: str = "", digits: int = 4, sign: str = "") -> str:
    """
    A value and its interval, as terminals and cards show it.

    ```python
    >>> interval_text(Interval(0.9, 0.88, 0.915), 100, " %", 1)
    '90.0 % [88.0, 91.5]'

    ```
    """
    value, low, high = (f"{scale * number:{sign}.{digits}f}" for number in (found.value, found.low, found.high))
    return f"{value}{unit} [{low}, {high}]"
