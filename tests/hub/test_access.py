"""A Hub that cannot be reached is reported plainly and without waiting for its clients; local files need no Hub."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from macs_hf import hub
from macs_hf.data.sources import load_splits, source_of
from macs_hf.exceptions import ArgumentError
from macs_hf.models.loading import load_classifier


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    for connection in accepted:
        connection.close()


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_nobody_listens(closed_port: int, online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setattr(hub, "TIMEOUT_SECONDS", 60)
    # The reason is the refusal, not a deadline: nothing was waited for.
    address = rf"has to come from http://127.0.0.1:{closed_port}, which cannot be reached \((?!no answer)"
    with pytest.raises(ConnectionError, match=rf"Dataset 'a/b' {address}.*local"):
        load_splits(source_of("a/b"))
    with pytest.raises(ConnectionError, match=rf"Model 'timm/resnet50.a1_in1k' {address}.*HF_HUB_OFFLINE=1"):
        load_classifier("resnet50", ["a", "b"])


def test_a_server_that_never_answers(silent_port: int, online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent_port}")
    monkeypatch.setattr(hub, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(hub.HubUnreachableError, match=r"cannot be reached \(no answer within 0.5 s\)") as caught:
        hub.require_hub("Model 'm'")
    assert caught.value.reason == "no answer within 0.5 s"


def test_a_client_that_exceeds_its_own_deadline_is_not_waited_for(
    online: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_is_over, client_came_back = threading.Event(), threading.Event()

    class Patient:
        def head(self, url: str, timeout: float) -> None:
            test_is_over.wait(60)
            client_came_back.set()

    monkeypatch.setattr(hub, "get_session", Patient)
    monkeypatch.setattr(hub, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(ConnectionError, match=r"no answer within 0.2 s"):
        hub.require_hub("Model 'm'")
    assert not client_came_back.is_set()
    test_is_over.set()


def test_any_answer_will_do(online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Session:
        def head(self, url: str, timeout: float) -> int:
            asked.append((url, timeout))
            return 503

    monkeypatch.setattr(hub, "get_session", Session)
    hub.require_hub("Model 'm'")
    assert asked == [(constants.ENDPOINT, hub.TIMEOUT_SECONDS)]


def test_offline_nobody_is_asked_and_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "get_session", lambda: None)
    with pytest.raises(ConnectionError, match=r"Dataset 'no-such/data' is neither.*Unset HF_HUB_OFFLINE.*folder"):
        load_splits(source_of("no-such/data"))
    with pytest.raises(ConnectionError, match=r"Model 'no-such/model' is neither a local folder nor wholly in"):
        load_classifier("no-such/model", ["a", "b"])


def test_local_folders_ask_nobody(tmp_path: Path, online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "get_session", lambda: None)
    model, processor = load_classifier("tiny", ["a", "b"])
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded, _ = load_classifier(str(tmp_path), ["a", "b"])
    assert loaded.config.id2label == {0: "a", 1: "b"}
    assert len(load_splits(source_of("digits")).test) == 450


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("few_digit", "few_digits"),
        ("FEW_DIGITS", "few_digits"),
        ("./plan", "./plain"),
        ("plan", "plain"),
        ("runs/nothing", None),
        ("there/x", None),
        ("convnext_tinyy", "convnext_tiny"),
        ("resnet50.a1_in1", "resnet50.a1_in1k"),
    ],
)
def test_typing_errors_ask_nobody(
    name: str, meant: str | None, tmp_path: Path, online: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "get_session", lambda: None)
    monkeypatch.chdir(tmp_path)
    for folder in ("plain", "runs/plain", "there"):
        (tmp_path / folder).mkdir(parents=True)
    is_dataset, is_model = meant == "few_digits", meant in ("convnext_tiny", "tiny", "resnet50.a1_in1k")
    loaders = [] if is_model else [source_of]
    loaders += [] if is_dataset else [lambda name: load_classifier(name, ["a", "b"])]
    for load in loaders:
        with pytest.raises(ArgumentError) as caught:
            load(name)
        assert caught.value.value == name and (meant is None or f"{meant!r}?" in str(caught.value))


def test_other_names_are_looked_for_on_the_hub(
    closed_port: int, online: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port}")
    for name in ("mnist", "beans", "alice/photos"):
        with pytest.raises(hub.HubUnreachableError):
            load_splits(source_of(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "reason"),
    [("closed_port", r"(?!no answer).*"), ("silent_port", f"no answer within {hub.TIMEOUT_SECONDS:g} s")],
)
def test_a_fresh_process_reports_it(server: str, reason: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """As a user meets it: nothing patched, the Hub's own clients, which alone would retry for minutes."""
    port = request.getfixturevalue(server)
    code = "from macs_hf.data.sources import load_splits, source_of\n"
    code += "try: load_splits(source_of('cifar10'))\nexcept ConnectionError as error: print(error)"
    environment = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(tmp_path)}
    environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    start = f"Dataset 'uoft-cs/cifar10' has to come from http://127.0.0.1:{port}, which cannot be reached "
    assert re.match(re.escape(start) + rf"\({reason}\)", done.stdout.strip().splitlines()[-1])
