"""The loopback Hub over plain HTTP: ranges, uploads, faults."""

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub.server import HubServer


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path / "hub") as server:
        yield server


def ask(hub: HubServer, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict, bytes]:
    """One plain HTTP request: status, headers, body."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.server_port, timeout=10)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.headers), answer.read()


def put_object(hub: HubServer, content: bytes) -> str:
    """A public model with one file in storage; the path of the file's storage link."""
    repo = hub.store.create("model", "alice/raw")
    oid = hub.store.add_object(repo, [content])
    files = {"data.bin": hub.store.lfs_file(repo, oid), "data.txt": hub.store.add_bytes(repo, content)}
    hub.store.commit(repo, "main", title="data", add=files)
    return f"/objects/{hub.key}/model/alice/raw/{oid}"


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [(None, 200, b"0123456789"), ("bytes=4-", 206, b"456789"), ("bytes=-3", 206, b"789"), ("bytes=10-", 416, None)],
)
def test_ranges(hub: HubServer, asked: str | None, status: int, expected: bytes | None) -> None:
    for path in (put_object(hub, b"0123456789"), "/alice/raw/resolve/main/data.txt"):
        got, _, body = ask(hub, "GET", path, **({"Range": asked} if asked else {}))
        assert got == status and expected in (None, body)


def test_uploads_are_checked_and_connections_stay_in_step(hub: HubServer) -> None:
    put_object(hub, b"0123456789")
    oid = hashlib.sha256(b"good").hexdigest()
    path = f"/objects/{hub.key}/model/alice/raw/{oid}"
    connection = http.client.HTTPConnection("127.0.0.1", hub.server_port, timeout=10)

    def send(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    assert send("PUT", path, b"evil")[0] == 400
    assert send("POST", path)[0] == 404
    assert send("PUT", path.replace(hub.key, "0"), b"good" * 1000)[0] == 403  # answered with the body still unread
    assert send("POST", "/api/models/alice/raw/commit/main", b"{}" * 1000)[0] == 401
    assert send("PUT", path, iter([b"go", b"od"]))[0] == 200  # chunked
    assert send("GET", path) == (200, b"good")
    assert send("GET", "/api/no-such-thing")[0] == 404
    assert [r.route for r in hub.requests if r.status == 404] == ["verify", None]


def test_faults_come_in_turn_and_end(hub: HubServer) -> None:
    hub.inject("whoami", status=500, skip=1, times=2)
    hub.inject("whoami", status=502)
    assert [ask(hub, "GET", "/api/whoami-v2")[0] for _ in range(5)] == [401, 500, 500, 502, 401]
    hub.inject("whoami", cut="answer")
    with pytest.raises(ConnectionError):
        ask(hub, "GET", "/api/whoami-v2")
