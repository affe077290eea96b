"""Small pieces of HTML. Whatever comes from outside goes through `text`, so that it is shown as text."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

from .interval import Bounded


SPACE = "\u00a0"  # between a number and its unit, where no line breaks
# Also what templates look for: nothing that a visitor or a model names is ever taken for one.
TEMPLATE_CHARACTERS = {"{": "&#123;", "}": "&#125;", "$": "&#36;", "`": "&#96;"}


def text(value: Any) -> str:
    """Text from outside (names, labels, reasons) inside HTML."""
    escaped = html.escape(str(value))
    for character, entity in TEMPLATE_CHARACTERS.items():
        escaped = escaped.replace(character, entity)
    return escaped


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{SPACE}%"


def exact_percent(share: float) -> str:
    """A threshold or a promise: 0.99998 is not 100 %, which nothing reaches."""
    return f"{100 * share:.6g}{SPACE}%"


def interval_html(found: Bounded, scale: float = 100, unit: str = f"{SPACE}%", digits: int = 1) -> str:
    """A value, by default a share, with its interval below it."""
    value, low, high = (f"{scale * number:.{digits}f}{unit}" for number in (found.value, found.low, found.high))
    return f"{value} <small>{low} to {high}</small>"


def section(title: str, body: str, hint: str = "") -> str:
    """A part of a page; the title and the hint are HTML already."""
    hint = f'<p class="hint">{hint}</p>' if hint else ""
    return f'<section class="part"><h3>{title}</h3>{hint}{body}</section>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first column names the rows."""
    head = "".join(f"<th scope='col'>{cell}</th>" for cell in header)
    body = "".join(
        f"<tr><th scope='row'>{first}</th>{''.join(f'<td>{cell}</td>' for cell in others)}</tr>"
        for first, *others in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
