"""What one visitor has, may ask for and waits for: work in a thread, finished runs, limits."""

import atexit
import base64
import io
import logging
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

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import httpx
from PIL import Image

from ..data.sources import DATASETS
from ..exceptions import HINT, user_message
from ..hub import TIMEOUT_SECONDS, hub_api, is_local
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


class EndedError(Exception):
    """The visitor cancelled the work, or left; or it took too long, which the text says."""


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
        if self.is_cancelled:
            raise EndedError
        if self._limit is not None and self.seconds > self._limit:
            raise EndedError(
                f"The audit was ended after {self._limit / 60:.3g} minutes, the most that one may take on this page. "
                "Lower “Images, at most” and “Images to corrupt”, or use smaller images."
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
        except EndedError as ended:
            self.error = str(ended) or None
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
        said = record.getMessage()
        said = said[:1].upper() + said[1:]
        if record.thread == self.thread and said not in self.notes:
            self.notes.append(said)


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
    said = user_message(error, FIELDS)
    if said is None:
        traceback.print_exception(error)
        return UNEXPECTED
    return said.removesuffix(HINT)


# ---- Visitors ----


KEPT_RUNS = 10  # audits of a visitor, for comparisons


class Visitor:
    """
    What one visitor has: a folder, work that is under way, and what was found. Nobody else sees any of it.

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


LOOPBACK = ("127.0.0.1", "localhost", "::1")
EMPTY = {
    "model": "Name a model: a Hub id such as google/vit-base-patch16-224, or a folder.",
    "dataset": "Name a dataset, or drop a zip with a folder of images for each class.",
}


@dataclass(frozen=True)
class Access:
    """
    Which models and datasets a visitor may name.

    On a page for this machine alone a visitor is its owner, and may name whatever the command line takes. On a page
    that others reach, the server's disk and token are not theirs: they may name what was given at the start, and what
    is public.

    Args:
        given (`tuple[str, ...]`): Models, runs and datasets that were named at the start.
        is_private (`bool`): Whether only the owner of this machine reaches the page.
    """

    given: tuple[str, ...] = ()
    is_private: bool = True

    def check(self, name: str, kind: str) -> str:
        """The name of a `model` or `dataset` without spaces around it; a `ValueError` if it may not be used."""
        name = name.strip()
        if not name:
            raise ValueError(EMPTY[kind])
        if self.is_private or name in self.given:
            return name
        repo_id = model_id(name) if kind == "model" else name
        is_benchmark = kind == "dataset" and name in DATASETS
        if is_local(repo_id) or not (is_benchmark or _is_public(repo_id, kind)):
            # The message does not say whether a folder exists on the server.
            raise ValueError(f"{name!r} is no public {kind} on the Hub, or the Hub cannot be reached now.")
        return name


def _is_public(repo_id: str, kind: str) -> bool:
    """Asked without the server's own token, which may read what its visitors may not."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        info = hub_api(token=False).repo_info(repo_id, repo_type=kind, timeout=TIMEOUT_SECONDS)
    except (httpx.HTTPError, HFValidationError):
        return False
    return not (info.private or info.gated)


# ---- Finished runs: a visitor's own audits, folders, and models on the Hub that were pushed with their report ----


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
    name = access.check(name, "model")
    run = load_run(name) if is_local(name) else hub_run(name)
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
        return _pushed_run(repo_id, hub_api().model_info(repo_id).sha)
    except (OSError, ValueError, HFValidationError, httpx.HTTPError):
        return None


@lru_cache(maxsize=8)
def _pushed_run(repo_id: str, commit: str | None) -> Run:
    folder = snapshot_download(repo_id, revision=commit, allow_patterns=[REPORT_FILE, ROWS_FILE])
    return replace(load_run(folder), name=repo_id)


# ---- Pieces of the page; what a report consists of is in `report.text` ----


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
