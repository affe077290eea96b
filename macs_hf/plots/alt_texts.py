"""What each picture of a report shows, in words, for readers who do not see it. Names in it are as they were given."""

from ..report.corruption_names import STANDARD_15
from ..report.corruption_table import CorruptionTable
from ..report.evaluation import EvaluationReport, Measurement
from ..report.groups import ConfusionMatrix, GroupTable
from ..report.interval import percent
from ..report.risk_coverage import RiskCoverage
from ..report.verdict import confidence_gap
from .reliability import scaled


def alt_texts(report: EvaluationReport) -> dict[str, str]:
    """By the name of the picture's file, for every picture that the report has."""
    found = {"reliability.png": _reliability(report)}
    if report.risk_coverage is not None:
        found["risk_coverage.png"] = _risk_coverage(report.risk_coverage, report.published)
    if report.corruptions is not None:
        found["corruptions.png"] = _corruptions(report.corruptions)
        found["severity.png"] = _severity(report.corruptions)
    if report.classes is not None:
        found["classes.png"] = _groups(report.classes, "classes")
    if report.confusion is not None:
        found["confusion.png"] = _confusion(report.confusion)
    if report.groups is not None:
        found["groups.png"] = _groups(report.groups, f"groups by {report.groups.column}")
    return found


def _reliability(report: EvaluationReport) -> str:
    bins = len(report.before.bins.count)
    text = f"Reliability diagram, accuracy against confidence in {bins} bins: {_calibration(report.before)}"
    if (after := scaled(report)) is None:
        return f"{text}."
    return f"{text} before temperature scaling; {_calibration(after)} after it."


def _calibration(part: Measurement) -> str:
    accuracy, ece = part.metrics["accuracy"].value, part.metrics["ece"].value
    confidence = accuracy + confidence_gap(part)
    return f"mean confidence {percent(confidence)}, accuracy {percent(accuracy)}, ECE {percent(ece)}"


def _risk_coverage(found: RiskCoverage, part: Measurement) -> str:
    text = "Risk and coverage: the share of wrong answers if only the surest images are answered, "
    if found.risk[-1] == 0:
        return f"{text}0 % everywhere: no answer was wrong."
    text += f"{percent(1 - part.metrics['accuracy'].value)} if all are"
    shares = [
        f"{risk.replace('%', ' %')} for the surest {percent(share.value)}"
        for risk, share in found.coverage_at_risk.items()
        if share.value > 0
    ]
    return f"{', '.join([text, *shares])}."


def _corruptions(table: CorruptionTable) -> str:
    cells = [(cell.accuracy, name, severity) for name, row in table.cells.items() for severity, cell in row.items()]
    low, high = (
        f"{percent(accuracy)} ({name.replace('_', ' ')}, severity {severity})"
        for accuracy, name, severity in (min(cells), max(cells))
    )
    return f"Accuracy by corruption and severity, {len(table.cells)} corruptions: from {high} down to {low}."


def _severity(table: CorruptionTable) -> str:
    names = STANDARD_15 if set(STANDARD_15) <= set(table.cells) else tuple(table.cells)
    score = "ece" if table.temperature is None else "scaled_ece"
    accuracy, ece = table.by_severity("accuracy", names), table.by_severity(score, names)
    first, last = min(accuracy), max(accuracy)
    start = "on clean images" if first == 0 else f"at severity {first}"
    return (
        f"Accuracy and calibration error by severity, mean of {len(names)} corruptions: accuracy "
        f"{percent(accuracy[first])} {start} and {percent(accuracy[last])} at severity {last}, ECE "
        f"{percent(ece[first])} and {percent(ece[last])}."
    )


def _groups(table: GroupTable, what: str) -> str:
    worst, best = (f"{percent(group.accuracy.value)} ({group.name})" for group in (table.groups[0], table.groups[-1]))
    different = sum(group.significant for group in table.groups)
    return (
        f"Accuracy and confidence of {len(table.groups):,} {what}, worst first: from {worst} to {best}; {different:,} "
        "differ from all other images beyond chance."
    )


def _confusion(matrix: ConfusionMatrix) -> str:
    mistakes, names = matrix.mistakes(), matrix.class_names
    text = f"Confusion matrix of {matrix.n_classes:,} classes: how often each was taken for each"
    if not mistakes:
        return f"{text}; there were no mistakes."
    count, label, other = mistakes[0]
    return f"{text}; most often {names[label]} for {names[other]}, {count:,} images."
