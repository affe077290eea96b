"""What a user can fix ends a command in one sentence and exit code 2; anything else is a bug and keeps its traceback.

The library names arguments (`image_column=...`), since it knows nothing of commands; here they become flags.
"""

import logging
import os
import re
import select
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from ..disk.secrets import redact
from ..disk.terminal_text import printable
from ..hub.error_messages import user_message
from .folders import is_main_process
from .once import is_explained, is_first_to_say


WIDEST = 120  # columns
UNREAD = 141  # the exit code that shells give for SIGPIPE

# Arguments of the library whose flags have other names.
RENAMED = {
    "validation_split": "calibration_split",
    "test_split": "split",
    "config": "dataset_config",
    "revision": "model_revision",
    "use_cpu": "cpu",
    "per_device_eval_batch_size": "batch_size",
    "hub_model_id": "push_to_hub",
}


def _shows_tracebacks() -> bool:
    return os.environ.get("MACS_HF_TRACEBACK", "0") not in ("", "0")


def _write(text: str) -> None:
    """To where `sys.stderr` is now: above a bar, while there is one. A terminal gets it broken between words."""
    text = printable(text)
    if sys.stderr.isatty():
        width = min(shutil.get_terminal_size().columns, WIDEST)
        options = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
        text = textwrap.fill(text, width, subsequent_indent="  ", **options)
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def plain_errors(program: str, arguments: Iterable[str] = ()) -> Iterator[None]:
    """
    End `program` in one sentence and exit code 2 if something is raised inside that a user can fix, and with exit code
    130 if it is interrupted. `MACS_HF_TRACEBACK=1` shows where an error was raised.

    Args:
        program (`str`): Stands in front of the sentence.
        arguments (`Iterable[str]`, *optional*): The names of the command's flags.
    """
    arguments = tuple(arguments)
    try:
        with ends_with_its_reader(), _warnings_with_flags(program, arguments):
            yield
    except KeyboardInterrupt:
        if _shows_tracebacks():
            raise
        _write(f"\n{program}: interrupted")
        raise SystemExit(130) from None
    except Exception as error:
        text = user_message(error)
        if text is None or _shows_tracebacks():
            raise
        text = f"{program}: {redact(with_flags(text, arguments))}"
        if is_first_to_say(text):
            _write(text)
        raise SystemExit(2) from error


@contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """Inside, a program whose output nobody reads any more (`| head -3`) ends quietly, as Unix commands do."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # as it is under `>&-`
                sys.stdout.flush()  # here, and not when Python ends, where nobody can catch it
    except BrokenPipeError:
        if not _is_unread(1):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes again when it ends
        raise SystemExit(UNREAD) from None


def _is_unread(descriptor: int) -> bool:
    """Whether a file is a pipe that nobody reads from any more: another pipe may be the broken one."""
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class _Terminated(BaseException):
    """SIGTERM was received."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


@contextmanager
def ends_on_signals(program: str, advice: Callable[[], str]) -> Iterator[None]:
    """
    Inside, Ctrl-C and SIGTERM end `program` in one line of the main process, with exit codes 130 and 143.

    Args:
        program (`str`): Stands in front of the line.
        advice (`Callable`): Gives a sentence about what the same command does if it is started again.
    """
    # In another thread signals cannot be caught; `nohup` and a caller's own handler are respected.
    is_main = threading.current_thread() is threading.main_thread()
    catches = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if catches:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except (KeyboardInterrupt, _Terminated) as stopped:
        if _shows_tracebacks():
            raise
        number = signal.SIGINT if isinstance(stopped, KeyboardInterrupt) else signal.SIGTERM
        # A launcher also sends SIGTERM to the others when one process has failed.
        if is_main_process() and not is_explained():
            _write(f"{program}: Stopped by {number.name}. {advice()}")
        raise SystemExit(128 + number) from None
    finally:
        if catches:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _warnings_with_flags(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """What the library logs goes to the terminal as errors do."""
    handler, library = _Stderr(), logging.getLogger("macs_hf")
    handler.setFormatter(_WithFlags(program, arguments))
    if arguments:
        library.addHandler(handler)
    try:
        yield
    finally:
        library.removeHandler(handler)


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _write(self.format(record))


class _WithFlags(logging.Formatter):
    def __init__(self, program: str, arguments: Sequence[str]) -> None:
        super().__init__()
        self.program, self.arguments = program, arguments

    def format(self, record: logging.LogRecord) -> str:
        return f"{self.program}: {redact(with_flags(record.getMessage(), self.arguments))}"


def with_flags(text: str, arguments: Iterable[str]) -> str:
    """
    A sentence with the names of arguments as flags: `image_column=...` becomes `--image_column`, `max_steps=3` becomes
    `--max_steps 3`, `skip_bad_images=True` becomes `--skip_bad_images`. Words without an underscore (`split`) are
    flags only in front of a value.
    """
    flags = {name: name for name in arguments}
    flags |= {name: flag for name, flag in RENAMED.items() if flag in flags and name not in flags}
    if not flags:
        return text
    names = "|".join(sorted(flags, key=len, reverse=True))

    def flag(found: re.Match) -> str:
        name, value = found.groups()
        if not value and "_" not in name:
            return found[0]
        return f"--{flags[name]}" + (" " if value == "=" else "")

    # Not inside quotes, paths, other words, or calls in Python.
    return re.sub(rf"(?<![\w\-.'\"/`])(?<!\w\()({names})(=\.\.\.|=True\b|=(?=\S)|(?![\w=]))", flag, text)
