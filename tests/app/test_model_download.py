"""The calibrated model to take away: as a zip, or pushed with the visitor's own token, which is kept nowhere."""

import logging
import zipfile
from pathlib import Path

import pytest
from loopback_hub.server import ALICE, ALICE_READS, BOB, HubServer
from page_reader import HOSTILE
from transformers import AutoModelForImageClassification

from macs_hf.app.auditing import AuditRequest, audit
from macs_hf.app.job import Job
from macs_hf.app.visitor import Visitor

from .small_run import save_data, save_model


pytest.importorskip("gradio")

from macs_hf.app.model_download import file_name, push_model, zipped_model


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("take")
    request = AuditRequest(str(save_model(folder / "model", HOSTILE)), str(save_data(folder / "data", HOSTILE)))
    job = Job(lambda job: audit(request, folder, job))
    assert job.wait(300) and job.error is None, job.error
    return job.result


@pytest.fixture
def visitor(found: object, tmp_path: Path) -> Visitor:
    visitor = Visitor(str(tmp_path))
    visitor.keep(found)
    return visitor


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_zip_has_the_model_its_report_and_its_card(visitor: Visitor, tmp_path: Path) -> None:
    path = zipped_model(visitor)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    names = {file.name for file in folder.iterdir()}
    assert names >= {"model.safetensors", "config.json", "README.md", "evaluation.json", "samples.parquet"}
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)
    model = AutoModelForImageClassification.from_pretrained(folder)
    assert model.config.calibration_temperature == visitor.audit.report.temperature.value
    assert [model.config.id2label[index] for index in range(3)] == HOSTILE
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # nothing else is left behind


def test_it_is_pushed_with_the_visitors_token_which_stays_nowhere(
    visitor: Visitor, hub: HubServer, tmp_path: Path, capfd: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = push_model(visitor, "bob/calibrated", BOB, True)  # the server's own token is alice's
    assert "bob/calibrated" in said and "error" not in said
    repo = hub.repo("bob/calibrated")
    assert repo.private
    assert {request.user for request in hub.requests if request.route in ("create", "commit")} == {"bob"}
    captured = capfd.readouterr()
    written = everything_below(tmp_path / "hub") + everything_below(visitor.folder)
    for place in (said, captured.out, captured.err, caplog.text, str(vars(visitor))):
        assert BOB not in place
    assert BOB.encode() not in written
    assert not (visitor.folder / "push").exists()


def test_without_a_token_nothing_is_pushed_with_the_servers(visitor: Visitor, hub: HubServer) -> None:
    for blank in ("", "  "):
        assert "Paste a token" in push_model(visitor, "alice/calibrated", blank, True)
    assert "user/name" in push_model(visitor, " ", ALICE, True)
    assert not hub.requests


@pytest.mark.parametrize(("token", "repo"), [(ALICE_READS, "alice/x"), ("hf_wrongToken", "alice/x"), (BOB, "alice/x")])
def test_what_may_not_be_pushed_is_a_sentence(token: str, repo: str, visitor: Visitor, hub: HubServer) -> None:
    said = push_model(visitor, repo, token, False)
    assert 'role="alert"' in said and "alice/x" in said
    assert token not in said and str(visitor.folder) not in said
    assert ("model", "alice/x") not in hub.store.repos or not hub.files("alice/x")


def test_a_name_for_the_file() -> None:
    assert file_name("google/vit-base") == "vit-base-calibrated"
    assert file_name("runs/../<b>") == "b-calibrated"
    assert file_name("..") == "model-calibrated"
