"""Work in a thread that can be watched and stopped: the page shows how far it is while it runs."""

import atexit
import logging
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..hub.error_messages import HINT, user_message


Result = TypeVar("Result")
UNEXPECTED = "Something went wrong that should not have. The server's log says where."
SECONDS_TO_END = 10

_jobs: "weakref.WeakSet[Job]" = weakref.WeakSet()


@atexit.register
def _end_jobs() -> None:
    """Python kills threads where they are when it ends, which torch does not survive."""
    for job in list(_jobs):
        job.cancel()
    for job in list(_jobs):
        job.wait(SECONDS_TO_END)


class CancelledError(Exception):
    """The visitor cancelled the work, or left."""


@dataclass(frozen=True)
class Progress:
    """
    How far work is.

    Args:
        stage (`str`): What is being done.
        done, total (`int`): Images that have been through the network, and how many there will be; 0 if not known.
        seconds (`float`): Since the beginning.
    """

    stage: str
    done: int
    total: int
    seconds: float


class Job(Generic[Result]):
    """
    Runs `work(job)` in a thread. The work calls `step` now and then, which ends it if it was cancelled.

    Args:
        work (`Callable`): Gives the result.
    """

    def __init__(self, work: "Callable[[Job], Result]") -> None:
        self.notes: list[str] = []
        self.result: Result | None = None
        self.error: str | None = None
        self._stage, self._done, self._total = "Starting", 0, 0
        self._start = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        _jobs.add(self)
        self._thread.start()

    @property
    def progress(self) -> Progress:
        return Progress(self._stage, self._done, self._total, time.monotonic() - self._start)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_cancelled(self) -> bool:
        return self._stopped.is_set()

    def step(self, images: int = 0, *, stage: str | None = None, total: int | None = None) -> None:
        """Count images, name the next stage, or say how many images there will be."""
        if self._stopped.is_set():
            raise CancelledError
        self._done += images
        self._stage = self._stage if stage is None else stage
        self._total = self._total if total is None else total

    def cancel(self) -> None:
        self._stopped.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is over after at most this many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self, work: "Callable[[Job], Result]") -> None:
        handler = _Notes(self.notes)
        logging.getLogger("macs_hf").addHandler(handler)
        try:
            self.result = work(self)
        except CancelledError:
            pass
        except Exception as error:
            self.error = explain(error)
        finally:
            logging.getLogger("macs_hf").removeHandler(handler)


class _Notes(logging.Handler):
    """Keeps the warnings of one thread: what the library has to say about this work."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.notes, self.thread = notes, threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        text = with_fields(record.getMessage())
        if record.thread == self.thread and text not in self.notes:
            self.notes.append(text)


# Arguments of the library, and what the page calls them.
FIELDS = {
    "validation_split": "“Calibration split”",
    "test_split": "“Split”",
    "dataset": "“Dataset”",
    "config": "“Configuration”",
    "image_column": "“Image column”",
    "label_column": "“Label column”",
    "revision": "“Revision”",
    "model": "“Model”",
}


def explain(error: Exception) -> str:
    """What a visitor has to know about an error. One that they cannot fix is shown to the owner of the server."""
    text = user_message(error)
    if text is None:
        traceback.print_exception(error)
        return UNEXPECTED
    return with_fields(text.removesuffix(HINT))


def with_fields(text: str) -> str:
    """A sentence of the library with the page's names of its arguments."""
    for name, field in FIELDS.items():
        text = text.replace(f" with {name}=...", f" in the field {field}").replace(f"{name}=...", field)
    return text


def images_in(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int:
    """How many images a call of a model has: it takes them as `pixel_values`, or first."""
    images = keywords["pixel_values"] if "pixel_values" in keywords else arguments[0]
    return len(images)
