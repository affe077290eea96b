"""A report on the page of the app, with the mistakes that the model was surest of."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..plots.pictures import report_pictures
from ..plots.style import png
from ..publishing.report_page import report_article
from ..report.evaluation import EvaluationReport
from ..report.markup import percent, section, text
from .markup import picture


if TYPE_CHECKING:
    from .auditing import Mistake

# Of classes and groups the page has tables.
SHOWN = ("reliability.png", "risk_coverage.png", "confusion.png", "corruptions.png", "severity.png")
DPI = 110


def report_page(report: EvaluationReport, mistakes: "Sequence[Mistake]" = (), notes: Sequence[str] = ()) -> str:
    """
    Everything that a report has; what it lacks is left out.

    Args:
        report ([`EvaluationReport`]): What was measured.
        mistakes (`Sequence[Mistake]`, *optional*): Wrong answers that the model was sure of.
        notes (`Sequence[str]`, *optional*): What a reader should know about how it was measured.
    """
    images = {name: png(figure, DPI) for name, figure in report_pictures(report) if name in SHOWN}
    return report_article(report, images, notes=notes, mistakes=_gallery(mistakes))


def _gallery(found: "Sequence[Mistake]") -> str:
    if not found:
        return ""
    cards = "".join(
        f"<figure>{picture(mistake.picture, f'an image of {mistake.label}', 'thumbnail')}<figcaption>"
        f"{text(mistake.label)}<br>taken for {text(mistake.prediction)}<br>{percent(mistake.confidence)} sure"
        "</figcaption></figure>"
        for mistake in found
    )
    return section("Mistakes it was sure of", f'<div class="gallery">{cards}</div>', "The surest first.")
