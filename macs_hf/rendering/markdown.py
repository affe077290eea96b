"""A report in Markdown: its sections, and text from outside, which is shown as it is and never taken for markup."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from ..report.sections import Section, Table, percent, short_name


def section_markdown(part: Section, pictures: Collection[str], heading: str = "##") -> str:
    """A section of a model card, with those of its pictures that are there."""
    paragraphs = [f"{heading} {escaped(part.title)}", escaped(part.lead)]
    if part.table is not None:
        paragraphs.append(table_markdown(part.table))
    if part.notes:
        paragraphs.append(notes_markdown(part))
    paragraphs += [f"![{escaped(alt)}]({name})" for name, alt in part.pictures.items() if name in pictures]
    return "\n\n".join(paragraphs)


def notes_markdown(part: Section) -> str:
    return "\n".join(map(escaped, part.notes))


def table_markdown(found: Table) -> str:
    """The first column to the left, the others to the right."""
    rows = [f"| {' | '.join(map(escaped, row))} |" for row in (found.header, *found.rows)]
    return "\n".join([rows[0], "|:--|" + "--:|" * (len(found.header) - 1), *rows[1:]])


def escaped(value: Any) -> str:
    """Running text or a table cell, on one line."""
    line = " ".join(str(value).split()).replace("<", "&lt;")
    # An interval in brackets is no link, and stays readable.
    return re.sub(r"(\[[-+\d., ]+\](?![(\[:]))|([\\`*\[\]|])", lambda found: found[1] or f"\\{found[2]}", line)


def code(value: Any) -> str:
    """Code inside a line or a table cell."""
    line = " ".join(str(value).split()).replace("|", "\\|")
    ticks = _fence(line, 1)
    return f"{ticks} {line} {ticks}" if "`" in line else f"`{line}`"


def block(value: Any, language: str) -> str:
    """A block of code."""
    fence = _fence(str(value), 3)
    return f"{fence}{language}\n{value}\n{fence}"


def quoted(value: Any) -> str:
    """A string of Python."""
    return json.dumps(str(value), ensure_ascii=False)


def rendered(template: Path, **values: Any) -> str:
    """A template of Markdown, whose filters are the functions of this module, with its variables filled in."""
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {"text": escaped, "code": code, "quoted": quoted, "block": block}
    environment.filters |= {"percent": percent, "short": short_name}
    return environment.from_string(template.read_text(encoding="utf-8")).render(**values)


def _fence(value: str, shortest: int) -> str:
    """More backticks than the text has in a row."""
    return "`" * max([shortest, *(len(run) + 1 for run in re.findall("`+", value))])
