"""Work in a thread, what one visitor has, and what they may name."""

import copy
import logging
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import HfApi
from loopback_hub.server import HubServer

from macs_hf.app.jobs import KEPT_RUNS, UNEXPECTED, Job, Visitor
from macs_hf.exceptions import ArgumentError
from macs_hf.report.rows import SampleRows


ROWS = SampleRows.from_logits(2 * torch.eye(2), torch.arange(2))
OPEN = Visitor(given=("runs/mine", "digits"), is_owner=False)


# ---- Jobs ----


def test_how_far_it_is_what_it_gives_and_the_warnings_of_its_own_thread() -> None:
    logger = logging.getLogger("macs_hf.data.sources")
    seen, go = threading.Event(), threading.Event()

    def work(job: Job) -> str:
        with job.phase("Measuring", 10) as bar:
            bar.update(4)
            seen.set()
            go.wait(10)
            for _ in range(2):
                logger.warning("its own")
        return "done"

    job = Job(work)
    assert seen.wait(10) and not job.wait(0.01)
    assert (job.stage, job.done, job.total) == ("Measuring", 4, 10)
    logger.warning("somebody else's")
    go.set()
    assert job.wait(10)
    assert (job.result, job.error, job.notes) == ("done", None, ["Its own"])
    assert not any(type(handler).__name__ == "_Notes" for handler in logging.getLogger("macs_hf").handlers)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ArgumentError("test_split", "Dataset 'x' has no split 'y'. Name one with"), "“Split”"),
        (FileNotFoundError("no such thing"), "no such thing"),
        (KeyError("inside"), UNEXPECTED),
    ],
)
def test_errors_are_sentences(error: Exception, said: str, capsys: pytest.CaptureFixture) -> None:
    def work(job: Job) -> None:
        raise error

    job = Job(work)
    assert job.wait(10)
    assert said in job.error and "MACS_HF" not in job.error
    assert ("KeyError" in capsys.readouterr().err) == (said == UNEXPECTED)  # the owner learns of bugs


# ---- Visitors ----


def audit(model: str) -> SimpleNamespace:
    return SimpleNamespace(report=SimpleNamespace(model=model, dataset="d"), rows=[ROWS])


def test_copies_share_nothing(tmp_path: Path) -> None:
    empty = Visitor(tmp_path)
    one, other = copy.deepcopy(empty), copy.deepcopy(empty)
    for _ in range(KEPT_RUNS + 2):
        one.keep(audit("m"))
    assert [*one.runs] == [f"Audit {number}: m on d" for number in range(3, KEPT_RUNS + 3)]
    assert (other.audit, other.runs) == (None, {})
    assert one.new_folder("a") != other.new_folder("a")
    assert stat.S_IMODE(one.new_folder("a").parent.stat().st_mode) == 0o700


def test_whoever_leaves_leaves_nothing(tmp_path: Path) -> None:
    visitor, ended = Visitor(tmp_path), threading.Event()

    def work(job: Job) -> None:
        try:
            while True:
                job.check()
        finally:
            ended.set()

    visitor.job = Job(work)
    (visitor.new_folder("audit") / "file").write_text("x")
    visitor.keep(audit("m"))
    visitor.leave()
    assert ended.wait(10)
    assert not list(tmp_path.iterdir())
    assert (visitor.audit, visitor.runs) == (None, {})


# ---- Access ----


def test_the_owner_names_anything_and_visitors_what_was_given_or_is_public(tmp_path: Path) -> None:
    for name in (str(tmp_path), "owner/model"):
        assert Visitor().checked(f" {name} ", "model") == Visitor().checked(name, "dataset") == name
    assert OPEN.checked("runs/mine", "model") == "runs/mine"
    assert OPEN.checked("digits", "dataset") == "digits" and OPEN.checked("cifar10", "dataset") == "cifar10"
    for name, said in (("  ", "Name a model"), ("owner/model", "cannot be reached")):  # offline, nothing is looked up
        with pytest.raises(ValueError, match=said):
            OPEN.checked(name, "model")


def test_visitors_never_reach_the_servers_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: HubServer
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("owner/model", "runs/mine", "cifar10"):
        (tmp_path / name).mkdir(parents=True)
    refusals = set()
    for name in (
        str(tmp_path),
        "owner/model",
        "../..",
        "runs/mine/..",
        "runs/mine/../../owner",
        "missing/x",
        "cifar10",
    ):
        for check in (lambda name: OPEN.checked(name, "model"), lambda name: OPEN.checked(name, "dataset"), OPEN.run):
            with pytest.raises(ValueError, match="is no public") as caught:
                check(name)
            refusals.add(str(caught.value).replace(repr(name), "").replace("dataset", "model"))
    assert len(refusals) == 1  # what exists and what does not get the same answer


def test_visitors_do_not_borrow_the_servers_token(hub: HubServer) -> None:
    api = HfApi()  # alice's token is in the environment
    for kind in ("model", "dataset"):
        api.create_repo("alice/open", repo_type=kind)
        api.create_repo("alice/hidden", repo_type=kind, private=True)
        assert OPEN.checked("alice/open", kind) == "alice/open"
        with pytest.raises(ValueError, match="no public"):
            OPEN.checked("alice/hidden", kind)
