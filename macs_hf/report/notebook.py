"""What a notebook shows of a report and its parts, where they are the last line of a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .markup import SPACE, percent, section, text
from .tables import (
    corruption_cells,
    corruption_means,
    group_hint,
    group_rows,
    measures_table,
    sample_table,
    verdict_header,
)


if TYPE_CHECKING:
    from .corruption_table import CorruptionTable
    from .evaluation import EvaluationReport
    from .groups import GroupTable
    from .rows import SampleRows

# For notebooks that keep styles; without it the tables are plain.
STYLE = (
    "<style>.macs-shown h2{margin:0 0 4px}.macs-shown h3{margin:14px 0 2px}"
    ".macs-shown p{margin:0 0 6px;max-width:75ch}.macs-shown small"
    "{display:block;opacity:.7}.macs-shown .scroll{overflow-x:auto}.macs-shown th[scope=row]"
    "{text-align:left;font-weight:normal}"
    ".macs-shown td,.macs-shown th{vertical-align:top;padding:3px 16px 3px 0}</style>"
)


def shown(body: str) -> str:
    """HTML for the output of a cell."""
    return f'<div class="macs-shown">{STYLE}{body}</div>'


def report_shown(report: EvaluationReport) -> str:
    hint = f"Measured on {report.n:,} images. Small: 95{SPACE}% intervals."
    parts = [verdict_header(report), section("Measured", measures_table(report), hint)]
    if report.corruptions is not None:
        parts.append(section("Under corruption", corruption_means(report.corruptions)))
    if report.classes is not None:
        parts.append(section("Classes", group_rows(report.classes), group_hint(report.classes)))
    return shown("".join(parts))


def corruptions_shown(found: CorruptionTable) -> str:
    hint = f"{found.n:,} images, parameter set {text(found.params)}, {text(found.source)}."
    return shown(section("Under corruption", corruption_means(found) + corruption_cells(found), hint))


def groups_shown(found: GroupTable) -> str:
    return shown(f"<p>{group_hint(found)}</p>{group_rows(found)}")


def rows_shown(rows: SampleRows) -> str:
    accuracy = percent(float(rows.correct.mean()))
    return shown(f"<p>{len(rows):,} samples, accuracy {accuracy}. The first ones:</p>{sample_table(rows)}")
