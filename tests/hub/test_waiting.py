"""How long the Hub is waited for: a line after a while, and an end, over all requests in a row without an answer."""

import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from huggingface_hub import HfApi, constants, get_session, set_client_factory
from huggingface_hub.utils import httpx
from loopback_hub.server import HubServer

from macs_hf import hub as limits
from macs_hf.hub import HubClient, HubSilentError, limit_waiting, reason_of


WHOAMI = "/api/whoami-v2"


@pytest.fixture
def patient(hub: HubServer) -> Iterator[HubServer]:
    hooks = get_session().event_hooks
    set_client_factory(lambda: httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=None))
    limit_waiting()
    yield hub


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SAY_AFTER", 0.1)
    monkeypatch.setattr(limits, "GIVE_UP_AFTER", 0.5)


def test_limits() -> None:
    assert limits.SAY_AFTER == 5 and limits.GIVE_UP_AFTER < 60


def test_a_silent_hub_is_given_up_with_a_line_before(
    patient: HubServer, short: None, caplog: pytest.LogCaptureFixture
) -> None:
    patient.inject("whoami", cut="hang", times=9)
    with pytest.raises(HubSilentError) as caught, caplog.at_level(logging.WARNING):
        HfApi().whoami()
    assert WHOAMI in str(caught.value) and reason_of(caught.value) == str(caught.value)
    assert isinstance(caught.value, ConnectionError) and isinstance(caught.value, httpx.HTTPError)
    assert len([line for line in caplog.messages if WHOAMI in line]) == 1
    start = time.monotonic()
    with pytest.raises(HubSilentError):  # what is tried next is not waited for as long again
        HfApi().whoami()
    assert time.monotonic() - start < 0.4
    get_session().get(f"{patient.endpoint}/api/models")  # a good answer ends it
    assert get_session()._failing_since is None


def test_a_dripping_hub_is_given_up(patient: HubServer, monkeypatch: pytest.MonkeyPatch, short: None) -> None:
    """Each byte comes in time, the answer never does."""
    is_over = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            while not is_over.wait(0.1):
                connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=drip, args=[server], daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(HubSilentError):
            get_session().get(constants.ENDPOINT + WHOAMI)
        is_over.set()


def test_errors_one_after_the_other_are_given_up(
    patient: HubServer, short: None, caplog: pytest.LogCaptureFixture
) -> None:
    patient.inject("whoami", status=503, times=9)
    client = get_session()
    assert client.get(patient.endpoint + WHOAMI).status_code == 503
    assert "HTTP 503" in caplog.text
    time.sleep(0.6)
    with pytest.raises(HubSilentError, match="HTTP 503"):
        client.get(patient.endpoint + WHOAMI)


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
    patient.inject("whoami", status=429, retry_after=pause)
    if is_given_up:
        with pytest.raises(HubSilentError, match=f"429.* {pause} s"):
            get_session().get(patient.endpoint + WHOAMI)
    else:
        assert get_session().get(patient.endpoint + WHOAMI).status_code == 429
        assert (f"{pause} s" in caplog.text) == (pause > limits.SAY_AFTER)


def test_pauses_are_read_as_the_client_reads_them() -> None:
    def pause(**headers: str) -> float | None:
        return limits._pause(httpx.Response(429, headers=headers))

    assert pause(ratelimit='"api";r=0;t=55') == 55
    assert pause(**{"Retry-After": "7"}) == 7
    assert pause(**{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) is None


def test_a_signed_address_is_not_named() -> None:
    asked = httpx.URL(f"{constants.ENDPOINT}/alice/model/resolve/main/model.safetensors")
    assert limits._name_of(asked) == "/alice/model/resolve/main/model.safetensors"
    assert "signed" not in limits._name_of(httpx.URL("https://storage.example/signed/5c45f191"))
