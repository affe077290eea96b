"""What the model card says of a model's guarantees: what is promised, and what came true on the test images."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from scipy import stats

from ..metrics.measurement import wilson
from ..report.corruption_names import SEVERITIES
from ..report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share
from ..report.interval import Interval, interval_text
from ..report.risk_coverage import RiskCoverage
from .markdown import text


NAMES = {"lac": "LAC", "raps": "RAPS"}


def guarantee_variables(guarantees: Guarantees) -> dict[str, Any]:
    """The template's variables about guarantees."""
    sets, answers = guarantees.prediction_sets, guarantees.abstentions
    shown = guarantees.shown_set
    level = None if shown is None else shown.coverage
    corrupted = any(promise.severity_coverage for promise in sets)
    return {
        "reason": guarantees.reason,
        "exact": guarantees.exact,
        "n": guarantees.num_guarantee,
        "level": level,
        "shown_level": None if level is None else _level(level),
        "usual": None if level is None else _usual_coverage(level, guarantees.num_guarantee),
        "corrupted": corrupted,
        "sets": [_set_cells(promise, guarantees, corrupted) for promise in sets],
        "answers": [_answer_cells(promise, corrupted) for promise in answers if promise.threshold is not None],
        "not_promised": [f"{_level(p.accuracy)} ({text(p.reason)})" for p in answers if p.threshold is None],
        "answer_level": next((promise.accuracy for promise in answers if promise.threshold is not None), None),
        "delta": answers[0].delta if answers else None,
    }


def _usual_coverage(level: float, n: int) -> str:
    """Between which shares 95 % of all models lie whose sets come from `n` samples: a beta distribution."""
    rank = math.ceil((n + 1) * Fraction(str(level)))
    low, high = stats.beta.ppf([0.025, 0.975], rank, n + 1 - rank)
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def risk_coverage_variables(found: RiskCoverage) -> dict[str, str] | None:
    """The template's variables about risk and coverage; none if no answer was wrong: there is nothing to rank."""
    if found.risk[-1] == 0:
        return None
    shares = {risk: _points(part) for risk, part in found.coverage_at_risk.items()}
    return {
        "aurc": interval_text(found.aurc),
        "best": f"{found.aurc.value - found.excess_aurc.value:.4f}",
        "answered": ", ".join(f"{share} with {risk.replace('%', ' %')} errors" for risk, share in shares.items()),
    }


def lowest_class(promise: PredictionSetGuarantee, guarantees: Guarantees) -> tuple[str, Share]:
    """The class whose interval ends lowest, so that a class of a few images is not the lowest by chance."""
    found = []
    for number, (covered, count) in enumerate(zip(promise.class_covered, guarantees.class_counts, strict=True)):
        if count:
            low, high = wilson(covered, count)
            found.append((high, number, Share(covered / count, low, high, count)))
    _, number, share = min(found, key=lambda entry: entry[:2])
    return guarantees.class_names[number] if guarantees.class_names else f"class {number}", share


def _set_cells(promise: PredictionSetGuarantee, guarantees: Guarantees, corrupted: bool) -> list[str]:
    name, share = lowest_class(promise, guarantees)
    cells = [_level(promise.coverage), NAMES[promise.method], _points(promise.test_coverage)]
    cells += [f"{promise.mean_size:.2f}", f"{text(name)}: {_points(share)}"]
    return cells + ([_by_severity(promise.severity_coverage)] if corrupted else [])


def _answer_cells(promise: AbstentionGuarantee, corrupted: bool) -> list[str]:
    cells = [_level(promise.accuracy), f"{promise.threshold:.6g}", _points(promise.test_answered)]
    cells.append("no test image is answered" if promise.test_accuracy is None else _points(promise.test_accuracy))
    return cells + ([_by_severity(promise.severity_accuracy)] if corrupted else [])


def _by_severity(found: Mapping[int, Share]) -> str:
    shares = [found.get(severity) for severity in SEVERITIES]
    return " / ".join("-" if share is None else f"{100 * share.value:.1f}" for share in shares) + " %"


def _points(share: Share | Interval) -> str:
    return interval_text(share, 100, " %", 1)


def _level(level: float) -> str:
    return f"{100 * level:g} %"
