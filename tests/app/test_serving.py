"""The served page: where it listens, what it refuses, and that visitors are strangers to each other."""

import io
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from .small_run import picture, save_data, save_model, save_zip


gradio = pytest.importorskip("gradio")

from macs_hf.app import serving  # noqa: E402
from macs_hf.app.access import Access  # noqa: E402
from macs_hf.app.page import build_page  # noqa: E402

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
