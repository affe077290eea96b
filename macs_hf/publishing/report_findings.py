"""What the page of a report says beyond its means: classes and groups, images of no class, copies, and promises."""

from collections.abc import Mapping

from ..data.columns import renamed_line
from ..report.evaluation import EvaluationReport
from ..report.guarantees import AbstentionGuarantee, PredictionSetGuarantee, Share
from ..report.markup import exact_percent, interval_html, percent, section, table, text
from ..report.short_names import short_name
from ..report.tables import group_hint, group_rows
from ..report.unknowns import SCORE_NAMES


def classes(report: EvaluationReport, drawn: Mapping[str, str]) -> str:
    if report.classes is None:
        return ""
    pictures = "".join(drawn.get(name, "") for name in ("classes.png", "confusion.png"))
    body = f'{group_rows(report.classes)}<div class="stack">{pictures}</div>'
    return section("Classes", body, group_hint(report.classes))


def groups(report: EvaluationReport, drawn: Mapping[str, str]) -> str:
    if report.groups is None:
        return ""
    body = f'{group_rows(report.groups)}<div class="stack">{drawn.get("groups.png", "")}</div>'
    return section(f"By {text(report.groups.column)}", body, group_hint(report.groups))


def unknowns(report: EvaluationReport) -> str:
    found = report.unknowns
    if found is None:
        return ""
    rows = [
        [SCORE_NAMES[part.score], interval_html(part.auroc), interval_html(part.fpr95)] for part in found.published
    ]
    hint = f"{found.n:,} images of {text(short_name(found.dataset))}, {text(found.split)}: mean confidence "
    hint += f"{percent(found.confidence)}, on test images {percent(found.known_confidence)}."
    header = ["score", "AUROC", "accepted when 95 % of test images are"]
    return section("Images of none of its classes", table(header, rows), hint)


def copies(report: EvaluationReport) -> list[str]:
    """A sentence for each pair of splits that share images."""
    if report.leakage is None:
        return []
    return [
        f"{pair.count:,} of {report.leakage.compared[pair.split]:,} {pair.split} images are also in {pair.other}."
        for pair in report.leakage.found
    ]


def renamed(report: EvaluationReport) -> list[str]:
    """A sentence about class names, if those of model and dataset differ."""
    return [renamed_line(report.renamed_classes)] if report.renamed_classes else []


def guarantees(report: EvaluationReport) -> str:
    found = report.guarantees
    if found is None:
        return ""
    if found.reason is not None:
        return section("What it promises", f"<p>Nothing: {text(found.reason)}.</p>")
    sets = [_set(promise) for promise in found.prediction_sets if promise.method == "lac"]
    hint = f"For images like the {found.num_guarantee:,} held-out ones that nothing else was fitted on"
    hint += ". " if found.exact else "; approximate, since they also chose the checkpoint. "
    hint += "Beside each promise, what came true on the test images."
    body = table(["prediction sets with the right class", "came true", "classes in a set"], sets)
    kept = [promise for promise in found.abstentions if promise.threshold is not None]
    body += table(["right answers", "answers if sure", "images answered", "of these right"], map(_answer, kept))
    body += "".join(
        f'<p class="hint">At least {exact_percent(promise.accuracy)} right is not promised: '
        f"{text(promise.reason)}.</p>"
        for promise in found.abstentions
        if promise.threshold is None
    )
    return section("What it promises", body, hint)


def _set(promise: PredictionSetGuarantee) -> list[str]:
    size = "" if promise.mean_size is None else f"{promise.mean_size:.2f}"
    return [f"at least {exact_percent(promise.coverage)}", _share(promise.test_coverage), size]


def _answer(promise: AbstentionGuarantee) -> list[str]:
    sure = f"{exact_percent(promise.threshold)} or more" if promise.threshold > 0 else "always"
    level = f"at least {exact_percent(promise.accuracy)}"
    return [level, sure, _share(promise.test_answered), _share(promise.test_accuracy)]


def _share(found: Share | None) -> str:
    return "" if found is None else interval_html(found)
