"""A number of a report beside the same number, measured again."""

from dataclasses import dataclass

from ..report.interval import Interval


@dataclass(frozen=True)
class Check:
    """
    One number of a report.

    Args:
        name (`str`): Which one.
        published ([`Interval`]): As the report has it.
        measured ([`Interval`]): As it came out now.
    """

    name: str
    published: Interval
    measured: Interval

    @property
    def same(self) -> bool:
        """Whether it came out as published, up to 0.1 points or 1 %: another machine rounds otherwise."""
        return abs(self.measured.value - self.published.value) <= max(1e-3, 1e-2 * abs(self.published.value))

    @property
    def holds(self) -> bool:
        """
        Whether it lies within the published interval, and that interval is no more than twice as wide as the one that
        was measured now: a report with wide intervals would always hold.
        """
        stated, now = self.published, self.measured
        slack = 1e-4 * max(abs(stated.value), 1e-2)
        is_honest = stated.high - stated.low <= 2 * (now.high - now.low) + slack
        return is_honest and stated.low - slack <= now.value <= stated.high + slack
