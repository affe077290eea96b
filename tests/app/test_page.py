"""The served page: where it listens, what it refuses, that visitors are strangers, and the model they take away."""

import base64
import io
import os
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from page_reader import HOSTILE
from transformers import AutoModelForImageClassification

from .small_run import free_port, picture, save_data, save_model, save_zip


gradio = pytest.importorskip("gradio")

from macs_hf.app import page as serving  # noqa: E402
from macs_hf.report.report import load_run  # noqa: E402

from .page_client import PageClient  # noqa: E402


ELSEWHERE = "127.0.0.2"  # an address of this machine that is not one of its owner's alone


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    save_model(folder / "model", temperature=2.0, guarantees=True)
    save_data(folder / "data")
    save_model(folder / "hostile", HOSTILE)
    save_data(folder / "hostile-data", HOSTILE)
    save_zip(folder / "photos.zip", each=4)
    (folder / "secret.txt").write_text("secret")
    picture(1, 7).save(folder / "private.png")
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> "Iterator[gradio.Blocks]":
    served = serving.serve(str(folder / "model"), str(folder / "data"), port=free_port())
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
    yield lambda *names, **options: served.append(serving.serve(*names, **options)) or served[-1]
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


# ---- Files ----


@pytest.fixture
def open_page(serve: "Callable[..., gradio.Blocks]", folder: Path) -> "gradio.Blocks":
    """A page for visitors, who are not the owner of this machine."""
    return serve(str(folder / "model"), str(folder / "data"), host=ELSEWHERE)


@pytest.fixture(scope="module")
def other_server() -> "Iterator[tuple[str, list[str]]]":
    """A server inside the network, and what was asked of it."""
    asked: list[str] = []

    class Inside(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(png())

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Inside) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/private.png", asked
        server.shutdown()


META = {"meta": {"_type": "gradio.FileData"}}


def ways_to_name(private: Path, url: str, uploaded: dict[str, Any]) -> list[Any]:
    """Everything that might be taken for a file which the visitor did not upload."""
    place = Path(uploaded["path"])
    up = "/".join([".."] * (len(place.parts) + 1))
    link = place.parent / "link.png"
    link.symlink_to(private)
    paths = [str(private), f"{place.parent}/{up}{private}", str(link), f"file://{private}", url, f"{place}\0.png", ""]
    named = [{"path": path} | meta for path in paths for meta in ({}, META)]
    named += [str(private), url, [{"path": str(private)}], {"image": {"path": str(private)} | META}, [[str(private)]]]
    named += [{"url": url}, {"path": None, "url": url}, {"url": f"file://{private}"} | META]
    named += [{"path": str(private), "is_stream": True} | META, {"path": str(private), "meta": {"_type": "other"}}]
    named += [{"path": None, "url": "data:image/png;base64," + base64.b64encode(private.read_bytes()).decode()}]
    return named


@pytest.mark.parametrize("field", ["try-image", "archive"])
def test_only_uploaded_files_can_be_named(
    field: str, folder: Path, open_page: "gradio.Blocks", other_server: tuple[str, list[str]]
) -> None:
    visitor = PageClient(open_page.local_url)
    element, event, secret = (
        ("severity", "change", "private.png") if field == "try-image" else ("start", "click", "photos.zip")
    )
    assert "verdict" in str(visitor.call("severity", "change", try_image=visitor.uploaded("a.png", png())))
    uploaded = visitor.uploaded("a.png", png(1))
    for named in ways_to_name(folder / secret, other_server[0], uploaded):
        shown = str(visitor.call(element, event, **{field: named}))
        assert "data:image" not in shown and "verdict" not in shown, named
    assert not other_server[1]


def test_no_function_of_the_page_takes_the_path_of_a_file(folder: Path, open_page: "gradio.Blocks") -> None:
    """Whatever its field is: through the queue, and through each route that calls a function at once."""
    visitor = PageClient(open_page.local_url)
    named, shown = {"path": str(folder / "private.png")}, ("data:image", "verdict")
    image = {visitor.ids["try-image"]: visitor.uploaded("a.png", png())}
    for function in visitor.config["dependencies"]:
        for place in function["inputs"]:
            said = visitor.ask(function, image | {place: named})
            assert not any(mark in said for mark in shown), (function, place)
            name = open_page.fns[function["id"]].api_name
            for route in ("run", "api", "call") if name else ():
                data = [named if place == other else None for other in function["inputs"]]
                body = {"data": data, "fn_index": function["id"], "session_hash": visitor.session}
                said = visitor.http.post(f"/gradio_api/{route}/{name}", json=body).text
                assert not any(mark in said for mark in shown), (route, function)


@pytest.mark.parametrize("which", ["page", "open_page"])
def test_no_file_of_the_machine_can_be_fetched(
    which: str, folder: Path, other_server: tuple[str, list[str]], request: pytest.FixtureRequest
) -> None:
    visitor = PageClient(request.getfixturevalue(which).local_url)
    place = visitor.uploaded("a.png", png())["path"]
    assert visitor.get(f"/gradio_api/file={place}").content == png()
    examples = Path(".gradio", "cached_examples", "secret.txt")  # of another app of Gradio's in the same folder
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        examples.parent.mkdir(parents=True, exist_ok=True)
        examples.write_text("secret")
        names = ["secret.txt", "model/config.json", "photos.zip", "private.png", str(examples)]
        paths = [path for name in names for path in (str(folder / name), name, f"{folder}/model/../{name}")]
        paths += [quote(path, safe="") for path in paths]
        paths += ["../../../../etc/passwd", "/etc/passwd", f"{place}/../../../../secret.txt", other_server[0]]
        paths += [f"file://{folder}/secret.txt", "http://example.com/", "//example.com/"]
        for path in paths:
            for route in ("gradio_api/file=", "file=", "gradio_api/file/", "gradio_api/proxy=", "static/", "assets/"):
                assert visitor.get(f"/{route}{path}").status_code in (400, 403, 404, 405), (route, path)
    recording = {"video": ("a.mp4", png())}  # would be given to ffmpeg
    assert visitor.http.post("/gradio_api/process_recording", files=recording).status_code == 403
    assert not other_server[1]


# ---- Whose page it is ----


FOREIGN = ("evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil.example", "")
FOREIGN += ("[::2]:{port}", "127.0.0.2:{port}", "user@127.0.0.1.evil.example")
WEBSOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
WEBSOCKET |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}


def routes(visitor: PageClient) -> list[tuple[str, str]]:
    session = f"session_hash={visitor.session}"
    gets = ["/", "/config", "/theme.css", "/gradio_api/info", f"/gradio_api/queue/data?{session}"]
    gets += [f"/gradio_api/heartbeat/{visitor.session}", "/gradio_api/upload_progress?upload_id=1"]
    posts = [f"/gradio_api/{name}" for name in ("queue/join", "run/predict", "upload", "cancel", "component_server")]
    return [("GET", path) for path in gets] + [("POST", path) for path in posts]


def test_a_private_page_answers_at_its_own_address_alone(page: "gradio.Blocks", visitor: PageClient) -> None:
    """A name of somebody else's may lead to this machine, and a page of theirs may ask in the owner's browser."""
    port = page.server_port
    for name in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost:9000"):
        for headers in ({"Host": name}, {"Host": name, "Origin": f"http://{name}"}):
            assert visitor.http.get("/config", headers=headers).status_code == 200, headers
    headers = [{"Host": name.format(port=port)} for name in FOREIGN]
    headers += [{"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}]
    origins = ("http://evil.example", "null", "https://127.0.0.1", "http://localhost:3000", "file://", "")
    headers += [{"Origin": origin} for origin in origins] + [{"Host": "evil.example"} | WEBSOCKET]
    for method, path in routes(visitor):
        for given in headers:
            answer = visitor.http.request(method, path, headers=given)
            assert answer.status_code == 403, (method, path, given)
            assert "--host" in answer.text


def test_an_open_page_answers_at_its_own_address_too(open_page: "gradio.Blocks") -> None:
    visitor = PageClient(open_page.local_url)
    assert visitor.http.get("/config", headers={"Host": "192.168.1.7:80"}).status_code == 200  # no name, so nobody's
    assert visitor.http.get("/config", headers={"Host": "evil.example"}).status_code == 403
    assert visitor.http.get("/config", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_page_for_all_addresses_answers_at_every_name(
    serve: "Callable[..., gradio.Blocks]", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Space, whose name is that of its owner; whoever asks is a visitor."""
    monkeypatch.setattr(serving, "EVERYWHERE", (ELSEWHERE,))  # so that the test opens nothing to the network
    visitor = PageClient(serve(host=ELSEWHERE).local_url)
    headers = {"Host": "user-space.hf.space", "Origin": "https://user-space.hf.space"}
    assert visitor.http.get("/config", headers=headers).status_code == 200
    for model, dataset in (("/etc", "digits"), ("tiny", str(folder / "data"))):
        shown = visitor.call("start", "click", model=model, dataset=dataset)
        assert "is no public" in shown["status"] and "verdict" not in str(shown)


def test_uploads_and_the_queue_are_limited(
    serve: "Callable[..., gradio.Blocks]", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_UPLOAD_BYTES", 10_000)
    monkeypatch.setattr(serving, "QUEUE_SIZE", 2)
    url = serve(str(folder / "model"), str(folder / "data")).local_url
    uploaded = [PageClient(url).upload("a.png", bytes(size)).status_code for size in (9_000, 11_000)]
    assert uploaded == [200, 413]
    joined = [PageClient(url).join("start", "click", {"corrupted": "All"}).status_code for _ in range(6)]
    assert joined[0] == 200 and 503 in joined


def test_visitors_audits_have_an_end_and_the_owners_do_not(
    serve: "Callable[..., gradio.Blocks]", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "AUDIT_SECONDS", 0)
    names = str(folder / "model"), str(folder / "data")
    shown = PageClient(serve(*names, host=ELSEWHERE).local_url).call("start", "click")
    assert "“Images, at most”" in shown["status"] and "verdict" not in str(shown)
    assert "verdict" in PageClient(serve(*names).local_url).call("start", "click")["report"]


def test_the_size_of_images_goes_from_the_command_to_audit_and_try(
    serve: "Callable[..., gradio.Blocks]", folder: Path
) -> None:
    visitor = PageClient(serve(str(folder / "model"), str(folder / "data"), image_size=48).local_url)
    shown = visitor.call("start", "click")["report"]
    assert "48 x 48 pixels" in shown and "--image_size 48" in shown
    uploaded = visitor.uploaded("a.png", png())
    assert "48 x 48 pixels" in visitor.call("severity", "change", try_image=uploaded)["answer"]
    assert "32 x 32 pixels" in visitor.call("severity", "change", try_image=uploaded, try_image_size=" ")["answer"]
    for wrong in ("100000", "0", "-5", "4e1", "x"):
        assert "“Image size”" in visitor.call("severity", "change", try_image=uploaded, try_image_size=wrong)["answer"]
        assert "“Image size”" in visitor.call("start", "click", image_size=wrong)["status"]


def test_visitors_are_strangers_and_take_away_what_they_audited(
    page: "gradio.Blocks", folder: Path, tmp_path: Path
) -> None:
    one, other = PageClient(page.local_url), PageClient(page.local_url)
    shown = one.call("start", "click", model=str(folder / "hostile"), dataset=str(folder / "hostile-data"))
    assert "verdict" in shown["report"] and shown["status"] == ""
    name = "Audit 1: hostile on hostile-data"
    assert "Compared with" in one.call("runs", "change", runs=[name, name])["comparison"]
    assert "alert" in other.call("runs", "change", runs=[name, name])["comparison"]
    assert "no calibrated model yet" in other.call("prepare", "click")["take-status"]
    made = one.call("prepare", "click")
    assert made["download"]["visible"] and made["take-status"] == ""
    content = one.get(f"/gradio_api/file={made['download']['value']['path']}").content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(tmp_path)
    (taken,) = tmp_path.iterdir()
    names = {file.name for file in taken.iterdir()}
    assert names >= {"model.safetensors", "config.json", "README.md", "evaluation.json", "samples.parquet"}
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)
    model = AutoModelForImageClassification.from_pretrained(taken)
    assert model.config.calibration_temperature == load_run(taken).report.temperature.value
    assert [model.config.id2label[index] for index in range(3)] == HOSTILE
