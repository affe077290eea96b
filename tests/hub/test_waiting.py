"""How long the Hub is waited for: a line after a while, and an end, over all requests in a row that failed."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from huggingface_hub import HfApi, constants, get_session, set_client_factory
from huggingface_hub.utils import httpx
from loopback_hub.server import HubServer

from macs_hf import hub as limits
from macs_hf.hub import HubClient, HubSilentError, limit_waiting, reason_of


WHOAMI = "/api/whoami-v2"
FILE = "/alice/model/resolve/main/model.safetensors"
Drip = Callable[[bytes], str]


@pytest.fixture
def patient(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    hooks = get_session().event_hooks
    set_client_factory(lambda: httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=None))
    limit_waiting()
    HubClient.trouble_since = None
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between repetitions
    yield hub
    HubClient.trouble_since = None


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SAY_AFTER", 0.02)
    monkeypatch.setattr(limits, "GIVE_UP_AFTER", 1.0)


@pytest.fixture
def drip(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drip]:
    """Starts a Hub that answers with a head at once, and then with a byte now and again: each comes in time."""
    is_over = threading.Event()

    def serve(server: socket.socket, head: bytes) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head)
            while not is_over.wait(0.05):
                connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:

        def start(head: bytes) -> str:
            threading.Thread(target=serve, args=[server, head], daemon=True).start()
            monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
            return constants.ENDPOINT

        yield start
        is_over.set()


def test_limits() -> None:
    assert limits.SAY_AFTER == 5 and limits.GIVE_UP_AFTER < 60


def test_a_silent_hub_is_given_up_with_a_line_before(
    patient: HubServer, short: None, caplog: pytest.LogCaptureFixture
) -> None:
    patient.inject("whoami", cut="hang", times=9)
    with pytest.raises(HubSilentError) as caught, caplog.at_level(logging.WARNING):
        HfApi().whoami()
    assert WHOAMI in str(caught.value) and reason_of(caught.value) == str(caught.value)
    assert any(WHOAMI in line for line in caplog.messages)
    assert limits._time_left(limits.time.monotonic()) < 0.2  # what is tried next is not waited for as long again


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99999\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "path", "streams"),
    [(b"", WHOAMI, False), (HEAD, WHOAMI, False), (b"", FILE, True), (HEAD, FILE, True), (HEAD, FILE, False)],
)
def test_a_dripping_hub_is_given_up(
    head: bytes,
    path: str,
    streams: bool,
    patient: HubServer,
    drip: Drip,
    short: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = drip(head) + path
    with pytest.raises(HubSilentError):
        if streams:
            with get_session().stream("GET", address) as response:
                list(response.iter_bytes())
        else:
            get_session().get(address)
    is_transfer = (head, path) == (HEAD, FILE)
    assert (f"Waiting for {constants.ENDPOINT} to answer GET {path}" in caplog.text) or is_transfer


def test_an_upload_may_take_long_as_long_as_it_moves(patient: HubServer, drip: Drip, short: None) -> None:
    test_is_over = threading.Event()

    def pieces() -> Iterator[bytes]:
        for _ in range(16):
            test_is_over.wait(0.1)
            yield b"x" * 10_000

    response = get_session().put(f"{patient.endpoint}/nowhere", content=pieces())  # of 1.6 s in all
    assert response.status_code == 404
    with pytest.raises(HubSilentError):
        get_session().put(drip(b""), content=b"x" * 10_000)


def test_failures_one_after_the_other_have_one_limit_and_a_good_answer_ends_it(
    patient: HubServer, caplog: pytest.LogCaptureFixture
) -> None:
    patient.inject("whoami", status=503, times=2)
    client = get_session()
    assert client.get(patient.endpoint + WHOAMI).status_code == 503
    assert "HTTP 503" in caplog.text
    HubClient.trouble_since -= 30
    assert limits._time_left(limits.time.monotonic()) < limits.GIVE_UP_AFTER - 29
    HubClient.trouble_since -= limits.GIVE_UP_AFTER - 30
    with pytest.raises(HubSilentError, match="HTTP 503"):
        client.get(patient.endpoint + WHOAMI)
    client.get(f"{patient.endpoint}/api/models")
    assert limits._time_left(limits.time.monotonic()) == limits.GIVE_UP_AFTER


def test_shorter_limits_stay_and_waiting_is_limited_once(patient: HubServer) -> None:
    client = get_session()
    assert isinstance(client, HubClient)
    limit_waiting()
    assert get_session() is client
    patient.inject("whoami", cut="hang")
    with pytest.raises(httpx.ReadTimeout):
        client.get(patient.endpoint + WHOAMI, timeout=0.05)


@pytest.mark.parametrize(("pause", "is_given_up"), [(3, False), (30, False), (300, True)])
def test_a_pause_that_the_hub_asks_for(
    pause: int, is_given_up: bool, patient: HubServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What it says is repeated."""
    patient.inject("whoami", status=429, retry_after=pause, times=9)
    if is_given_up:
        with pytest.raises(HubSilentError, match=f"429.*'injected fault'.* {pause} s"):
            get_session().get(patient.endpoint + WHOAMI)
    else:
        response = get_session().get(patient.endpoint + WHOAMI)
        assert (f"{pause} s" in caplog.text) == (pause > limits.SAY_AFTER)
        with pytest.raises(httpx.HTTPStatusError) as caught:
            response.raise_for_status()
        HubClient.trouble_since -= 44  # pauses in a row have one limit
        with pytest.raises(HubSilentError):
            get_session().get(patient.endpoint + WHOAMI)
        assert "'injected fault'" in reason_of(caught.value) and f"{pause} s" in reason_of(caught.value)


def test_pauses_are_read_as_the_client_reads_them() -> None:
    def pause(**headers: str) -> float | None:
        return limits._asked_pause(httpx.Response(429, headers=headers))

    assert pause(ratelimit='"api";r=0;t=55') == 55
    assert pause(**{"Retry-After": "7"}) == 7
    assert pause(**{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) is None


def test_a_signed_address_is_not_named() -> None:
    asked = httpx.URL(constants.ENDPOINT + FILE)
    assert limits._name_of(asked) == FILE
    assert "signed" not in limits._name_of(httpx.URL("https://storage.example/signed/5c45f191"))
