"""What one visitor has, may ask for and waits for: work in a thread, finished runs, limits."""

import atexit
import io
import logging
import shutil
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.utils import httpx
from PIL import Image

from ..data.sources import DATASETS
from ..exceptions import HINT, user_message
from ..hub import TIMEOUT_SECONDS, hub_api, is_local
from ..models.loading import model_id
from ..rendering.html import image_html
from ..report.report import Run, load_run
from ..report.run_folder import REPORT_FILE, ROWS_FILE
from ..report.text import html_text


# ---- Work that can be watched and stopped ----


SECONDS_TO_END = 10


@atexit.register
def _end_jobs() -> None:
    """Python kills threads where they are when it ends, which torch does not survive."""
    jobs = [thread for thread in threading.enumerate() if isinstance(thread, Job)]
    for job in jobs:
        job.cancel()
    for job in jobs:
        job.wait(SECONDS_TO_END)


class EndedError(Exception):
    """The visitor cancelled the work, or left; or it took too long, which the text says."""


class Job(threading.Thread):
    """
    Runs `work(job)` in a thread, at once: Gradio lets a function that runs go on when its visitor cancels, or leaves.
    The work calls `check` now and then, which ends it if it was cancelled, or takes too long.

    Args:
        work (`Callable`): Gives the result.
        seconds (`float`, *optional*): How long it may take.

    Attributes:
        stage (`str`), since (`float`): What is being done, and from when on.
        done, total (`int`): How far the stage is; a total of 0 is not known.
        result, error: What it gave, or a sentence about why it could not; `None` until then, and if it was cancelled.
        notes (`list[str]`): What the library had to say about the work.
    """

    def __init__(self, work: "Callable[[Job], Any]", seconds: float | None = None) -> None:
        super().__init__(daemon=True)
        self.result: Any = None
        self.error: str | None = None
        self.notes: list[str] = []
        self.is_cancelled = False
        self._work, self._limit, self._begin = work, seconds, monotonic()
        with self.phase("Starting"):
            self.start()

    @contextmanager
    def phase(self, stage: str, total: int | None = None) -> "Iterator[Job]":
        """The next stage; what functions of the library take as `progress`."""
        self.stage, self.since, self.done, self.total = stage, monotonic(), 0, total or 0
        yield self

    def update(self, count: int = 1) -> None:
        self.check()
        self.done += count

    def set_postfix_str(self, *_: Any, **__: Any) -> None:
        """A bar of tqdm's has it."""

    def check(self) -> None:
        if self.is_cancelled:
            raise EndedError
        if self._limit is not None and monotonic() - self._begin > self._limit:
            raise EndedError(
                f"The audit was ended after {self._limit / 60:.3g} minutes, the most that one may take on this page. "
                "Lower “Images, at most” and “Images to corrupt”, or use smaller images."
            )

    def cancel(self) -> None:
        self.is_cancelled = True

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is over after at most this many seconds."""
        self.join(seconds)
        return not self.is_alive()

    def run(self) -> None:
        handler = _Notes(self.notes)
        logging.getLogger("macs_hf").addHandler(handler)
        try:
            self.result = self._work(self)
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


# What the page calls the fields of an audit.
TEXTS = ("model", "dataset", "split", "calibration_split", "image_size", "image_column", "label_column", "revision")
LABELS = {name: name.replace("_", " ").capitalize() for name in TEXTS}
LABELS |= {"dataset_config": "Configuration", "model_revision": "Revision"}
# Arguments of the library that have other names.
ARGUMENTS = {"test_split": "split", "validation_split": "calibration_split"}
ARGUMENTS |= {"config": "dataset_config", "revision": "model_revision"}
UNEXPECTED = "Something went wrong that should not have. The server's log says where."


def explain(error: Exception) -> str:
    """What a visitor has to know about an error. One that they cannot fix is shown to the owner of the server."""
    fields = LABELS | {name: LABELS[field] for name, field in ARGUMENTS.items()}
    said = user_message(error, {name: f"“{label}”" for name, label in fields.items()})
    if said is None:
        traceback.print_exception(error)
        return UNEXPECTED
    return said.removesuffix(HINT)


# ---- Visitors ----


LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEPT_RUNS = 10  # audits of a visitor, for comparisons
UNREACHABLE = (OSError, ValueError, httpx.HTTPError)  # also offline, or a name that no repository has


class Visitor:
    """
    What one visitor has: a folder, work that is under way, and what was found, which nobody else sees; and what they
    may name. One per open page; the page copies an empty one for each.

    On a page for this machine alone a visitor is its owner, and may name whatever the command line takes. On a page
    that others reach, the server's disk and token are not theirs: they may name what was given at the start, and what
    is public.

    Args:
        root (`Path`, *optional*): Where visitors' folders are made.
        given (`tuple[str, ...]`): Models, runs and datasets that were named at the start.
        is_owner (`bool`): Whether only the owner of this machine reaches the page.
    """

    def __init__(self, root: Path | None = None, given: tuple[str, ...] = (), is_owner: bool = True) -> None:
        self.root, self.given, self.is_owner = root, given, is_owner
        self.job: Job | None = None
        self.audit: Any = None  # the last one's `Audit`
        self.runs: dict[str, Run] = {}
        self._audits = 0
        self._folder: Path | None = None

    def new_folder(self, name: str) -> Path:
        """An empty folder in the visitor's own, which this process's user alone can read."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="visitor-", dir=self.root))
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def leave(self) -> None:
        """Stop what is under way, and delete what was uploaded and made."""
        if self.job is not None:
            self.job.cancel()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self.audit, self.runs = None, {}

    def checked(self, name: str, kind: str) -> str:
        """The name of a `model` or `dataset` without spaces around it; a `ValueError` if it may not be used."""
        name = name.strip()
        if not name:
            raise ValueError(f"Name a {kind}, as the empty field shows.")
        if self.is_owner or name in self.given:
            return name
        repo_id = model_id(name) if kind == "model" else name
        is_benchmark = kind == "dataset" and name in DATASETS
        if is_local(repo_id) or not (is_benchmark or _is_public(repo_id, kind)):
            # The message does not say whether a folder exists on the server.
            raise ValueError(f"{name!r} is no public {kind} on the Hub, or the Hub cannot be reached now.")
        return name

    # Finished runs: the visitor's own audits, folders, and models on the Hub that were pushed with their report

    def keep(self, audit: Any) -> None:
        """Keep what an audit found, under a name by which it can be compared."""
        report = audit.report
        self.audit = audit
        self._audits += 1
        name = f"Audit {self._audits}: {report.model} on {report.dataset}"
        before = audit.rows[0] if len(audit.rows) > 1 else None
        self.runs[name] = Run(name, report, audit.rows[-1], before)
        for oldest in list(self.runs)[:-KEPT_RUNS]:
            del self.runs[oldest]

    def run(self, name: str) -> Run:
        """One of the visitor's audits by its name; or the run in a folder, or of a Hub id, if they may name it."""
        if name in self.runs:
            return self.runs[name]
        name = self.checked(name, "model")
        run = load_run(name) if is_local(name) else hub_run(name)
        if run is None:
            raise ValueError(f"{name!r} is neither the folder of a run nor a model on the Hub with a report.")
        return run

    def choices(self) -> list[str]:
        """The visitor's audits, the runs that were given at the start and, for the owner, those in `runs/`."""
        given = [name for name in self.given if is_run(name)]
        found = sorted(str(path.parent) for path in Path("runs").glob(f"*/{REPORT_FILE}")) if self.is_owner else []
        return list(dict.fromkeys([*self.runs, *given, *found]))


def _is_public(repo_id: str, kind: str) -> bool:
    """Asked without the server's own token, which may read what its visitors may not."""
    try:
        info = hub_api(token=False).repo_info(repo_id, repo_type=kind, timeout=TIMEOUT_SECONDS)
    except UNREACHABLE:
        return False
    return not (info.private or info.gated)


def is_run(name: str) -> bool:
    return Path(name, REPORT_FILE).is_file()


def hub_run(repo_id: str) -> Run | None:
    """The report and rows that were last pushed with a model; `None` if there are none."""
    try:
        folder = snapshot_download(repo_id, allow_patterns=[REPORT_FILE, ROWS_FILE])
        return replace(load_run(folder), name=repo_id)
    except UNREACHABLE:
        return None


# ---- Pieces of the page; what a report consists of is in `report.text` ----


def picture(image: Image.Image, alt: str, kind: str = "") -> str:
    content = io.BytesIO()
    image.save(content, "PNG")
    return image_html(content.getvalue(), alt, kind)


def notice(said: str | Exception, kind: str = "error") -> str:
    """A box with a sentence: an `error`, or a `note`."""
    role = "alert" if kind == "error" else "status"
    said = explain(said) if isinstance(said, Exception) else said
    return f'<div class="notice {kind}" role="{role}">{html_text(said)}</div>'
