"""What one visitor has: kept for them, bounded, and deleted when they leave."""

import copy
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import torch

from macs_hf.app.job import Job
from macs_hf.app.limits import KEPT_RUNS
from macs_hf.app.visitor import Visitor
from macs_hf.report.rows import SampleRows


ROWS = SampleRows.from_logits(2 * torch.eye(2), torch.arange(2))


def audit(model: str) -> SimpleNamespace:
    return SimpleNamespace(report=SimpleNamespace(model=model, dataset="d"), rows=[ROWS])


def test_copies_share_nothing(tmp_path: Path) -> None:
    empty = Visitor(str(tmp_path))
    one, other = copy.deepcopy(empty), copy.deepcopy(empty)
    one.keep(audit("m"))
    assert (other.audit, other.runs) == (None, {})
    assert one.folder != other.folder
    assert stat.S_IMODE(one.folder.stat().st_mode) == 0o700


def test_audits_are_kept_under_names_of_their_own() -> None:
    visitor = Visitor()
    names = [visitor.keep(audit("m")) for _ in range(KEPT_RUNS + 2)]
    assert len(set(names)) == len(names)
    assert list(visitor.runs) == names[2:]


def test_whoever_leaves_leaves_nothing(tmp_path: Path) -> None:
    visitor, ended = Visitor(str(tmp_path)), threading.Event()

    def work(job: Job) -> None:
        try:
            while True:
                job.step()
        finally:
            ended.set()

    visitor.job = Job(work)
    (visitor.new_folder("audit") / "file").write_text("x")
    visitor.keep(audit("m"))
    visitor.leave()
    assert ended.wait(10)
    assert not list(tmp_path.iterdir())
    assert (visitor.audit, visitor.runs) == (None, {})
