"""Where a run writes what a person reads: lines and, below them, at most one bar. A log file gets the lines only."""

import atexit
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..disk.terminal_text import printable


WIDEST = 120
NARROWEST_BAR = 10
SECONDS_BETWEEN_DRAWINGS = 0.1
# In a log file, long work shows that it goes on.
SECONDS_BETWEEN_SIGNS_OF_LIFE = 300.0


def duration(seconds: float) -> str:
    """
    As clocks show it.

    ```python
    >>> duration(7), duration(3723)
    ('0:07', '1:02:03')

    ```
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Screen:
    """
    Lines and one bar, on a terminal or in a log file.

    Args:
        enabled (`bool`, *optional*, defaults to `True`): `False` writes nothing, as `--quiet` and all processes of a
            run but the main one do.
        bars (`bool`, *optional*, defaults to `True`): Whether to draw a bar, where there is a terminal.
        file (`TextIO`, *optional*): Defaults to `sys.stdout`.
    """

    def __init__(self, *, enabled: bool = True, bars: bool = True, file: TextIO | None = None) -> None:
        self.enabled = enabled
        self._console = Console(file=file, markup=False, highlight=False, emoji=False)
        self.is_terminal = self._console.file.isatty() and not self._console.is_dumb_terminal
        self.draws = enabled and bars and self.is_terminal
        self._bar: Bar | None = None

    @property
    def width(self) -> int:
        """Columns to write in: those of the terminal, at most 120."""
        return min(self._console.width, WIDEST)

    def line(self, text: str = "", *, style: str = "", indent: int = 0, wrap: bool = True) -> None:
        """
        Write a line, above the bar if there is one.

        Args:
            text (`str`): Without a newline.
            style (`str`, *optional*): Of rich, such as `bold`; log files have none.
            indent (`int`, *optional*, defaults to 0): By how many columns the rest of a long line is moved in.
            wrap (`bool`, *optional*, defaults to `True`): Break a long line between words, on a terminal. Commands and
                paths are copied, and stay in one piece.
        """
        if not self.enabled:
            return
        text = printable(text)
        parts = [text]
        if wrap and self.is_terminal:
            options = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
            parts = textwrap.wrap(text, self.width, subsequent_indent=" " * indent, **options) or [text]
        for part in parts:
            self._console.print(Text(part, style=style), soft_wrap=True)

    def bar(self, label: str, total: int | None = None) -> "Bar":
        """A bar for `total` things to be counted; with `None` only the label is shown."""
        if self._bar is not None:
            self._bar.close()
        self._bar = Bar(self._live() if self.draws else None, label, total)
        return self._bar

    @contextmanager
    def phase(self, label: str, total: int | None = None) -> Iterator["Bar"]:
        """Inside, work goes on that `label` names: a line in a log at once; on a terminal a bar, and then a line."""
        if not self.draws:
            self.line(label)
        start = time.monotonic()
        with self.bar(label, total) as bar:
            yield bar
        if self.draws:
            self.line(f"{label}  {duration(time.monotonic() - start)}")

    def close(self) -> None:
        """Remove the bar, which hides the cursor."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _live(self) -> Live:
        # No thread draws it: the workers of data loaders are forked, and would inherit its lock.
        live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stderr=sys.stderr.isatty())
        atexit.register(live.stop)  # an error in a script must not leave the terminal without a cursor
        return live


class Bar:
    """
    What is done of how much. It has the methods of a tqdm bar that this package calls.

    Args:
        live (`Live`, *optional*): Draws it; without one, it only counts.
        label (`str`): What is being done.
        total (`int`, *optional*): How many there are.
    """

    def __init__(self, live: Live | None, label: str, total: int | None) -> None:
        self._live = live
        self.label, self.total, self.note = label, total, ""
        self.done = self._first = 0
        self._start, self._drawn = time.monotonic(), 0.0
        if live is not None:
            live.start()
            self.draw(now=True)

    def begin_at(self, done: int) -> None:
        """Count from `done` on; the time left is estimated from what is done after this call."""
        self.done = self._first = done
        self._start = time.monotonic()

    def update(self, count: int = 1) -> None:
        self.done += count
        self.draw()

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        self.note = text.rjust(len(self.note))  # as wide as the widest so far, so that the bar does not jump
        if refresh:
            self.draw()

    def draw(self, *, now: bool = False) -> None:
        """Show what has changed, at most ten times a second."""
        if self._live is None or not (now or time.monotonic() - self._drawn > SECONDS_BETWEEN_DRAWINGS):
            return
        self._drawn = time.monotonic()
        self._live.update(self._row(), refresh=True)

    @property
    def left(self) -> str:
        """How long the rest takes if it goes on as before; empty if that is not known."""
        counted = self.done - self._first
        if self.total is None or counted <= 0:
            return ""
        seconds = (time.monotonic() - self._start) / counted * max(self.total - self.done, 0)
        return f"{duration(seconds)} left"

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            atexit.unregister(self._live.stop)
            self._live = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _row(self) -> Table | Text:
        if self.total is None:
            return Text(f"{self.label} ...")
        row = Table.grid(padding=(0, 2), expand=True)
        cells = [self.label, f"{self.done:,}/{self.total:,}", self.note, self.left]
        if self._live.console.width < sum(map(len, cells)) + 2 * len(cells) + NARROWEST_BAR:
            cells[2] = ""
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        for _ in cells[1:]:
            row.add_column(no_wrap=True, justify="right")
        first, *others = (Text(cell) for cell in cells)
        row.add_row(first, ProgressBar(total=max(self.total, 1), completed=self.done), *others)
        return row
