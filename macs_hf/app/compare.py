"""Runs side by side: which is better in what, beyond chance."""

from collections.abc import Sequence

from ..evaluation.run_comparison import compare_runs
from ..metrics import Comparison
from ..metrics.comparison import difference_text, title_of, value_text
from ..report.report import Run
from ..report.sections import METRICS
from ..report.text import html_text, section_markup, table_markup


# What the less known of the metrics mean.
MEANINGS = {
    "ece": "how far confidence is from accuracy, in 15 bins",
    "debiased_ece": "without what chance adds",
    "confidence_gap": "above 0: overconfident",
    "aurc": "wrong answers, mean over how many are answered",
    "excess_aurc": "what is lost by a wrong order of confidence",
}
MEANINGS |= {f"coverage_at_{risk}%_risk": f"images, if {risk} in 100 answers may be wrong" for risk in (1, 5, 10)}
BADGES = {"better": "good", "worse": "bad"}


def comparison_page(runs: Sequence[Run]) -> str:
    """
    The first run is the reference; each other one is compared with it, image by image.

    Args:
        runs (`Sequence[Run]`): Two or more, on the same test images.
    """
    reference, *others = runs
    found = {run.name: compare_runs(run, reference) for run in others}
    metrics = list(next(iter(found.values())))
    header = ["", html_text(reference.name), *(html_text(name) for name in found)]
    rows = []
    for metric in metrics:
        compared = [comparisons.get(metric) for comparisons in found.values()]
        cells = [value_text(metric, compared[0].b), *(_cell(metric, comparison) for comparison in compared)]
        meaning = f"<small>{MEANINGS[metric]}</small>" if metric in MEANINGS else ""
        rows.append([title_of(metric) + meaning, *cells])
    report = reference.report
    where = html_text(f"{report.dataset}, {report.split}, {report.n:,} images")
    hint = (
        f"{where}. ↑: higher is better, ↓: lower is. Below each value the difference to {html_text(reference.name)} "
        "with its paired 95 % interval, over the test images; another training run may give another answer."
    )
    summary = "".join(f"<li>{_summary(name, comparisons)}</li>" for name, comparisons in found.items())
    body = f'<ul class="summary">{summary}</ul>{table_markup(header, rows)}'
    title = f"Compared with {html_text(reference.name)}"
    return f'<article class="macs comparison">{section_markup(title, body, hint)}</article>'


def _summary(name: str, comparisons: dict[str, Comparison]) -> str:
    by_verdict: dict[str, list[str]] = {}
    for metric, comparison in comparisons.items():
        by_verdict.setdefault(comparison.verdict, []).append(METRICS[metric].title.replace(", ", " "))
    said = [f"{word} in: {', '.join(by_verdict[word])}" for word in ("better", "worse") if word in by_verdict]
    return f"<b>{html_text(name)}</b> {'; '.join(said) or 'does not differ beyond chance'}."


def _cell(metric: str, found: Comparison | None) -> str:
    if found is None:
        return ""
    value, (difference, low, high) = value_text(metric, found.a), difference_text(metric, found)
    badge = f'<span class="badge {BADGES.get(found.verdict, "neutral")}">{found.verdict}</span>'
    if found.verdict == "equal":
        return f"{value} {badge}"
    return f"{value} {badge}<small>{difference} ({low} to {high})</small>"
