"""What one visitor has: a folder, work that is under way, and what was found. Nobody else sees any of it."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..report.run import Run
from .job import Job
from .limits import KEPT_RUNS


if TYPE_CHECKING:
    from .auditing import Audit


class Visitor:
    """
    One per open page; the page copies an empty one for each.

    Args:
        root (`str`, *optional*): Where visitors' folders are made.
    """

    def __init__(self, root: str | None = None) -> None:
        self.root = root
        self.job: Job | None = None
        self.audit: Audit | None = None
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

    def keep(self, audit: "Audit") -> str:
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
