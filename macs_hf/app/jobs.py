"""What one visitor has, may ask for and waits for: work in a thread, finished runs, limits."""

import atexit
import base64
import io
import logging
import os
import shutil
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeVar

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import httpx
from PIL import Image

from ..data.sources import DATASETS
from ..exceptions import HINT, user_message
from ..hub import TIMEOUT_SECONDS, is_local
from ..models.loading import model_id
from ..report.report import Run, load_run
from ..report.run_folder import REPORT_FILE, ROWS_FILE
from ..report.text import text


# ---- Work that can be watched and stopped ----


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


class Job(Generic[Result]):
    """
    Runs `work(job)` in a thread. The work calls `step` now and then, which ends it if it was cancelled, or takes too
    long.

    Args:
        work (`Callable`): Gives the result.
        seconds (`float`, *optional*): How long it may take.

    Attributes:
        stage (`str`): What is being done.
        done, total (`int`): Images that have been through the network, and how many there will be; 0 if not known.
        result, error: What it gave, or a sentence about why it could not; `None` until then, and if it was cancelled.
        notes (`list[str]`): What the library had to say about the work.
    """

    def __init__(self, work: "Callable[[Job], Result]", seconds: float | None = None) -> None:
        self.stage, self.done, self.total = "Starting", 0, 0
        self.result: Result | None = None
        self.error: str | None = None
        self.notes: list[str] = []
        self._start, self._limit = monotonic(), seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        _jobs.add(self)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return monotonic() - self._start

    @property
    def is_cancelled(self) -> bool:
        return self._stopped.is_set()

    def step(self, images: int = 0, *, stage: str | None = None, total: int | None = None) -> None:
        """Count images, name the next stage, or say how many images there will be."""
        if self._stopped.is_set():
            raise CancelledError
        if self._limit is not None and self.seconds > self._limit:
            limit = f"{self._limit / 60:.0f} minutes" if self._limit >= 60 else f"{self._limit:.0f} seconds"
            raise ValueError(
                f"This took longer than {limit}, which is as long as an audit may take on this page. Lower “Images, "
                "at most” and “Images to corrupt”, or use smaller images."
            )
        self.done += images
        self.stage = self.stage if stage is None else stage
        self.total = self.total if total is None else total

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
        text = record.getMessage()
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
    "image_size": "“Image size”",
    "model": "“Model”",
}


def explain(error: Exception) -> str:
    """What a visitor has to know about an error. One that they cannot fix is shown to the owner of the server."""
    text = user_message(error, FIELDS)
    if text is None:
        traceback.print_exception(error)
        return UNEXPECTED
    return text.removesuffix(HINT)


def images_in(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> int:
    """How many images a call of a model has: it takes them as `pixel_values`, or first."""
    images = keywords["pixel_values"] if "pixel_values" in keywords else arguments[0]
    return len(images)


# ---- Visitors ----
# What one visitor has: a folder, work that is under way, and what was found. Nobody else sees any of it.


class Visitor:
    """
    One per open page; the page copies an empty one for each.

    Args:
        root (`Path`, *optional*): Where visitors' folders are made.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self.job: Job | None = None
        self.audit: Any = None  # the last one's `Audit`
        self.runs: dict[str, Run] = {}
        self._audits = 0
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """Made when it is needed, readable by this process's user alone."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="visitor-", dir=self.root))
        return self._folder

    def new_folder(self, name: str) -> Path:
        """An empty folder in the visitor's own."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def keep(self, audit: Any) -> str:
        """Keep what an audit found; returns the name under which it can be compared."""
        report = audit.report
        self.audit = audit
        self._audits += 1
        name = f"Audit {self._audits}: {report.model} on {report.dataset}"
        before = audit.rows[0] if len(audit.rows) > 1 else None
        self.runs[name] = Run(name, report, audit.rows[-1], before)
        for oldest in list(self.runs)[:-KEPT_RUNS]:
            del self.runs[oldest]
        return name

    def leave(self) -> None:
        """Stop what is under way, and delete what was uploaded and made."""
        if self.job is not None:
            self.job.cancel()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self.audit, self.runs = None, {}


# ---- Access ----
# Which models and datasets a visitor may name.
#
# On a page for this machine alone a visitor is its owner, and may name whatever the command line takes. On a page that
# others reach, the server's disk and token are not theirs: they may name what was given at the start, and what is
# public.


LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Access:
    """
    Args:
        given (`tuple[str, ...]`): Models, runs and datasets that were named at the start.
        is_private (`bool`): Whether only the owner of this machine reaches the page.
    """

    given: tuple[str, ...] = ()
    is_private: bool = True

    def check_model(self, name: str) -> str:
        """The name without spaces around it; a `ValueError` if it may not be used."""
        name = name.strip()
        if not name:
            raise ValueError("Name a model: a Hub id such as google/vit-base-patch16-224, or a folder.")
        self._check(name, model_id(name), "model")
        return name

    def check_dataset(self, name: str) -> str:
        """The same for a dataset."""
        name = name.strip()
        if not name:
            raise ValueError("Name a dataset, or drop a zip with a folder of images for each class.")
        if name in DATASETS and not is_local(name):
            return name
        self._check(name, name, "dataset")
        return name

    def check_folder(self, name: str) -> Path:
        """A folder of this machine."""
        path = Path(name.strip())
        if not self.is_private and os.path.realpath(path) not in map(os.path.realpath, self.given):
            raise ValueError(_refusal(name, "model"))
        return path

    def _check(self, name: str, repo_id: str, kind: str) -> None:
        if self.is_private or name in self.given:
            return
        # The message does not say whether a folder exists on the server.
        if is_local(repo_id) or not _is_public(repo_id, kind):
            raise ValueError(_refusal(name, kind))


def _is_public(repo_id: str, kind: str) -> bool:
    """Asked without the server's own token, which may read what its visitors may not."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        info = HfApi(token=False, library_name="macs_hf").repo_info(repo_id, repo_type=kind, timeout=TIMEOUT_SECONDS)
    except (httpx.HTTPError, HFValidationError):
        return False
    return not (info.private or info.gated)


def _refusal(name: str, kind: str) -> str:
    return f"{name!r} is no public {kind} on the Hub, or the Hub cannot be reached now."


# ---- Finished runs ----
# Finished runs: a visitor's own audits, folders, and models on the Hub that were pushed with their report.


def run_named(name: str, visitor: Visitor, access: Access) -> Run:
    """
    A run by its name.

    Args:
        name (`str`): Of one of the visitor's audits, a folder, or a Hub id.
        visitor ([`Visitor`]): Who asks.
        access ([`Access`]): What they may name.
    """
    if name in visitor.runs:
        return visitor.runs[name]
    name = name.strip()
    if is_local(name):
        return load_run(access.check_folder(name))
    run = hub_run(access.check_model(name))
    if run is None:
        raise ValueError(f"{name!r} is neither the folder of a run nor a model on the Hub with a report.")
    return run


def run_choices(visitor: Visitor, access: Access) -> list[str]:
    """What there is to choose from: the visitor's audits, what was given at the start and, for the owner, `runs/`."""
    given = [name for name in access.given if is_run(name)]
    found = sorted(str(path.parent) for path in Path("runs").glob(f"*/{REPORT_FILE}")) if access.is_private else []
    return list(dict.fromkeys([*visitor.runs, *given, *found]))


def is_run(name: str) -> bool:
    return Path(name, REPORT_FILE).is_file()


def hub_run(repo_id: str) -> Run | None:
    """The report and rows that were last pushed with a model; `None` if there are none."""
    if constants.HF_HUB_OFFLINE:
        return None
    try:
        return _pushed_run(repo_id, HfApi().model_info(repo_id).sha)
    except (OSError, ValueError, HFValidationError, httpx.HTTPError):
        return None


@lru_cache(maxsize=8)
def _pushed_run(repo_id: str, commit: str | None) -> Run:
    folder = snapshot_download(repo_id, revision=commit, allow_patterns=[REPORT_FILE, ROWS_FILE])
    return replace(load_run(folder), name=repo_id)


# ---- Limits ----
# How much visitors may ask for.


MAX_UPLOAD_BYTES = 500_000_000  # of any file
MAX_IMAGE_BYTES = 30_000_000
MAX_IMAGE_PIXELS = 50_000_000
MAX_ARCHIVE_IMAGES = 50_000
MAX_ARCHIVE_BYTES = 2_000_000_000  # unpacked

MAX_AUDITED_IMAGES = 50_000
MAX_IMAGE_SIZE = 1024  # pixels of a side, as the network gets it
MAX_COMPARED_RUNS = 6

AUDITS_AT_ONCE = 1  # the others wait
AUDIT_SECONDS = 600  # for visitors; the owner of a page waits for nobody else, and can cancel
ANSWERS_AT_ONCE = 2
QUEUE_SIZE = 20  # events that wait; further ones are refused
VISITORS = 200  # whose state is kept; that of the one who came first is dropped for another
KEPT_RUNS = 10  # audits of a visitor, for comparisons
KEPT_MODELS = 2  # in memory, for all visitors together
KEPT_SECONDS = 3600  # files that visitors uploaded or downloaded


# ---- Pieces of the page ----
# Images and notices as HTML, for the page; what a report consists of is in `report.text`.


def picture(image: Image.Image, alt: str, kind: str = "") -> str:
    """An image inside the page itself, so that no file of it can be fetched by others."""
    content = io.BytesIO()
    image.save(content, "PNG")
    encoded = base64.b64encode(content.getvalue()).decode()
    return f'<img class="{kind}" alt="{text(alt)}" src="data:image/png;base64,{encoded}">'


def notice(message: str, kind: str = "error") -> str:
    """A box with a sentence: an `error`, or a `note`."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="notice {kind}" role="{role}">{text(message)}</div>'
