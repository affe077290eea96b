"""Text from outside (names, commands, reasons) inside Markdown: shown as it is, and never taken for markup."""

import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from ..report.interval import percent
from ..report.short_names import short_name


def text(value: Any) -> str:
    """Running text or a table cell, on one line."""
    line = " ".join(str(value).split()).replace("<", "&lt;")
    return re.sub(r"([\\`*\[\]|])", r"\\\1", line)


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
    environment.filters |= {"text": text, "code": code, "quoted": quoted, "block": block}
    environment.filters |= {"percent": percent, "short": short_name}
    return environment.from_string(template.read_text(encoding="utf-8")).render(**values)


def _fence(value: str, shortest: int) -> str:
    """More backticks than the text has in a row."""
    return "`" * max([shortest, *(len(run) + 1 for run in re.findall("`+", value))])
