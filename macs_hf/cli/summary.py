"""A report as a few lines of text for a terminal."""

from collections.abc import Mapping

from ..report.corruption_table import CORRUPTIONS, SEVERITIES, STANDARD_15, CorruptionTable
from ..report.evaluation import EvaluationReport, Measurement, Temperature
from ..report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share
from ..report.interval import interval_text
from ..report.risk_coverage import RiskCoverage
from .findings import findings


# Name, scale, unit and digits of each metric.
SHOWN = (("accuracy", 100, "%", 2), ("ece", 100, "%", 2), ("nll", 1, "", 3), ("brier", 1, "", 3))


def summary_table(report: EvaluationReport) -> str:
    """What was measured, before and after the temperature, with 95 % intervals, and what is promised."""
    columns: list[tuple[str, Measurement]] = [("measured", report.before)]
    if report.after is not None and report.has_temperature:
        columns = [("without temperature", report.before), ("with temperature", report.after)]
    method = report.training_arguments.get("method")
    size = "" if report.image_size is None else ", {} x {} pixels".format(*report.image_size)
    title = f"{report.model} on {report.dataset}, {report.split} (n = {report.n}{size})"
    lines = [f"{title}, method {method}" if method else title, ""]
    lines.append(" " * 22 + "".join(f"{title:>28}" for title, _ in columns))
    for name, *style in SHOWN:
        cells = "".join(f"{interval_text(part.metrics[name], *style):>28}" for _, part in columns)
        lines.append(f"{name:<22}{cells}")
    floors = "".join(f"{100 * part.noise_floor:>27.2f}%" for _, part in columns)
    lines.append(f"{'ece noise floor':<22}{floors}")
    lines.append("")
    if report.temperature is not None:
        lines.append(_temperature(report.temperature))
    if report.risk_coverage is not None:
        lines.append(_risk_coverage(report.risk_coverage))
    if report.corruptions is not None:
        lines.append(_corruptions(report.corruptions))
    lines += findings(report)
    if report.guarantees is not None:
        lines += ["", *_guarantees(report.guarantees)]
    return "\n".join(lines)


def kind_of_model(report: EvaluationReport) -> str:
    """What to call the model in a sentence: calibrated only if the temperature helped."""
    if report.is_calibrated:
        return "calibrated model"
    if report.has_temperature:
        return "model, whose temperature did not help beyond chance,"
    return "model, which has no temperature,"


def _temperature(temperature: Temperature) -> str:
    if temperature.reason is not None:
        return f"not calibrated, the temperature stays 1: {temperature.reason}"
    error = f" ± {temperature.standard_error:.4f}" if temperature.standard_error is not None else ""
    where = f", fitted on {temperature.n} held-out images" if temperature.n is not None else ""
    line = f"temperature {temperature.value:.4f}{error}{where}"
    if temperature.nll_gain is None:
        return line
    gain = interval_text(temperature.nll_gain, digits=3)
    if temperature.helped:
        return f"{line}; it lowered the NLL of the test images by {gain}"
    harmed = temperature.nll_gain.high < 0
    verdict = "it raised the NLL of the test images" if harmed else "no lower NLL of the test images beyond chance"
    return f"{line}; not calibrated: {verdict} (gain {gain})"


def _risk_coverage(found: RiskCoverage) -> str:
    answered = ", ".join(f"{100 * part.value:.1f}% at {risk}" for risk, part in found.coverage_at_risk.items())
    return f"AURC {interval_text(found.aurc)}; images that can be answered at an error rate: {answered}"


def _corruptions(table: CorruptionTable) -> str:
    means = {"mean15": table.mean(STANDARD_15), "mean19": table.mean(CORRUPTIONS)}
    shown = [f"{name} {100 * value:.2f}%" for name, value in means.items() if value is not None]
    clean = f"; clean, on the same images: {100 * table.clean.accuracy:.2f}%" if table.clean is not None else ""
    return f"accuracy under corruption ({table.params} parameters, n = {table.n}): {', '.join(shown)}{clean}"


def _guarantees(guarantees: Guarantees) -> list[str]:
    if guarantees.reason is not None:
        return [f"nothing is promised: {guarantees.reason}"]
    kind = "" if guarantees.exact else ", approximate, since the held-out images also chose the checkpoint"
    sets = [promise for promise in guarantees.prediction_sets if promise.method == "lac"]
    return [
        f"promises for images like the {guarantees.num_guarantee} held-out ones{kind}, and what came true on test:",
        *map(_set, sets),
        *map(_abstention, guarantees.abstentions),
    ]


def _set(promise: PredictionSetGuarantee) -> str:
    found = f"{_share(promise.test_coverage)}, {promise.mean_size:.2f} classes"
    return f"  sets with the right class, {_level(promise.coverage)}: {found}{_shifted(promise.severity_coverage)}"


def _abstention(promise: AbstentionGuarantee) -> str:
    line = f"  answers {_level(promise.accuracy)} right"
    if promise.threshold is None:
        return f"{line}: not promised, {promise.reason}"
    line += f", where confidence >= {promise.threshold:.4g}: "
    if promise.test_accuracy is None:
        return line + "no test image is answered"
    answered = f"{100 * promise.test_answered.value:.1f}% of images answered"
    return f"{line}{_share(promise.test_accuracy)}, {answered}{_shifted(promise.severity_accuracy)}"


def _shifted(by_severity: Mapping[int, Share]) -> str:
    if not by_severity:
        return ""
    shares = [by_severity.get(severity) for severity in SEVERITIES]
    shown = ", ".join("-" if share is None else f"{100 * share.value:.0f}" for share in shares)
    return f"; at severity 1 to 5: {shown}%"


def _share(share: Share) -> str:
    return interval_text(share, 100, "%", 1)


def _level(level: float) -> str:
    return f"{100 * level:g}%"
