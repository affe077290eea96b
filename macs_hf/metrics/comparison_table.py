"""Comparisons by metric, as a table that a notebook shows."""

from ..report.markup import SPACE, table, text
from ..report.notebook import shown
from .difference import Comparison


# How a metric is shown: scale, unit, digits.
SHOWN = {"accuracy": (100, "%", 2), "nll": (1, "", 3), "ece": (100, "%", 2), "brier": (1, "", 3)}
SHOWN |= {"mean15": (100, "%", 2), "mean19": (100, "%", 2)}
SHOWN |= {"debiased_ece": (100, "%", 2), "confidence_gap": (100, "%", 2)}
SHOWN |= {"aurc": (1, "", 4), "excess_aurc": (1, "", 4)}
SHOWN |= {f"coverage_at_{risk}_risk": (100, "%", 1) for risk in ("1%", "5%", "10%")}
# What a page calls each metric, and which direction is better.
NAMES = {
    "accuracy": "Accuracy ↑",
    "nll": "Negative log-likelihood ↓",
    "ece": "Calibration error (ECE) ↓",
    "brier": "Brier score ↓",
    "debiased_ece": "Calibration error, debiased ↓",
    "confidence_gap": "Confidence minus accuracy → 0",
    "aurc": "Risk over coverage (AURC) ↓",
    "excess_aurc": "Excess AURC ↓",
    "mean15": "Accuracy under 15 corruptions ↑",
    "mean19": "Accuracy under 19 corruptions ↑",
}
NAMES |= {f"coverage_at_{risk}_risk": f"Answered at {risk} risk ↑" for risk in ("1%", "5%", "10%")}
VERDICTS = {"better": "a is better", "worse": "b is better", "undecided": "may be chance", "equal": "equal"}


class ComparisonTable(dict[str, Comparison]):
    """A [`Comparison`] for each metric."""

    def _repr_html_(self) -> str:
        rows = [
            [
                NAMES.get(metric, text(metric)),
                shown_value(metric, found.a),
                shown_value(metric, found.b),
                "{} <small>{} to {}</small>".format(*shown_difference(metric, found)),
                VERDICTS[found.verdict],
            ]
            for metric, found in self.items()
        ]
        covers = next(iter(self.values())).covers if self else "images"
        hint = f"<p>Small: 95{SPACE}% intervals of the difference, over test {covers}.</p>"
        return shown(hint + table(["", "a", "b", "a - b", ""], rows))


def shown_value(metric: str, value: float) -> str:
    scale, unit, digits = SHOWN[metric]
    return f"{scale * value:.{digits}f}{SPACE + unit if unit else ''}"


def shown_difference(metric: str, found: Comparison) -> tuple[str, str, str]:
    """The difference and the ends of its interval."""
    scale, _, digits = SHOWN[metric]
    difference, low, high = (f"{scale * v:+.{digits}f}" for v in (found.difference, found.low, found.high))
    return difference, low, high
