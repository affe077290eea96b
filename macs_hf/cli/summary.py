"""A report as a few lines of text for a terminal."""

from collections.abc import Mapping

from ..data.leakage import leakage_line
from ..report.corruption_table import CORRUPTIONS, SEVERITIES, STANDARD_15, CorruptionTable
from ..report.evaluation import EvaluationReport, Measurement, Temperature
from ..report.groups import GroupTable
from ..report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share
from ..report.interval import Bounded, digits_shown, interval_text
from ..report.risk_coverage import RiskCoverage
from ..report.unknowns import SCORE_NAMES, Unknowns


LABEL = 22  # columns for the name of a row, more for a threshold of 0.999998: it must not be shown as 1
WORST = 3  # classes and groups to name
# Name, scale, unit and digits of each metric.
SHOWN = (("accuracy", 100, "%", 2), ("ece", 100, "%", 2), ("nll", 1, "", 3), ("brier", 1, "", 3))


def summary_table(report: EvaluationReport) -> str:
    """What was measured, before and after the temperature, with 95 % intervals, and what is promised."""
    columns = {"measured": report.before}
    if report.after is not None and report.has_temperature:
        columns = {"without temperature": report.before, "with temperature": report.after}
    method = report.training_arguments.get("method")
    size = "" if report.image_size is None else ", {} x {} pixels".format(*report.image_size)
    title = f"{report.model} on {report.dataset}, {report.split} (n = {report.n}{size})"
    lines = [f"{title}, method {method}" if method else title, ""]
    lines += metric_table(columns)
    if report.temperature is not None:
        lines.append(_temperature(report.temperature))
    if report.risk_coverage is not None:
        lines.append(_risk_coverage(report.risk_coverage))
    if report.corruptions is not None:
        lines.append(_corruptions(report.corruptions))
    lines += _findings(report)
    if report.guarantees is not None:
        lines += ["", *_guarantees(report.guarantees)]
    return "\n".join(lines)


def metric_table(columns: Mapping[str, Measurement]) -> list[str]:
    """Each metric with its interval, a column for each measurement, and how to read them."""
    lines = [" " * LABEL + "".join(f"{title:>28}" for title in columns)]
    for name, *style in SHOWN:
        cells = "".join(f"{interval_text(part.metrics[name], *style):>28}" for part in columns.values())
        lines.append(f"{name:<{LABEL}}{cells}")
    floors = "".join(f"{100 * part.noise_floor:>27.2f}%" for part in columns.values())
    lines += [f"{'ece by chance alone':<{LABEL}}{floors}", ""]
    return [*lines, "[ ]: 95 % intervals; by chance alone: the ece of a perfectly calibrated model on so few images"]


def kind_of_model(report: EvaluationReport) -> str:
    """What to call the model in a sentence: calibrated only if the temperature helped."""
    if report.is_calibrated:
        return "calibrated model"
    if report.has_temperature:
        return "model, whose temperature did not help beyond chance,"
    return "model, which got no temperature,"


def _temperature(temperature: Temperature) -> str:
    if temperature.reason is not None:
        return f"not calibrated, the temperature stays 1: {temperature.reason}"
    error = f" ± {temperature.standard_error:.4f}" if temperature.standard_error is not None else ""
    where = f", fitted on {temperature.n} held-out images" if temperature.n is not None else ""
    line = f"temperature {temperature.value:.4f}{error}{where}"
    if temperature.nll_gain is None:
        return line
    gain = interval_text(temperature.nll_gain, digits=digits_shown(temperature.nll_gain, 3))
    if temperature.helped:
        return f"{line}; it lowered the NLL of the test images by {gain}"
    harmed = temperature.nll_gain.high < 0
    verdict = "it raised the NLL of the test images" if harmed else "no lower NLL of the test images beyond chance"
    return f"{line}; not calibrated: {verdict} (gain {gain})"


def _risk_coverage(found: RiskCoverage) -> str:
    if found.risk[-1] == 0:
        return "no answer to a test image was wrong: how well confidence ranks errors is not known"
    parts = [f"{interval_text(part, 100, '%', 1)} with {risk} wrong" for risk, part in found.coverage_at_risk.items()]
    aurc = interval_text(found.aurc)
    return f"test images that could be answered, the surest first: {', '.join(parts)} (AURC {aurc}); no promise"


def _corruptions(table: CorruptionTable) -> str:
    means = {"the 15 standard ones": table.mean(STANDARD_15), "all 19": table.mean(CORRUPTIONS)}
    shown = [f"{100 * value:.2f}%, mean of {name}" for name, value in means.items() if value is not None]
    clean = f"; without, {100 * table.clean.accuracy:.2f}%" if table.clean is not None else ""
    return f"accuracy under corruption: {'; '.join(shown)}{clean} ({table.n} images, {table.params} parameters)"


def _findings(report: EvaluationReport) -> list[str]:
    """Worst classes and groups, copies between splits, and unknown images, as far as they were measured."""
    lines = []
    for table, kind in ((report.classes, "class"), (report.groups, "group")):
        if table is not None and len(table.groups) > 1:
            lines.append(_worst(table, kind if kind == "class" else table.column))
    if report.leakage is not None:
        lines.append(leakage_line(report.leakage))
    return lines + ([] if report.unknowns is None else ["", *_unknowns(report.unknowns)])


def _worst(table: GroupTable, kind: str) -> str:
    worst = table.groups[:WORST]
    shown = [f"{group.name!r} {_share(group.accuracy)}{'*' if group.significant else ''}" for group in worst]
    line = f"lowest accuracy by {kind}: {', '.join(shown)}"
    if any(group.significant for group in worst):
        return f"{line} (*: differs from the other images beyond chance, corrected for {len(table.groups)})"
    return f"{line} (none of these differs from the other images beyond chance, corrected for {len(table.groups)})"


def _unknowns(unknowns: Unknowns) -> list[str]:
    lines = [
        f"{unknowns.n:,} images of none of its classes ({unknowns.dataset}, {unknowns.split}): mean confidence "
        f"{100 * unknowns.confidence:.1f}%, on test images {100 * unknowns.known_confidence:.1f}%"
    ]
    for found in unknowns.published:
        auroc, fpr = _share(found.auroc), _share(found.fpr95)
        lines.append(f"  {SCORE_NAMES[found.score]:<20} AUROC {auroc}, accepted when 95% of test images are: {fpr}")
    for found in unknowns.answered:
        lines.append(
            f"  answers {100 * found.accuracy:g}% right, where confidence >= {found.threshold:.6g}: "
            f"{_share(found.unknown)} of them are answered, and {100 * found.known.value:.1f}% of test images"
        )
    return lines


def _guarantees(guarantees: Guarantees) -> list[str]:
    if guarantees.reason is not None:
        return [f"nothing is promised: {guarantees.reason}"]
    kind = "" if guarantees.exact else ", approximate, since these also chose the checkpoint"
    sets = [promise for promise in guarantees.prediction_sets if promise.method == "lac"]
    kept = [promise for promise in guarantees.abstentions if promise.threshold is not None]
    is_shifted = any(promise.severity_coverage for promise in sets)
    others = [promise for promise in guarantees.abstentions if promise.threshold is None]
    return [
        f"promises for images like the {guarantees.num_guarantee} held-out ones{kind}, and what came true:",
        f"{'promise':<{LABEL}}{'on test images':<37}{'at severity 1 to 5' if is_shifted else ''}".rstrip(),
        *map(_set, sets),
        *map(_abstention, kept),
        *(f"{_level(promise.accuracy)} of the answers right: not promised, {promise.reason}" for promise in others),
    ]


def _set(promise: PredictionSetGuarantee) -> str:
    label, size = f"class in {_level(promise.coverage)} of sets", f"{promise.mean_size:.2f} classes"
    return _promise(label, promise.test_coverage, size, promise.severity_coverage)


def _abstention(promise: AbstentionGuarantee) -> str:
    label = f"{_level(promise.accuracy)} right, if >= {promise.threshold:.6g}"
    if promise.test_accuracy is None:
        return f"{label + ' ':<{LABEL}}no test image is answered"
    answered = f"{100 * promise.test_answered.value:.1f}% answered"
    return _promise(label, promise.test_accuracy, answered, promise.severity_accuracy)


def _promise(label: str, share: Share, cost: str, by_severity: Mapping[int, Share]) -> str:
    """A row of a table that fits 80 columns."""
    shares = [by_severity.get(severity) for severity in SEVERITIES] if by_severity else []
    shown = " ".join(f"{'-' if share is None else f'{100 * share.value:.0f}':>3}" for share in shares)
    return f"{label + ' ':<{LABEL}}{_share(share):<21}{cost:<16}{f'{shown}%' if shown else ''}".rstrip()


def _share(share: Bounded) -> str:
    return interval_text(share, 100, "%", 1)


def _level(level: float) -> str:
    return f"{100 * level:g}%"
