"""What a model says of one image, as a page: the answer, its probabilities as text and bars, and how it gets worse."""

from collections.abc import Sequence

from ..report.markup import exact_percent, percent, section, text
from .curves import severity_curve
from .markup import picture
from .prediction import Answer, Reading


SHOWN_CLASSES = 5
NO_PROMISE = "What it promises does not hold for corrupted images."
APPROXIMATE = "This is approximate: the images that it rests on also chose the checkpoint."
SMALLEST_SHOWN = 240  # pixels; smaller images are enlarged without smoothing


def sureness(share: float) -> str:
    """A confidence in percent; one that is nearly 0 or 1 is not shown as if it were certain."""
    if 0 < share < 0.0005:
        return f"&lt;{percent(0.001)}"
    return f"&gt;{percent(0.999)}" if 0.9995 <= share < 1 else percent(share)


def answer_page(answer: Answer, severity: int, corruption: str | None, coverage: float, accuracy: float) -> str:
    """
    Args:
        answer ([`Answer`]): At all severities.
        severity (`int`): The one to show.
        corruption (`str`, *optional*): Its name.
        coverage (`float`): With which probability the prediction set shall hold the right class.
        accuracy (`float`): Which share of answers shall be right; below its threshold the model does not answer.
    """
    severity = min(severity, len(answer.readings) - 1)
    reading = answer.readings[severity]
    threshold = answer.calibration.answers.get(accuracy) or None  # from 0 on it answers all
    said = _bars(answer, reading) + _prediction_set(answer, reading, coverage, severity)
    body = f'<div class="pair top">{_sees(answer, severity, corruption)}<div>{said}</div></div>'
    return (
        f'<article class="macs answer">{_headline(answer, severity, accuracy)}{body}'
        f"{_curve(answer, severity, corruption, threshold)}</article>"
    )


def _headline(answer: Answer, severity: int, accuracy: float) -> str:
    reading, first = answer.readings[severity], answer.readings[0]
    threshold, exact = answer.calibration.answers.get(accuracy), answer.calibration.exact
    share = f"{'at least' if exact else 'about'} {exact_percent(accuracy)}"
    name, sure = text(answer.label_names[reading.prediction]), sureness(reading.confidence)
    if threshold is not None and reading.confidence < threshold:
        said = f"The likeliest class is <b>{name}</b>, with {sure}. It answers from {exact_percent(threshold)} on, "
        said += f"where {share} of the answers are right."
        return f'<header class="verdict neutral"><h2>I would not answer</h2><p>{said}</p></header>'
    said, kind = f"{sure} sure.", "good"
    if severity and reading.prediction != first.prediction:
        was = text(answer.label_names[first.prediction])
        said, kind = f"{said} Not corrupted, it was <b>{was}</b>, with {sureness(first.confidence)}.", "bad"
    if threshold is not None:
        which = f"answers from {exact_percent(threshold)} on" if threshold > 0 else "all answers"
        promise = f"{share.capitalize()} of {which} are right.{'' if exact else f' {APPROXIMATE}'}"
        said += f" {NO_PROMISE if severity else promise}"
    elif answer.calibration.answers:
        said += f" How sure it must be for {exact_percent(accuracy)} of answers to be right is not known."
    return f'<header class="verdict {kind}"><h2>{name}</h2><p>{said}</p></header>'


def _sees(answer: Answer, severity: int, corruption: str | None) -> str:
    image = answer.pictures[severity]
    kind = "sees pixels" if min(image.size) < SMALLEST_SHOWN else "sees"
    name = f"{corruption.replace('_', ' ')}, severity {severity}" if corruption and severity else "not corrupted"
    caption = f"What the network sees: {image.width} x {image.height} pixels, {name}"
    return f"<figure>{picture(image, caption, kind)}<figcaption>{caption}</figcaption></figure>"


def _bars(answer: Answer, reading: Reading) -> str:
    order = sorted(range(len(reading.after)), key=lambda index: -reading.after[index])[:SHOWN_CLASSES]
    columns = [("probabilities", reading.after, "after")]
    if answer.calibration.is_known:
        columns = [("before calibration", reading.before, "before"), ("after calibration", reading.after, "after")]
    names = [text(answer.label_names[index]) for index in order]
    drawn = "".join(_column(title, kind, names, [values[index] for index in order]) for title, values, kind in columns)
    hint = "" if answer.calibration.is_known else "No temperature is known for this model: audit it to get one."
    return section("How sure it is", f'<div class="columns">{drawn}</div>', hint)


def _column(title: str, kind: str, names: Sequence[str], values: Sequence[float]) -> str:
    rows = "".join(
        f'<li><span class="name">{name}</span><span class="value">{sureness(value)}</span>'
        f'<span class="bar {kind}"><i style="width:{100 * value:.2f}%"></i></span></li>'
        for name, value in zip(names, values, strict=True)
    )
    return f'<div><h4>{title}</h4><ol class="bars">{rows}</ol></div>'


def _prediction_set(answer: Answer, reading: Reading, coverage: float, severity: int) -> str:
    if not answer.calibration.sets:
        return ""
    members = reading.members.get(coverage)
    if members is None:
        known = ", ".join(exact_percent(level) for level in answer.calibration.sets)
        return section(
            "Prediction set", f"<p>Nothing is promised for {exact_percent(coverage)}, only for {known}.</p>"
        )
    chips = "".join(f'<span class="chip">{text(answer.label_names[index])}</span>' for index in members)
    hint = (
        f"With a probability of {exact_percent(coverage)} it holds the right class, for images like those of the "
        "audit."
        f"{'' if answer.calibration.exact else f' {APPROXIMATE}'}"
    )
    return section("Prediction set", f'<p class="chips">{chips}</p>', NO_PROMISE if severity else hint)


def _curve(answer: Answer, severity: int, corruption: str | None, threshold: float | None) -> str:
    if corruption is None:
        return ""
    first = answer.readings[0].prediction
    before, after = ([max(getattr(r, part)) for r in answer.readings] for part in ("before", "after"))
    same = [reading.prediction == first for reading in answer.readings]
    drawn = severity_curve(before, after, same, severity, threshold)
    hint = f"{text(corruption.replace('_', ' ')).capitalize()}, from none to the strongest. "
    hint += "Filled points: still the first answer. Open points: another one."
    hint += " Dotted: before calibration." if answer.calibration.is_known else ""
    hint += " Below the dashed line it would not answer." if threshold is not None else ""
    return section("Confidence as the image gets worse", drawn, hint)
