"""RiskCoverage: how well a model's confidence ranks its answers, for the report. Nothing but data."""

from __future__ import annotations

from dataclasses import dataclass

from .interval import Interval


@dataclass(frozen=True)
class RiskCoverage:
    """
    A model that answers only where it is most confident: the share of answers that are wrong (risk) against the share
    of images that get an answer (coverage).

    Args:
        aurc ([`Interval`]):
            Area under that curve: the mean risk over all coverages. Lower is better.
        excess_aurc ([`Interval`]):
            The same less that of the best ordering at this accuracy, which has every error last.
        coverage_at_risk (`dict[str, Interval]`):
            For `"1%"`, `"5%"` and `"10%"`, the largest coverage whose risk is at most that; 0 if there is none. It is
            measured on these images, and no promise for others.
        coverage, risk (`tuple[float, ...]`):
            At most 100 points of the curve, in ascending coverage.
    """

    aurc: Interval
    excess_aurc: Interval
    coverage_at_risk: dict[str, Interval]
    coverage: tuple[float, ...]
    risk: tuple[float, ...]
