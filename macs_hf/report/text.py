"""A report as text: the lines of a terminal, which `print(report)` gives too, and the HTML of pages and notebooks."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from .report import EvaluationReport
from .sections import Section, Table, headline, level, percent, sections, short_name


# ---- Terminal ----
# Text from elsewhere on a terminal: names of classes, datasets and files are shown, and never obeyed.


# Escapes that clear a screen or set its title, marks that turn the direction of writing, and halves of characters,
# which cannot be written at all. Lines and tabs stay.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


WIDEST = 120  # columns that are written in, however wide a terminal is


def wrapped(text: str, width: int, indent: int = 0, first: str = "") -> list[str]:
    """A paragraph as lines that are broken between words only, so that paths and flags can be copied."""
    options = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * indent, **options)


def printable(text: str) -> str:
    r"""
    The text with control characters as Python writes them.

    ```python
    >>> printable("a \x1b[2J bee")
    'a \\x1b[2J bee'

    ```
    """
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def summary(report: EvaluationReport) -> str:
    """What a command prints at its end: what was measured, the headline, and a line for each finding."""
    method = report.training_arguments.get("method")
    size = "" if report.image_size is None else ", {} x {} pixels".format(*report.image_size)
    title = f"{report.model} on {report.dataset}, {report.split} (n = {report.n:,}{size})"
    title, shown = f"{title}, method {method}" if method else title, headline(report)
    lines = [title, f"{shown.title}."]
    if shown.trust == "chance":
        lines = [f"{shown.title}.", f"{shown.ability} {shown.confidence}", title]
    clean = report.leakage is not None and not report.leakage.found
    left_out = ("Risk and coverage", "Copies between splits" if clean else "")  # the page has them
    findings = [part.finding for part in sections(report) if part.title not in left_out]
    return printable("\n".join([*lines, *findings]))


def table_lines(found: Table) -> list[str]:
    """A table in columns: the first to the left, the others to the right."""
    rows = [found.header, *found.rows]
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        f"{row[0]:<{first}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
        for row in rows
    ]


# ---- HTML ----
# Whatever comes from outside goes through `html_text`, so that it is shown as text.


SPACE = "\u00a0"  # between a number and its unit, where no line breaks
# Also what templates look for: nothing that a visitor or a model names is ever taken for one.
TEMPLATE_CHARACTERS = {"{": "&#123;", "}": "&#125;", "$": "&#36;", "`": "&#96;"}


def html_text(value: Any) -> str:
    """Text from outside (names, labels, reasons) inside HTML."""
    escaped = html.escape(str(value))
    for character, entity in TEMPLATE_CHARACTERS.items():
        escaped = escaped.replace(character, entity)
    return escaped


def html_words(value: Any) -> str:
    """As [`html_text`], with no line break between a number and its unit."""
    return html_text(value).replace(" %", f"{SPACE}%")


def html_percent(share: float, digits: int = 1) -> str:
    return html_words(percent(share, digits))


def html_level(share: float) -> str:
    """A threshold or a guarantee, see [`level`]."""
    return html_words(level(share))


def section_markup(title: str, body: str, hint: str = "") -> str:
    """A part of a page; the title and the hint are HTML already."""
    hint = f'<p class="hint">{hint}</p>' if hint else ""
    return f'<section class="part"><h3>{title}</h3>{hint}{body}</section>'


def table_markup(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first column names the rows."""
    head = "".join(f"<th scope='col'>{cell}</th>" for cell in header)
    body = "".join(
        f"<tr><th scope='row'>{first}</th>{''.join(f'<td>{cell}</td>' for cell in others)}</tr>"
        for first, *others in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def headline_html(report: EvaluationReport) -> str:
    """The headline and two sentences, and what they are about."""
    found = headline(report)
    where = f"{short_name(report.model)} on {short_name(report.dataset)}, {report.split}"
    badge = {"trusted": "good", "unknown": "neutral"}.get(found.trust, "bad")
    return (
        f'<header class="verdict {badge}"><p class="where">{html_text(where)}</p><h2>{found.title}</h2>'
        f"<p>{html_words(f'{found.ability} {found.confidence}')}</p></header>"
    )


def section_html(part: Section, pictures: str = "") -> str:
    """A section of a report, with its pictures as HTML."""
    listed = "" if part.table is None else table_html(part.table)
    notes = "".join(f"<p>{html_words(note)}</p>" for note in part.notes)
    return section_markup(html_words(part.title), f"{listed}{notes}{pictures}", html_words(part.lead))


def table_html(found: Table) -> str:
    return table_markup([*map(html_words, found.header)], [[*map(html_words, row)] for row in found.rows])


def report_in_notebook(report: EvaluationReport) -> str:
    """What a notebook shows of a report that is the last line of a cell."""
    return headline_html(report) + "".join(map(section_html, sections(report)))
