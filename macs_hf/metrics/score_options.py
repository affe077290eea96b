"""What a calibration error is: its bins, their kind, the norm of the gaps, and whether noise is subtracted."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, get_args


Binning = Literal["equal_width", "equal_mass"]
Norm = Literal["l1", "l2", "max"]
Variant = Literal["equal_width", "equal_mass", "classwise", "smooth"]

MAX_BINS = 10_000  # far beyond any use; the tables of bins of a resample would fill the memory


@dataclass(frozen=True)
class ScoreOptions:
    """The options of [`expected_calibration_error`], checked; see there for what they mean."""

    n_bins: int = 15
    variant: Variant = "equal_width"
    norm: Norm = "l1"
    debiased: bool = False

    def __post_init__(self) -> None:
        check_bins(self.n_bins)
        if self.variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {', '.join(get_args(Variant))}, got {self.variant!r}")
        if self.norm not in get_args(Norm):
            raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, got {self.norm!r}")
        if self.debiased and self.norm == "max":
            raise ValueError("debiased=True is defined for norm='l1' and norm='l2' only")
        if self.variant == "smooth" and (self.norm != "l1" or self.debiased):
            raise ValueError("variant='smooth' has neither norm nor debiased: leave them at their defaults")


def check_bins(n_bins: int) -> None:
    if not isinstance(n_bins, Integral) or isinstance(n_bins, bool) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive whole number, got {n_bins!r}")
    if n_bins > MAX_BINS:
        raise ValueError(f"n_bins must be at most {MAX_BINS}, got {n_bins}; 15 is usual")


def check_resamples(n_resamples: int) -> None:
    if not isinstance(n_resamples, Integral) or n_resamples < 1:
        raise ValueError(f"n_resamples must be positive, got {n_resamples!r}")


def check_level(level: float) -> None:
    if not isinstance(level, Real) or not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.95, got {level!r}")
