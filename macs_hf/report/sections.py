"""
A report as headline and sections: what it says, once, for terminal, notebook, card, page, app and pull request.

Whoever shows a report prints these and adds nothing: all texts are plain, and are escaped where they are shown.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Literal, NamedTuple

from .report import (
    AbstentionGuarantee,
    Cell,
    ConfusionMatrix,
    CorruptionTable,
    EvaluationReport,
    GroupTable,
    Guarantees,
    Interval,
    Leakage,
    Measurement,
    OutOfDistribution,
    PredictionSetGuarantee,
    RiskCoverage,
    Share,
    SizeTrial,
    Temperature,
)
from .rows import FAMILIES, MEANS, SEVERITIES, STANDARD_15
from .run_folder import PICTURES


# ---- Numbers and names in words ----


def percent(share: float, digits: int = 1) -> str:
    """A share, as terminals and cards show it."""
    return f"{100 * share:.{digits}f} %"


def level(share: float) -> str:
    """A threshold or a guarantee: 0.99998 is not 100 %, which nothing reaches."""
    return f"{100 * share:.6g} %"


def interval_text(found: Interval, scale: float = 1, unit: str = "", digits: int = 4, sign: str = "") -> str:
    """
    A value and its interval, as terminals and cards show it.

    ```python
    >>> interval_text(Interval(0.9, 0.88, 0.915), 100, " %", 1)
    '90.0 % [88.0, 91.5]'

    ```
    """
    value, low, high = (f"{scale * number:{sign}.{digits}f}" for number in (found.value, found.low, found.high))
    return f"{value}{unit} [{low}, {high}]"


def _share(found: Interval | None) -> str:
    return "" if found is None else interval_text(found, 100, " %", 1)


def short_name(name: str) -> str:
    """A Hub id as it is; of a local path only the last part, which says nothing about the machine."""
    return name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else Path(name).name


# ---- Metrics ----


class Metric(NamedTuple):
    """How a metric is shown: what it is called, the factor, unit and digits of its values, which values are better."""

    title: str
    scale: int
    unit: str
    digits: int
    better: Literal["higher", "lower", "near 0"]

    @property
    def style(self) -> tuple[int, str, int]:
        """The arguments of `interval_text`."""
        return self.scale, self.unit, self.digits


METRICS = {
    "accuracy": Metric("Accuracy", 100, " %", 2, "higher"),
    "ece": Metric("Calibration error (ECE)", 100, " %", 2, "lower"),
    "nll": Metric("Negative log-likelihood", 1, "", 3, "lower"),
    "brier": Metric("Brier score", 1, "", 3, "lower"),
    "debiased_ece": Metric("Calibration error, debiased", 100, " %", 2, "lower"),
    "confidence_gap": Metric("Confidence minus accuracy", 100, " %", 2, "near 0"),
    "aurc": Metric("Risk over coverage (AURC)", 1, "", 4, "lower"),
    "excess_aurc": Metric("Excess AURC", 1, "", 4, "lower"),
    "mean15": Metric("Accuracy under 15 corruptions", 100, " %", 2, "higher"),
    "mean19": Metric("Accuracy under 19 corruptions", 100, " %", 2, "higher"),
}
METRICS |= {
    f"coverage_at_{risk}_risk": Metric(f"Answered at {risk} risk", 100, " %", 1, "higher")
    for risk in ("1%", "5%", "10%")
}
IN_EVERY_REPORT = ("accuracy", "ece", "nll", "brier")


# ---- Headline ----


MOST_UNCERTAIN = 0.03  # noise floor, and half of the interval of the accuracy: with more, nothing is ruled out
Trust = Literal["trusted", "overconfident", "underconfident", "miscalibrated", "unknown", "chance"]
# What a calibration error says of a model: a title, and the beginning of a sentence.
FINDINGS: dict[str, tuple[str, str]] = {
    "trusted": ("Its probabilities can be trusted", "No miscalibration was detected"),
    "unknown": ("No miscalibration beyond chance", "More images would tell whether there is more to it than chance"),
    "overconfident": ("Overconfident", "Its confidence is {:.1f} points too high on average"),
    "underconfident": ("Underconfident", "Its confidence is {:.1f} points too low on average"),
    "miscalibrated": ("Miscalibrated", "It is too sure at some confidences and not sure enough at others"),
}
NOT_FOUND = ("trusted", "unknown")  # no calibration error beyond chance


class Headline(NamedTuple):
    """A title of a few words, and a sentence each on what the model can do and on its confidence."""

    trust: Trust  # whether its confidence can be trusted, with its temperature if it has one
    title: str
    ability: str
    confidence: str


def headline(report: EvaluationReport) -> Headline:
    """
    What a reader should take away from a report.

    A calibration error counts as such if its interval excludes 0, which with perfect calibration happens to one in 20
    test sets; below the noise floor nothing was found, and in between it cannot be decided. With so few images that
    chance alone explains more than 3 points, of the calibration error or of the accuracy, nothing that was not found
    can be ruled out either.
    """
    if report.above_chance is False:
        return Headline("chance", "Its accuracy is not above chance", _ability(report), _why_at_chance(report))
    before, published = trust_of(report.before), trust_of(report.published)
    title, found = _title(report.before), before not in NOT_FOUND
    if not found and published != "trusted":
        title = _title(report.published) + ("" if published in NOT_FOUND else " with its temperature")
    if report.has_temperature and not report.is_calibrated:
        title += ", and a temperature does not help beyond chance"
    elif report.has_temperature and found:
        title += f" before its temperature, which {'repairs it' if published == 'trusted' else 'helps'}"
    return Headline(published, title, _ability(report), _confidence(report))


def trust_of(part: Measurement) -> Trust:
    """What the calibration error, its interval and its noise floor say together."""
    ece = part.metrics["ece"]
    if ece.value <= part.noise_floor:
        return "unknown" if has_too_few(part) else "trusted"
    if ece.low <= 0:  # noise alone reaches such an error
        return "unknown"
    gap, bins = confidence_gap(part), zip(part.bins.count, part.bins.accuracy, strict=True)
    # Standard error of the gap, given the confidences: answers of one bin are right with about the same chance.
    error = math.sqrt(sum(n * share * (1 - share) for n, share in bins)) / sum(part.bins.count)
    if abs(gap) <= 1.96 * error:
        return "miscalibrated"  # too sure at some confidences and not sure enough at others
    return "overconfident" if gap > 0 else "underconfident"


def _title(part: Measurement) -> str:
    if (trust := trust_of(part)) == "unknown" and has_too_few(part):
        return "Too few images to tell whether it is calibrated"
    return FINDINGS[trust][0]


def has_too_few(part: Measurement) -> bool:
    """Whether the images are so few that a calibration error of some points may be hidden in the noise."""
    accuracy = part.metrics["accuracy"]
    return max(part.noise_floor, (accuracy.high - accuracy.low) / 2) > MOST_UNCERTAIN


def confidence_gap(part: Measurement) -> float:
    """Mean confidence minus accuracy: above 0 is overconfident."""
    total = sum(part.bins.count)
    confidence = sum(n * value for n, value in zip(part.bins.count, part.bins.confidence, strict=True)) / total
    return confidence - part.metrics["accuracy"].value


def _ability(report: EvaluationReport) -> str:
    accuracy, table = report.published.metrics["accuracy"], report.corruptions
    text = f"of {report.n:,} test images"
    if report.above_chance is False:
        chance = percent(report.chance_level)
        return f"It is right on {_share(accuracy)} {text}; to name their most frequent class always, on {chance}."
    text = f"It is right on {percent(accuracy.value)} {text}"
    if table is not None:
        mean = table.mean(STANDARD_15)
        text += "" if mean is None else f", and on {percent(mean)} of corrupted ones"
        text += "; {} is the worst, with {}".format(*_worst(table))
    return f"{text}."


def _worst(table: CorruptionTable) -> tuple[str, str]:
    accuracy, name = min((mean, name) for name, mean in table.by_corruption().items())
    return name.replace("_", " "), percent(accuracy)


def _why_at_chance(report: EvaluationReport) -> str:
    if report.better_size is not None:
        return _at_another_size(report.better_size)
    why = "too few steps, too large a learning rate, labels of other images"
    if not report.training_arguments:
        why = "it was trained with images of another size (--image_size), its classes have another order than those "
        why += "of the dataset, or it was trained on other data"
    return f"Likely reasons, in this order: {why}."


def _at_another_size(better: SizeTrial) -> str:
    return (
        f"With images of {better.size} x {better.size} pixels it is right on {percent(better.accuracy)} of "
        f"{better.n:,} of them: measure it with --image_size {better.size}."
    )


def _confidence(report: EvaluationReport) -> str:
    part, temperature = report.before, report.temperature
    text = FINDINGS[trust_of(part)][1].format(100 * abs(confidence_gap(part)))
    text += f": its calibration error is {_ece_and_chance(part)}"
    if temperature is not None and temperature.reason is not None:
        text += f"; the temperature stays 1 ({temperature.reason})"
    elif report.after is not None:
        text += f"; with a temperature of {temperature.value:.2f} it is {_ece_and_chance(report.after)}"
    return f"{text}."


def _ece_and_chance(part: Measurement) -> str:
    return f"{percent(part.metrics['ece'].value)} (by chance {percent(part.noise_floor)})"


# ---- Sections ----


WORST, MISTAKES = 5, 3  # classes or groups in a table, frequent confusions in a sentence
IN_A_LINE = 3  # classes or groups, and renamed classes
MEAN_NAMES = {"mean15": "mean of the standard 15", "mean19": "mean of all 19"}
# What the parameters of the corruptions were made for.
SIZES = {"cifar": " (for small images)", "imagenet": " (for photographs)"}


class Table(NamedTuple):
    """Cells of text; the first column names the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Section(NamedTuple):
    """A part of a report: sentences, a table, sentences about it, and pictures, where they were drawn."""

    title: str
    finding: str  # what a reader with one line should know
    lead: str
    table: Table | None = None  # numbers, with their 95 % intervals in brackets
    notes: Sequence[str] = ()
    pictures: Mapping[str, str] = MappingProxyType({})  # files, and what they show in words


def sections(report: EvaluationReport) -> list[Section]:
    """Everything that a report has, the most important first; what it lacks is left out."""
    found = [measured(report)]
    for name, make in PARTS.items():
        if getattr(report, name):
            found += make(report)
    return found


# What parts of a report say, in the order in which they are shown; without a sentence that the headline says.
PARTS: dict[str, Callable[[EvaluationReport], Sequence[Section]]] = {
    "better_size": lambda r: [_line("Input size", _at_another_size(r.better_size))] if r.above_chance else [],
    "renamed_classes": lambda r: [_line("Class names", renamed_line(r.renamed_classes))],
    "corruptions": lambda r: [corrupted(r.corruptions)],
    "guarantees": lambda r: _guaranteed(r.guarantees),
    "risk_coverage": lambda r: [_ranked(r.risk_coverage)],
    "classes": lambda r: [worst_groups(r.classes, r.confusion)],
    "groups": lambda r: [worst_groups(r.groups)],
    "ood": lambda r: [_ood(r.ood)],
    "leakage": lambda r: [_line("Copies between splits", f"{leakage_line(r.leakage).capitalize()}.")],
}


def _line(title: str, line: str) -> Section:
    """A section of one sentence."""
    return Section(title, line, line)


def _described(finding: str, *names: str) -> dict[str, str]:
    return {name: f"{PICTURES[name]}. {finding}" for name in names}


def measured(report: EvaluationReport) -> Section:
    """The metrics of the model, without and with its temperature."""
    columns = {"as published": report.before}
    if report.after is not None and report.has_temperature:
        columns = {"without temperature": report.before, "with temperature": report.after}
    size = "" if report.image_size is None else ", {} x {} pixels".format(*report.image_size)
    sentences = [] if report.temperature is None else temperature_sentences(report.temperature)
    return Section(
        "Measured",
        _in_a_line(report),
        f"{report.n:,} images of {short_name(report.dataset)}, {report.split}{size}. In brackets: 95 % intervals over "
        "the test images; they do not cover the variation between training runs.",
        metric_table(columns),
        (
            f"ECE: {len(report.before.bins.count)} equal-width bins of the highest probability. By chance alone: the "
            "ECE of a perfectly calibrated model with the same confidences on so many images (the noise floor).",
            *sentences,
        ),
        _described(_confidence(report), "reliability.png"),
    )


def _in_a_line(report: EvaluationReport) -> str:
    """Accuracy and calibration of the published model, and why it has no temperature or should have none."""
    part, temperature = report.published, report.temperature
    line = f"Accuracy {_share(part.metrics['accuracy'])}; ECE {_ece_and_chance(part)}"
    if report.has_temperature:
        line += f", without the temperature {percent(report.before.metrics['ece'].value)}"
    if temperature is None or report.is_calibrated:
        return f"{line}."
    return f"{line}. {_outcome(temperature)}".rstrip()


def metric_table(columns: Mapping[str, Measurement]) -> Table:
    """Each metric with its interval and the noise floor, a column for each measurement."""
    rows = [
        [METRICS[name].title, *(interval_text(part.metrics[name], *METRICS[name].style) for part in columns.values())]
        for name in IN_EVERY_REPORT
    ]
    rows.insert(2, ["ECE by chance alone", *(percent(part.noise_floor, 2) for part in columns.values())])
    return Table(("", *columns), rows)


def temperature_sentences(temperature: Temperature) -> list[str]:
    """Where it comes from, and whether it helped."""
    if temperature.reason is not None:
        return [_outcome(temperature)]
    error = "" if temperature.standard_error is None else f" ± {temperature.standard_error:.4f}"
    images = "images" if temperature.n is None else f"{temperature.n:,} images"
    split = "" if temperature.calibration_split is None else f" of {temperature.calibration_split}"
    fitted = (
        f"The temperature is {temperature.value:.4f}{error}, fitted on {images}{split} that neither trained nor "
        "tested the model; it changes the confidence, not the predicted class."
    )
    return [fitted, outcome] if (outcome := _outcome(temperature)) else [fitted]


def _outcome(temperature: Temperature) -> str:
    """Whether it helped on the test images, or why there is none; empty where an older report does not say."""
    gain, rise = temperature.nll_gain, temperature.ece_rise
    if temperature.reason is not None:
        return f"The temperature stays 1: {temperature.reason}."
    if gain is None:
        return ""
    if temperature.helped:
        return f"It lowered the NLL of the test images by {interval_text(gain)}."
    more = "" if rise is None else f", and it changed their ECE by {interval_text(rise, 100, ' points', 2)}"
    return f"Not called calibrated: the gain in NLL on the test images is {interval_text(gain)}{more}."


def corrupted(table: CorruptionTable) -> Section:
    """Accuracy under corruption, and what becomes of the confidence."""
    rows = [] if table.clean is None else [("clean, the same images", percent(table.clean.accuracy))]
    for mean, names in (MEANS | FAMILIES).items():
        accuracy, interval = table.mean(names), table.interval(mean) if mean in MEANS else None
        if accuracy is not None and mean != "extra":
            rows.append((MEAN_NAMES.get(mean, f"{mean}, of the 15"), _share(interval) or percent(accuracy)))
    main = next((f"{shown}, {name}" for name, shown in rows if name in MEAN_NAMES.values()), None)
    each = ", each image under one of them" if table.design == "spread" else ""
    notes = _confidence_under_corruption(table)
    if table.source == "generated":
        notes.append("Compare them only with numbers from images that were corrupted in the same way.")
    finding = f"Accuracy under corruption: {main or '{1} under {0}, the worst'.format(*_worst(table))}."
    return Section(
        "Under corruption",
        finding,
        f"Accuracy on {table.n:,} images under {len(table.cells)} corruptions at five severities{each}: "
        f"{table.source}, {table.params} parameters{SIZES.get(table.params, '')}.",
        Table(("images", "accuracy"), rows) if rows else None,
        notes,
        _described(finding, "corruptions.png", "severity.png"),
    )


def _confidence_under_corruption(table: CorruptionTable) -> list[str]:
    """Over- or underconfident, by how much, and the ECE: always beside the same images without corruption."""
    sentences, gaps = [], table.confidence_gap or {}
    where = {"mean15": "Under corruption (mean of the standard 15)", "clean": "Without corruption (the same images)"}
    if "mean15" in gaps:
        sentences += [f"{text} the model is {_direction(gaps[name])}." for name, text in where.items() if name in gaps]
    if table.mean(STANDARD_15) is not None:
        cells, scaled = [c for name in STANDARD_15 for c in table.cells[name].values()], table.temperature is not None
        said = f"Mean ECE under corruption: {_mean_ece(cells, scaled)}"
        if table.temperature not in (None, 1.0):
            said += f", without the temperature {_mean_ece(cells, False)}"
        if table.clean is not None:
            said += f"; without corruption {_mean_ece([table.clean], scaled)}"
        sentences.append(f"{said}.")
    return sentences


def _direction(gap: Interval) -> str:
    word = "neither over- nor underconfident beyond chance"
    if gap.low > 0 or gap.high < 0:
        word = "overconfident" if gap.low > 0 else "underconfident"
    return f"{word}: its mean confidence minus its accuracy is {interval_text(gap, 100, ' points', 1, '+')}"


def _mean_ece(cells: Sequence[Cell], scaled: bool) -> str:
    """The mean over cells, and that of the noise floors, which older tables do not hold."""
    mean = percent(fmean(cell.scaled_ece if scaled else cell.ece for cell in cells))
    floors = [cell.scaled_noise_floor if scaled else cell.noise_floor for cell in cells]
    return mean if None in floors else f"{mean} (noise floor {percent(fmean(floors))})"


def _guaranteed(found: Guarantees) -> list[Section]:
    """Prediction sets and answers only when sure: what is guaranteed, and what came true."""
    if found.reason is not None:
        return [_line("Coverage guarantees", f"No coverage guarantee: {found.reason}.")]
    used = "were used for nothing else" if found.exact else "also chose the checkpoint: it is approximate"
    origin = f"{found.num_guarantee:,} held-out images, which {used}"
    parts = [] if found.shown_set is None else [_prediction_sets(found, found.shown_set, origin)]
    return [*parts, _abstentions(found, origin)] if found.abstentions else parts


def _prediction_sets(found: Guarantees, shown: PredictionSetGuarantee, origin: str) -> Section:
    header = ["guaranteed", "method", "sets with the right class", "mean size"]
    rows = []
    for sets in found.prediction_sets:
        size = "" if sets.mean_size is None else f"{sets.mean_size:.2f}"
        rows.append([level(sets.coverage), sets.method.upper(), _share(sets.test_coverage), size])
    finding = f"Prediction sets hold the right class of at least {level(shown.coverage)} of images (guaranteed)"
    if shown.test_coverage is not None and shown.mean_size is not None:
        held = percent(shown.test_coverage.value)
        finding += f"; they hold that of {held} of the test images, with {shown.mean_size:.2f} classes on average"
    usual = 196 * math.sqrt(shown.coverage * (1 - shown.coverage) / (found.num_guarantee + 2))
    return Section(
        "Prediction sets",
        f"{finding}.",
        "Instead of one class, the model can return a set of classes, which contains the right one with at least the "
        "guaranteed probability for new images like the held-out ones (a conformal coverage guarantee). It comes from "
        f"{origin}. Over the choice of these images, the coverage of one model usually lies within {usual:.1f} points "
        f"of {level(shown.coverage)}. It holds for all images together, not for each class, and not for corrupted "
        "images. Beside it, what came true on the test images.",
        _with_severities(header, rows, [sets.severity_coverage for sets in found.prediction_sets]),
        (
            "LAC (least ambiguous sets) aims at the smallest sets, RAPS (regularised adaptive sets) at a coverage "
            "that is more even over easy and hard images. Sets of several levels are the same where the most probable "
            "class alone is right often enough.",
        ),
    )


def _abstentions(found: Guarantees, origin: str) -> Section:
    kept = [part for part in found.abstentions if part.threshold is not None]
    header = ["guaranteed right", "confidence at least", "test images answered", "of these right"]
    rows = [
        [
            level(part.accuracy),
            f"{part.threshold:.6g}" if part.threshold > 0 else "any",
            _share(part.test_answered),
            _share(part.test_accuracy) or "no image is answered",
        ]
        for part in kept
    ]
    missing = [
        f"{level(part.accuracy)} right is not guaranteed: {part.reason}." for part in found.abstentions if part.reason
    ]
    return Section(
        "Answering only when sure",
        _answers_line(kept[0]) if kept else missing[0],
        "If the model answers only where its confidence reaches a threshold, at least the guaranteed share of its "
        f"answers is right for images like the held-out ones. It comes from {origin}. Each line by itself holds with "
        f"a probability of {percent(1 - found.abstentions[0].delta, 0)} over the choice of these images.",
        _with_severities(header, rows, [part.severity_accuracy for part in kept]) if rows else None,
        missing,
    )


def _answers_line(part: AbstentionGuarantee) -> str:
    which = (
        f"its answers with a confidence of at least {level(part.threshold)}" if part.threshold > 0 else "all answers"
    )
    line = f"Of {which}, at least {level(part.accuracy)} are right (guaranteed)"
    if part.test_answered is None or part.test_accuracy is None:
        return f"{line}; no test image gets such an answer."
    right = f"{percent(part.test_accuracy.value)} are right"
    if part.threshold > 0:
        return f"{line}; {percent(part.test_answered.value)} of the test images get such an answer, of which {right}."
    return f"{line}; on the test images {right}."


def _with_severities(header: list[str], rows: list[list[str]], found: Sequence[Mapping[int, Share]]) -> Table:
    """With a last column of what came true on corrupted images, if these were measured."""
    if any(found):
        header.append("corrupted, severity 1 to 5")
        for row, shares in zip(rows, found, strict=True):
            cells = (f"{100 * shares[s].value:.1f}" if s in shares else "-" for s in SEVERITIES)
            row.append(f"{' / '.join(cells)} %")
    return Table(header, rows)


def _ranked(found: RiskCoverage) -> Section:
    title = "Risk and coverage"
    if found.risk[-1] == 0:
        line = "No answer to a test image was wrong: how well confidence ranks errors is not known."
        return _line(title, line)._replace(pictures=_described(line, "risk_coverage.png"))
    shares = {risk.replace("%", " %"): _share(part) for risk, part in found.coverage_at_risk.items()}
    answered = ", ".join(f"{share} with {risk} wrong" for risk, share in shares.items())
    finding = f"Test images that can be answered, the surest first: {answered} (measured, not guaranteed)."
    return Section(
        title,
        finding,
        "If the model answers only where it is surest. Measured on the test images, and no guarantee for others.",
        Table(("wrong answers", "images answered"), [(f"at most {risk}", share) for risk, share in shares.items()]),
        (
            f"AURC, the mean share of errors over all numbers of answered images: {interval_text(found.aurc)}; the "
            f"best possible order would give {found.aurc.value - found.excess_aurc.value:.4f}.",
        ),
        _described(finding, "risk_coverage.png"),
    )


def worst_groups(table: GroupTable, confusion: ConfusionMatrix | None = None) -> Section:
    """The classes, or the groups by another column, that the model is least accurate on."""
    of_classes, guaranteed = table.column == "label", table.guaranteed_coverage
    what, number = "class" if of_classes else table.column, f"{len(table.groups):,}"
    header = [what, "images", "accuracy", "confidence - accuracy"]
    header += [] if guaranteed is None else [f"{level(guaranteed)} sets with the right class"]
    rows, stars = [], {True: " *", False: ""}
    for group in table.groups[:WORST]:
        gap = interval_text(group.gap, 100, " %", 1, "+")
        rows.append([group.name, f"{group.n:,}", _share(group.accuracy) + stars[group.significant], gap])
        if guaranteed is not None:
            rows[-1].append(_share(group.coverage) + stars[group.coverage_significant])
    notes = [f"*: differs from all other images beyond chance, corrected for {number} comparisons."]
    if of_classes:
        notes.append("Even a perfectly calibrated model is too confident on the images of a hard class.")
    lowest = ", ".join(f"{group.name!r} {percent(group.accuracy.value)}" for group in table.groups[:IN_A_LINE])
    finding = f"Lowest accuracy by {what}: {lowest}."
    pictures = _described(finding, "classes.png" if of_classes else "groups.png")
    if confusion is not None:
        names, counts = confusion.class_names, confusion.to_array().sum(axis=1)
        mistakes = (
            f"{names[label]} taken for {names[other]} ({count:,} of {counts[label]:,})"
            for count, label, other in confusion.mistakes()[:MISTAKES]
        )
        notes.append(f"Most frequent mistakes: {', '.join(mistakes) or 'none'}.")
        pictures |= _described(notes[-1], "confusion.png")
    return Section(
        "Classes" if of_classes else f"By {table.column}",
        finding,
        f"The lowest of {number}, in the order of the upper end of the interval. Confidence - accuracy: above 0 is "
        "overconfident.",
        Table(header, rows),
        notes,
        pictures,
    )


def _ood(found: OutOfDistribution) -> Section:
    rows = [
        (part.score.replace("max_", "maximum "), _share(part.auroc), _share(part.fpr95)) for part in found.published
    ]
    what = f"{found.n:,} images of none of its classes ({short_name(found.dataset)}, {found.split})"
    means = f"mean confidence {percent(found.confidence)}, on test images {percent(found.known_confidence)}"
    notes = [
        f"With the threshold for {level(part.accuracy)} right answers, a confidence of {part.threshold:.6g}, "
        f"{percent(part.known.value)} of the test images are answered, and {_share(part.unknown)} of the unknown ones."
        for part in found.answered
    ]
    if found.left_out:
        notes.append(f"Images of classes that the model has were left out: {', '.join(found.left_out)}.")
    if found.copies:
        notes.append(f"{found.copies:,} of these images are exact copies of test images.")
    return Section(
        "Images of none of its classes",
        f"{what}: {means}; best AUROC {max(found.published, key=lambda part: part.auroc.value).auroc.value:.3f}.",
        f"{what}: {means}. AUROC: how often a test image scores higher than an unknown one. FPR: the share of unknown "
        "images that pass the threshold that 95 % of the test images pass.",
        Table(("score", "AUROC", "FPR"), rows),
        notes,
    )


def leakage_line(leakage: Leakage) -> str:
    """Which splits have images in common, in one line."""
    found = [
        f"{pair.count:,} of {leakage.compared[pair.split]:,} {pair.split} images are also in {pair.other}"
        for pair in leakage.found
    ]
    *names, last = leakage.compared
    line = f"exact copies between {', '.join(names)} and {last}: {'; '.join(found) or 'none'}"
    parts = [
        f"{count:,} of {leakage.total[name]:,} {name} images"
        for name, count in leakage.compared.items()
        if count < leakage.total[name]
    ]
    return line + (f" (compared were {' and '.join(parts)})" if parts else "")


def renamed_line(renamed: Sequence[tuple[str, str]]) -> str:
    """What other class names mean for a measurement, in one line."""
    shown = ", ".join(" ".join(f"{name} is {other}".split()) for name, other in renamed[:IN_A_LINE])
    more = f" and {len(renamed) - IN_A_LINE} more" if len(renamed) > IN_A_LINE else ""
    return (
        "The class names of the model and of the dataset differ, and are taken to be in the same order: "
        f"{shown}{more}. If that is wrong, so are the results."
    )
