"""What a report says, in a headline and two sentences: what the model can do, and whether to trust its confidence."""

import math
from typing import Literal, NamedTuple

from .corruption_names import STANDARD_15
from .corruption_table import CorruptionTable
from .evaluation import EvaluationReport, Measurement
from .interval import percent


NO_CHANGE = 0.05  # temperatures closer to 1 move no probability by much

Trust = Literal["trusted", "overconfident", "underconfident", "miscalibrated", "unknown"]
MOST_UNCERTAIN = 0.03  # noise floor, and half of the interval of the accuracy: with more, nothing is ruled out
HEADLINES = {
    "trusted": "Its probabilities can be trusted",
    "overconfident": "Overconfident",
    "underconfident": "Underconfident",
    "miscalibrated": "Miscalibrated",
    "unknown": "No miscalibration beyond chance",
}
TOO_FEW = "Too few images to tell"
NOT_FOUND = ("trusted", "unknown")  # no calibration error beyond chance


class Verdict(NamedTuple):
    """
    Args:
        trust (`str`): Whether the confidence of the model can be trusted, with its temperature if it has one.
        headline (`str`): A few words.
        ability, confidence (`str`): A sentence each.
    """

    trust: Trust
    headline: str
    ability: str
    confidence: str


def verdict(report: EvaluationReport) -> Verdict:
    """
    What a reader should take away from a report.

    A calibration error counts as such if its interval excludes 0, which with perfect calibration happens to one in 20
    test sets; below the noise floor nothing was found, and in between it cannot be decided. With so few images that
    chance alone explains more than 3 points, of the calibration error or of the accuracy, nothing that was not found
    can be ruled out either.
    """
    before, published = trust_of(report.before), trust_of(report.published)
    headline = _headline(report.before)
    if before in NOT_FOUND and published != "trusted":
        headline = _headline(report.published) + ("" if published in NOT_FOUND else " with its temperature")
    elif report.has_temperature and before not in NOT_FOUND:
        effect = "repairs it" if published == "trusted" else "helps"
        effect = "changes little" if abs(report.temperature.value - 1) < NO_CHANGE else effect
        effect = effect if report.is_calibrated else "does not help beyond chance"
        headline += f", and a temperature {effect}"
    return Verdict(published, headline, _ability(report), _confidence(report, before))


def trust_of(part: Measurement) -> Trust:
    """What the calibration error, its interval and its noise floor say together."""
    ece = part.metrics["ece"]
    if ece.value <= part.noise_floor:
        return "unknown" if has_too_few(part) else "trusted"
    if ece.low <= 0:  # noise alone reaches such an error
        return "unknown"
    gap = confidence_gap(part)
    if abs(gap) <= 1.96 * _gap_error(part):
        return "miscalibrated"  # too sure at some confidences and not sure enough at others
    return "overconfident" if gap > 0 else "underconfident"


def _headline(part: Measurement) -> str:
    trust = trust_of(part)
    return TOO_FEW if trust == "unknown" and has_too_few(part) else HEADLINES[trust]


def has_too_few(part: Measurement) -> bool:
    """Whether the images are so few that a calibration error of some points may be hidden in the noise."""
    accuracy = part.metrics["accuracy"]
    return max(part.noise_floor, (accuracy.high - accuracy.low) / 2) > MOST_UNCERTAIN


def confidence_gap(part: Measurement) -> float:
    """Mean confidence minus accuracy: above 0 is overconfident."""
    total = sum(part.bins.count)
    confidence = sum(n * value for n, value in zip(part.bins.count, part.bins.confidence, strict=True)) / total
    return confidence - part.metrics["accuracy"].value


def _gap_error(part: Measurement) -> float:
    """Standard error of the gap, given the confidences: answers of one bin are right with about the same chance."""
    bins = zip(part.bins.count, part.bins.accuracy, strict=True)
    return math.sqrt(sum(n * share * (1 - share) for n, share in bins)) / sum(part.bins.count)


def _ability(report: EvaluationReport) -> str:
    text = f"It is right on {percent(report.published.metrics['accuracy'].value)} of {report.n:,} test images"
    table = report.corruptions
    if table is None:
        return f"{text}."
    worst, accuracy = _worst(table)
    mean = table.mean(STANDARD_15)
    if mean is None:
        return f"{text}, and at worst, under {worst}, on {percent(accuracy)}."
    return f"{text}, and on {percent(mean)} of corrupted ones; {worst} is the worst, with {percent(accuracy)}."


def _worst(table: CorruptionTable) -> tuple[str, float]:
    means = table.by_corruption()
    name = min(means, key=means.__getitem__)
    return name.replace("_", " "), means[name]


def _confidence(report: EvaluationReport, trust: Trust) -> str:
    part = report.before
    ece, floor, gap = percent(part.metrics["ece"].value), percent(part.noise_floor), 100 * confidence_gap(part)
    text = {
        "trusted": f"No miscalibration was detected: its calibration error is {ece}, and {floor} would be chance",
        "unknown": f"Its calibration error is {ece}, and {floor} would be chance: more images would tell "
        "whether there is more to it",
        "overconfident": f"Its confidence is {gap:.1f} points too high on average, more than chance explains",
        "underconfident": f"Its confidence is {-gap:.1f} points too low on average, more than chance explains",
        "miscalibrated": f"Its calibration error is {ece}, more than chance explains ({floor}): too sure at some "
        "confidences and not sure enough at others, which cancels on average",
    }[trust]
    return f"{text}{_temperature(report, trust)}."


def _temperature(report: EvaluationReport, trust: Trust) -> str:
    """What it does to the calibration error, as the end of a sentence."""
    if report.after is None:
        return ""
    if report.temperature.reason is not None:
        return f"; no temperature was fitted ({report.temperature.reason})"
    value = report.temperature.value
    if abs(value - 1) < NO_CHANGE and trust in NOT_FOUND:
        effect = "so there is nothing to repair" if trust == "trusted" else "which changes little"
        return f"; the temperature that fits best is {value:.2f}, {effect}"
    before, after = (percent(part.metrics["ece"].value) for part in (report.before, report.after))
    chance = percent(report.after.noise_floor)
    return f"; a temperature of {value:.2f} brings the calibration error from {before} to {after} (chance: {chance})"
