"""The served page: where it listens, what it refuses, that visitors are strangers, and the model they take away."""

import io
import logging
import os
import socket
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from loopback_hub.server import ALICE, ALICE_READS, BOB, HubServer
from page_reader import HOSTILE
from transformers import AutoModelForImageClassification

from .small_run import picture, save_data, save_model, save_zip


gradio = pytest.importorskip("gradio")

from macs_hf.app import page as serving  # noqa: E402
from macs_hf.app.audit import AuditRequest, audit  # noqa: E402
from macs_hf.app.jobs import Access, Job, Visitor  # noqa: E402
from macs_hf.app.page import build_page, push_model, zipped_model  # noqa: E402

from .page_client import PageClient, file_at  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    save_model(folder / "model", temperature=2.0, promises=True)
    save_data(folder / "data")
    save_zip(folder / "photos.zip", each=4)
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> "Iterator[gradio.Blocks]":
    served = serving.serve(str(folder / "model"), str(folder / "data"))
    yield served
    served.close(verbose=False)


@pytest.fixture
def visitor(page: "gradio.Blocks") -> PageClient:
    return PageClient(page.local_url)


@pytest.fixture
def serve(page: "gradio.Blocks", monkeypatch: pytest.MonkeyPatch) -> "Iterator[Callable[..., gradio.Blocks]]":
    """Another page in this process, for a while: where uploads go is a setting of the process."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", os.environ["GRADIO_TEMP_DIR"])
    served = []
    yield lambda *names: served.append(serving.serve(*names)) or served[-1]
    for one in served:
        one.close(verbose=False)


def png(label: int = 0) -> bytes:
    content = io.BytesIO()
    picture(label, 3).save(content, "PNG")
    return content.getvalue()


def test_it_listens_to_this_machine_alone(page: "gradio.Blocks") -> None:
    assert page.server_name == "127.0.0.1"
    with socket.create_connection(("127.0.0.1", page.server_port), timeout=5):
        pass
    with pytest.raises(ConnectionRefusedError):  # would be accepted by a server for all addresses
        socket.create_connection(("127.0.0.2", page.server_port), timeout=5)


def test_nothing_is_told_or_kept_elsewhere(page: "gradio.Blocks", visitor: PageClient) -> None:
    assert not page.analytics_enabled and not page.share
    assert visitor.config["run_history"] is False
    assert visitor.get("/gradio_api/monitoring").status_code in (403, 404)
    info = visitor.get("/gradio_api/info").json()
    assert info["named_endpoints"] == {} and info["unnamed_endpoints"] == {}
    home = visitor.get("/").text
    assert "fonts.googleapis" not in home and "fonts.gstatic" not in home


@pytest.mark.parametrize("name", ["secret.txt", "model/config.json", "photos.zip", "../../../../etc/passwd"])
def test_no_file_of_the_machine_can_be_fetched(name: str, folder: Path, visitor: PageClient) -> None:
    for path in (str(folder / name), name, quote(str(folder / name), safe=""), f"{folder}/model/../{name}"):
        for route in ("/gradio_api/file=", "/file=", "/static/", "/assets/", "/gradio_api/file/"):
            answer = visitor.get(route + path)
            assert answer.status_code >= 400, (route, path)
            assert "secret" not in answer.text.replace(path, "").replace("secret.txt", "")


def test_no_file_of_the_machine_can_be_named_as_an_upload(folder: Path, visitor: PageClient) -> None:
    shown = visitor.call("start", "click", archive=file_at(str(folder / "photos.zip"), "photos.zip"))
    assert "report" not in shown
    found = visitor.call("severity", "change", try_image=file_at(str(folder / "model" / "config.json")))
    assert "verdict" not in str(found)


def test_uploads_are_limited(serve: "Callable[..., gradio.Blocks]", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_UPLOAD_BYTES", 10_000)
    visitor = PageClient(serve().local_url)
    assert visitor.upload("small.png", bytes(9_000)).status_code == 200
    assert visitor.upload("large.png", bytes(11_000)).status_code == 413


def test_a_full_queue_refuses(
    serve: "Callable[..., gradio.Blocks]", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "QUEUE_SIZE", 2)
    url = serve(str(folder / "model"), str(folder / "data")).local_url
    answers = [PageClient(url).join("start", "click", {"corrupted": "All"}) for _ in range(6)]
    assert answers[0].status_code == 200
    assert "full" in next(answer.text for answer in answers if answer.status_code == 503)


def test_an_image_is_answered_with_what_its_model_promises(visitor: PageClient) -> None:
    shown = visitor.call("severity", "change", try_image=visitor.uploaded("a.png", png()), accuracy=0.9)
    assert "before calibration" in shown["answer"] and "Prediction set" in shown["answer"]
    assert shown["coverage"]["visible"] and shown["accuracy"]["visible"]
    unsure = visitor.call("severity", "change", try_image=visitor.uploaded("a.png", png()), accuracy=0.95)
    assert "I would not answer" in unsure["answer"]


def test_visitors_are_strangers(page: "gradio.Blocks", folder: Path) -> None:
    one, other = PageClient(page.local_url), PageClient(page.local_url)
    shown = one.call("start", "click", model=str(folder / "model"), dataset=str(folder / "data"))
    assert "verdict" in shown["report"] and shown["status"] == ""
    name = "Audit 1: model on data"
    compared = one.call("runs", "change", runs=[name, name])
    assert "Compared with" in compared["comparison"]
    refused = other.call("runs", "change", runs=[name, name])
    assert "alert" in refused["comparison"]
    nothing = other.call("prepare", "click")
    assert "no calibrated model yet" in nothing["take-status"]
    made = one.call("prepare", "click")
    assert made["download"]["visible"] and made["take-status"] == ""
    assert one.get(f"/gradio_api/file={made['download']['value']['path']}").status_code == 200


def test_a_page_for_others_opens_no_folders(folder: Path) -> None:
    closed = build_page(None, None, Access((), is_private=False))
    start = next(function for function in closed.fns.values() if function.concurrency_id == "audit")
    visitor = next(part.value for part in start.inputs if isinstance(part, gradio.State))
    fields = [part.value for part in start.inputs[1:]]
    fields[0], fields[1] = str(folder / "model"), str(folder / "data")
    *_, last = start.fn(visitor, *fields)
    assert any("is no public model" in str(value) for value in last.values())


# ---- The calibrated model ----


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("take")
    request = AuditRequest(str(save_model(folder / "model", HOSTILE)), str(save_data(folder / "data", HOSTILE)))
    job = Job(lambda job: audit(request, folder, job))
    assert job.wait(300) and job.error is None, job.error
    return job.result


@pytest.fixture
def auditor(found: object, tmp_path: Path) -> Visitor:
    auditor = Visitor(str(tmp_path))
    auditor.keep(found)
    return auditor


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_zip_has_the_model_its_report_and_its_card(auditor: Visitor, tmp_path: Path) -> None:
    path = zipped_model(auditor)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    names = {file.name for file in folder.iterdir()}
    assert names >= {"model.safetensors", "config.json", "README.md", "evaluation.json", "samples.parquet"}
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)
    model = AutoModelForImageClassification.from_pretrained(folder)
    assert model.config.calibration_temperature == auditor.audit.report.temperature.value
    assert [model.config.id2label[index] for index in range(3)] == HOSTILE
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # nothing else is left behind


def test_it_is_pushed_with_the_visitors_token_which_stays_nowhere(
    auditor: Visitor, hub: HubServer, tmp_path: Path, capfd: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = push_model(auditor, "bob/calibrated", BOB, True)  # the server's own token is alice's
    assert "bob/calibrated" in said and "error" not in said
    repo = hub.repo("bob/calibrated")
    assert repo.private
    assert {request.user for request in hub.requests if request.route in ("create", "commit")} == {"bob"}
    captured = capfd.readouterr()
    written = everything_below(tmp_path / "hub") + everything_below(auditor.folder)
    for place in (said, captured.out, captured.err, caplog.text, str(vars(auditor))):
        assert BOB not in place
    assert BOB.encode() not in written
    assert not (auditor.folder / "push").exists()


def test_without_a_token_nothing_is_pushed_with_the_servers(auditor: Visitor, hub: HubServer) -> None:
    for blank in ("", "  "):
        assert "Paste a token" in push_model(auditor, "alice/calibrated", blank, True)
    assert "user/name" in push_model(auditor, " ", ALICE, True)
    assert not hub.requests


@pytest.mark.parametrize(("token", "repo"), [(ALICE_READS, "alice/x"), ("hf_wrongToken", "alice/x"), (BOB, "alice/x")])
def test_what_may_not_be_pushed_is_a_sentence(token: str, repo: str, auditor: Visitor, hub: HubServer) -> None:
    said = push_model(auditor, repo, token, False)
    assert 'role="alert"' in said and "alice/x" in said
    assert token not in said and str(auditor.folder) not in said
    assert ("model", "alice/x") not in hub.store.repos or not hub.files("alice/x")
