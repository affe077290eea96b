"""What a report says, in a headline and two sentences: what the model can do, and whether to trust its confidence."""

from typing import Literal, NamedTuple

from .corruption_names import STANDARD_15
from .corruption_table import CorruptionTable
from .evaluation import EvaluationReport, Measurement


NO_CHANGE = 0.05  # temperatures closer to 1 move no probability by much

Trust = Literal["trusted", "overconfident", "underconfident", "unknown"]
LARGEST_FLOOR = 0.03
HEADLINES = {
    "trusted": "Its probabilities can be trusted",
    "overconfident": "Overconfident",
    "underconfident": "Underconfident",
    "unknown": "No miscalibration beyond chance",
}
TOO_FEW = "Too few images to tell"


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

    A calibration error counts as such if its interval lies above the noise floor; below the floor nothing was found,
    and in between it cannot be decided. With so few images that chance alone explains more than 3 points, nothing that
    was not found can be ruled out either.
    """
    before, published = trust_of(report.before), trust_of(report.published)
    headline = HEADLINES[before]
    if before == "unknown" and report.before.noise_floor > LARGEST_FLOOR:
        headline = TOO_FEW
    if report.has_temperature and before in ("overconfident", "underconfident"):
        effect = "repairs it" if published == "trusted" else "helps"
        effect = "changes little" if abs(report.temperature.value - 1) < NO_CHANGE else effect
        effect = effect if report.is_calibrated else "does not help beyond chance"
        headline += f", and a temperature {effect}"
    return Verdict(published, headline, _ability(report), _confidence(report, before))


def trust_of(part: Measurement) -> Trust:
    """What the calibration error, its interval and its noise floor say together."""
    ece = part.metrics["ece"]
    if ece.value <= part.noise_floor:
        return "trusted" if part.noise_floor <= LARGEST_FLOOR else "unknown"
    if ece.low <= part.noise_floor:
        return "unknown"
    return "overconfident" if confidence_gap(part) > 0 else "underconfident"


def confidence_gap(part: Measurement) -> float:
    """Mean confidence minus accuracy: above 0 is overconfident."""
    total = sum(part.bins.count)
    confidence = sum(n * value for n, value in zip(part.bins.count, part.bins.confidence, strict=True)) / total
    return confidence - part.metrics["accuracy"].value


def _ability(report: EvaluationReport) -> str:
    text = f"It is right on {_percent(report.published.metrics['accuracy'].value)} of {report.n:,} test images"
    table = report.corruptions
    if table is None:
        return f"{text}."
    worst, accuracy = _worst(table)
    mean = table.mean(STANDARD_15)
    if mean is None:
        return f"{text}, and at worst, under {worst}, on {_percent(accuracy)}."
    return f"{text}, and on {_percent(mean)} of corrupted ones; {worst} is the worst, with {_percent(accuracy)}."


def _worst(table: CorruptionTable) -> tuple[str, float]:
    means = table.by_corruption()
    name = min(means, key=means.__getitem__)
    return name.replace("_", " "), means[name]


def _confidence(report: EvaluationReport, trust: Trust) -> str:
    part = report.before
    ece, floor, gap = _percent(part.metrics["ece"].value), _percent(part.noise_floor), 100 * confidence_gap(part)
    text = {
        "trusted": f"No miscalibration was detected: its calibration error is {ece}, and {floor} would be chance",
        "unknown": f"Its calibration error is {ece}, and {floor} would be chance: more images would tell "
        "whether the rest is real",
        "overconfident": f"Its confidence is {gap:.1f} points too high on average, more than chance explains",
        "underconfident": f"Its confidence is {-gap:.1f} points too low on average, more than chance explains",
    }[trust]
    return f"{text}{_temperature(report, trust)}."


def _temperature(report: EvaluationReport, trust: Trust) -> str:
    """What it does to the calibration error, as the end of a sentence."""
    if report.temperature is None or report.after is None:
        return ""
    if report.temperature.reason is not None:
        return f"; no temperature was fitted ({report.temperature.reason})"
    value = report.temperature.value
    if abs(value - 1) < NO_CHANGE and trust in ("trusted", "unknown"):
        return f"; the temperature that fits best is {value:.2f}, so there is nothing to repair"
    before, after = (_percent(part.metrics["ece"].value) for part in (report.before, report.after))
    chance = _percent(report.after.noise_floor)
    return f"; a temperature of {value:.2f} brings the calibration error from {before} to {after} (chance: {chance})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
