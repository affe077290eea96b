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

from macs_hf.app.jobs import KEPT_RUNS, UNEXPECTED, Access, Job, Visitor, images_in
from macs_hf.exceptions import ArgumentError
from macs_hf.report.rows import SampleRows


ROWS = SampleRows.from_logits(2 * torch.eye(2), torch.arange(2))
OPEN = Access(given=("runs/mine", "digits"), is_private=False)


# ---- Jobs ----


def test_the_result_and_how_far_it_was() -> None:
    seen, go = threading.Event(), threading.Event()

    def work(job: Job) -> str:
        job.step(stage="Measuring", total=10)
        job.step(4)
        seen.set()
        go.wait(10)
        job.step(3)
        return "done"

    job = Job(work)
    assert seen.wait(10) and not job.wait(0.01)
    assert (job.stage, job.done, job.total) == ("Measuring", 4, 10)
    go.set()
    assert job.wait(10)
    assert (job.result, job.error, job.done) == ("done", None, 7)


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


def test_notes_are_the_warnings_of_its_own_thread() -> None:
    logger = logging.getLogger("macs_hf.data.sources")
    ready, go = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        ready.set()
        go.wait(10)
        for _ in range(2):
            logger.warning("fitted on a tenth of train: name another with validation_split=...")

    job = Job(work)
    ready.wait(10)
    logger.warning("somebody else's")
    go.set()
    assert job.wait(10)
    assert job.notes == ["fitted on a tenth of train: name another with validation_split=..."]
    assert not any(type(handler).__name__ == "_Notes" for handler in logging.getLogger("macs_hf").handlers)


def test_images_of_a_call() -> None:
    images = torch.zeros(5, 3, 4, 4)
    assert images_in((images,), {}) == images_in((), {"pixel_values": images}) == 5


# ---- Visitors ----


def audit(model: str) -> SimpleNamespace:
    return SimpleNamespace(report=SimpleNamespace(model=model, dataset="d"), rows=[ROWS])


def test_copies_share_nothing(tmp_path: Path) -> None:
    empty = Visitor(tmp_path)
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
    visitor, ended = Visitor(tmp_path), threading.Event()

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


# ---- Access ----


def test_the_owner_may_name_folders_and_ids(tmp_path: Path) -> None:
    for name in (str(tmp_path), "owner/model"):
        assert Access().check_model(f" {name} ") == Access().check_dataset(name) == name
    assert Access().check_folder(str(tmp_path)) == tmp_path


def test_an_empty_name_is_asked_for() -> None:
    for access in (Access(), OPEN):
        with pytest.raises(ValueError, match="Name a model"):
            access.check_model("  ")
        with pytest.raises(ValueError, match="Name a dataset"):
            access.check_dataset("")


def test_visitors_may_name_what_was_given_and_benchmarks() -> None:
    assert OPEN.check_model("runs/mine") == "runs/mine"
    assert OPEN.check_dataset("digits") == "digits"
    assert OPEN.check_dataset("cifar10") == "cifar10"


def test_visitors_never_reach_the_servers_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: HubServer
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    refusals = set()
    for name in (
        str(tmp_path),
        "owner/model",
        ".",
        "../..",
        "/etc",
        "runs/mine/..",
        "runs/mine/../../owner",
        "missing/x",
    ):
        for check in (OPEN.check_model, OPEN.check_dataset, OPEN.check_folder):
            with pytest.raises(ValueError, match="is no public") as caught:
                check(name)
            refusals.add(str(caught.value).replace(repr(name), "").replace("dataset", "model"))
    assert len(refusals) == 1  # what exists and what does not get the same answer
    assert OPEN.check_folder("runs/mine") == Path("runs/mine")


def test_visitors_do_not_borrow_the_servers_token(hub: HubServer) -> None:
    api = HfApi()  # alice's token is in the environment
    for kind, check in (("model", OPEN.check_model), ("dataset", OPEN.check_dataset)):
        api.create_repo("alice/open", repo_type=kind)
        api.create_repo("alice/hidden", repo_type=kind, private=True)
        assert check("alice/open") == "alice/open"
        with pytest.raises(ValueError, match="no public"):
            check("alice/hidden")


def test_offline_nothing_can_be_looked_up() -> None:
    with pytest.raises(ValueError, match="cannot be reached"):
        OPEN.check_model("owner/model")
