"""Interval: a value with its uncertainty, the smallest part of a report."""

from dataclasses import dataclass

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
