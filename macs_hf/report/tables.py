"""Parts of a report as tables of HTML: what notebooks show, and what pages are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .corruption_names import MEANS, SEVERITIES
from .markup import SPACE, interval_html, percent, table, text
from .short_names import short_name
from .verdict import verdict


if TYPE_CHECKING:
    from .corruption_table import CorruptionTable
    from .evaluation import EvaluationReport
    from .groups import GroupTable
    from .rows import SampleRows

# Name of a metric, what a page calls it, its factor, unit and digits.
METRICS = (
    ("accuracy", "Accuracy", 100, f"{SPACE}%", 1),
    ("ece", "Calibration error (ECE)", 100, f"{SPACE}%", 1),
    ("nll", "Negative log-likelihood", 1, "", 3),
    ("brier", "Brier score", 1, "", 3),
)
MEAN_LABELS = {"mean15": "mean of the standard 15", "mean19": "mean of all 19"}
BADGES = {
    "trusted": "good",
    "overconfident": "bad",
    "underconfident": "bad",
    "miscalibrated": "bad",
    "unknown": "neutral",
}
WORST, SHOWN_ROWS = 8, 5


def verdict_header(report: EvaluationReport) -> str:
    """The verdict in a headline and two sentences, and what it is about."""
    found = verdict(report)
    where = f"{text(short_name(report.model))} on {text(short_name(report.dataset))}, {text(report.split)}"
    return (
        f'<header class="verdict {BADGES[found.trust]}"><p class="where">{where}</p><h2>{found.headline}</h2>'
        f"<p>{text(f'{found.ability} {found.confidence}').replace(' %', f'{SPACE}%')}</p></header>"
    )


def measures_table(report: EvaluationReport) -> str:
    """The metrics with their intervals and the noise floor, without and with the temperature."""
    parts = {"as it is": report.before}
    if report.after is not None and report.has_temperature:
        parts = {"without temperature": report.before, "with its temperature": report.after}
    rows = [
        [label, *(interval_html(part.metrics[name], *style) for part in parts.values())]
        for name, label, *style in METRICS
    ]
    rows.insert(2, ["ECE by chance alone (noise floor)", *(percent(part.noise_floor) for part in parts.values())])
    return table(["", *parts], rows)


def corruption_means(found: CorruptionTable) -> str:
    """Accuracy on clean images and the means under corruption."""
    rows = [["clean, the same images", percent(found.clean.accuracy)]] if found.clean is not None else []
    for key, label in MEAN_LABELS.items():
        mean, interval = found.mean(MEANS[key]), found.interval(key)
        if mean is not None:
            rows.append([label, percent(mean) if interval is None else interval_html(interval)])
    return table(["images", "accuracy"], rows) if rows else ""


def corruption_cells(found: CorruptionTable) -> str:
    """Accuracy by corruption and severity."""
    means = found.by_corruption()
    rows = [
        [
            name.replace("_", " "),
            *(percent(row[s].accuracy) if s in row else "" for s in SEVERITIES),
            percent(means[name]),
        ]
        for name, row in found.cells.items()
    ]
    return table(["accuracy at severity", *map(str, SEVERITIES), "mean"], rows)


def group_rows(found: GroupTable) -> str:
    """The worst classes or groups."""
    rows = [
        [
            text(group.name)
            + (" <small>few images</small>" if group.few else "")
            + ("<small>differs beyond chance</small>" if group.significant else ""),
            f"{group.n:,}",
            interval_html(group.accuracy),
            f"{100 * group.gap.value:+.1f}",
        ]
        for group in found.groups[:WORST]
    ]
    return table([text(found.column), "images", "accuracy", "gap"], rows)


def group_hint(found: GroupTable) -> str:
    hint = "Worst first. The gap is mean confidence minus accuracy, in points: above 0 is overconfident."
    if found.column == "label":
        hint += " Even a perfectly calibrated model is too confident on the images of a hard class."
    return hint + (f" These are the worst {WORST} of {len(found.groups):,}." if len(found.groups) > WORST else "")


def sample_table(rows: SampleRows) -> str:
    """The first rows, one per sample."""
    part = rows.to_table().slice(0, SHOWN_ROWS).to_pydict()
    cells = zip(*([_cell(value) for value in column] for column in part.values()), strict=True)
    return table(["", *part], [[str(place), *row] for place, row in enumerate(cells)])


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else text(value)
