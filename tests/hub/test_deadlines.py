"""How long the Hub is waited for: a line after a while, and an end, over all requests in a row without an answer."""

import logging
from collections.abc import Iterator

import pytest
from huggingface_hub import HfApi, constants, get_session, set_client_factory
from huggingface_hub.utils import httpx
from loopback_hub.server import HubServer

from macs_hf.hub import deadlines
from macs_hf.hub.client import limit_waiting
from macs_hf.hub.deadlines import Deadline, DeadlineClient, HubSilentError
from macs_hf.hub.failure_reasons import reason_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(deadlines, "time", made)
    return made


def test_time_without_an_answer_adds_up_over_requests(clock: Clock) -> None:
    waiting = Deadline()
    assert waiting.left("GET /a") == deadlines.GIVE_UP_AFTER
    start = clock.now
    clock.now += 10
    waiting.fail(start, "has not answered", deadlines.GIVE_UP_AFTER, "GET /a")
    clock.now += 2
    assert waiting.left("GET /b") == deadlines.GIVE_UP_AFTER - 12
    clock.now += deadlines.GIVE_UP_AFTER - 12
    with pytest.raises(HubSilentError, match=r"has not answered for 45 s \(GET /b\)$"):
        waiting.fail(start, "has not answered", deadlines.GIVE_UP_AFTER, "GET /b")
    with pytest.raises(HubSilentError):
        waiting.left("GET /c")


def test_an_answer_ends_the_trouble_and_so_does_time(clock: Clock) -> None:
    waiting = Deadline()
    waiting.fail(clock.now - 40, "has not answered", deadlines.GIVE_UP_AFTER, "GET /a")
    assert waiting.left("GET /a") == pytest.approx(5)
    waiting.recover()
    assert waiting.left("GET /a") == deadlines.GIVE_UP_AFTER
    waiting.fail(clock.now - 44, "has not answered", 1000, "GET /a")
    with pytest.raises(HubSilentError):
        waiting.left("GET /a")
    clock.now += deadlines.FORGET_AFTER + 1  # asking in vain does not prolong it
    assert waiting.left("GET /a") == deadlines.GIVE_UP_AFTER


def test_errors_are_repeated_for_a_shorter_time(clock: Clock) -> None:
    waiting = Deadline()
    waiting.fail(clock.now, "answers with HTTP 500", deadlines.ERRORS_FOR, "GET /a")
    clock.now += 7
    waiting.fail(clock.now, "answers with HTTP 500", deadlines.ERRORS_FOR, "GET /a")
    clock.now += 8
    with pytest.raises(HubSilentError, match="answers with HTTP 500 for 15 s") as caught:
        waiting.fail(clock.now, "answers with HTTP 500", deadlines.ERRORS_FOR, "GET /a")
    assert reason_of(caught.value) == str(caught.value)
    assert isinstance(caught.value, ConnectionError) and isinstance(caught.value, httpx.HTTPError)


def test_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Deadline()
    with caplog.at_level(logging.WARNING):
        waiting.say("the Hub to answer GET /a", 45)
        waiting.say("the Hub to answer GET /b", 45)
    assert [record.message for record in caplog.records] == [
        "Waiting for the Hub to answer GET /a; giving up after 45 s."
    ]
    assert deadlines.SAY_AFTER == 5 and deadlines.GIVE_UP_AFTER < 60


def test_repetitions_are_said_before_five_seconds_are_over(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    waiting = Deadline()
    said = []
    for pause in (1, 2, 4, 8):  # as the Hub's client waits
        waiting.fail(clock.now, "answers with HTTP 429", 45, "GET /a")
        waiting.expect_repetition(None, 45, "GET /a")
        said.append(len(caplog.records))
        clock.now += pause
    assert said == [0, 0, 1, 1]  # after 3 s: the next pause would end after 7 s
    assert caplog.messages == [
        f"Waiting for {constants.ENDPOINT}, which answers with HTTP 429 (GET /a); giving up after 45 s."
    ]


@pytest.mark.parametrize(("pause", "said"), [(4, 0), (30, 1)])
def test_a_pause_that_the_hub_asks_for_is_said_at_once(
    pause: int, said: int, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Deadline()
    waiting.fail(clock.now, "answers with HTTP 429", 45, "GET /a")
    waiting.expect_repetition(pause, 45, "GET /a")
    assert len(caplog.records) == said
    clock.now += 21  # a second more than the time after which failures are forgotten, if the Hub did not ask for it
    assert waiting.left("GET /a") == 24
    waiting.fail(clock.now, "answers with HTTP 429", 45, "GET /a")
    with pytest.raises(HubSilentError, match=r"answers with HTTP 429 and asks to wait for 26 s \(GET /a\)$"):
        waiting.expect_repetition(26, 45, "GET /a")


@pytest.fixture
def patient(hub: HubServer) -> Iterator[HubServer]:
    present = get_session()
    hooks = present.event_hooks
    set_client_factory(lambda: httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=None))
    limit_waiting()
    yield hub
    limit_waiting()
    get_session().deadline.recover()


def test_a_request_without_a_deadline_gets_one(
    patient: HubServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(get_session(), DeadlineClient)
    assert HfApi().whoami()["name"] == "alice"
    # Only for a request that is never answered: a busy machine may take as long for a good answer.
    monkeypatch.setattr(deadlines, "SAY_AFTER", 0.1)
    monkeypatch.setattr(deadlines, "GIVE_UP_AFTER", 0.5)
    patient.inject("whoami", cut="hang")
    with pytest.raises(HubSilentError, match=r"has not answered for \d s \(GET /api/whoami-v2\)"):
        HfApi().whoami()
    assert "to answer GET /api/whoami-v2; giving up after 0.5 s." in caplog.text


def test_shorter_deadlines_stay_and_waiting_is_limited_once(patient: HubServer) -> None:
    client = get_session()
    limit_waiting()
    assert get_session() is client
    patient.inject("whoami", cut="hang")
    with pytest.raises(httpx.ReadTimeout):
        client.get(f"{patient.endpoint}/api/whoami-v2", timeout=0.05)
    client.get(f"{patient.endpoint}/api/models")
    assert client.deadline.left("GET /") == deadlines.GIVE_UP_AFTER


def test_a_pause_of_minutes_is_not_waited_for(patient: HubServer) -> None:
    patient.inject("whoami", status=429, retry_after=300)
    with pytest.raises(HubSilentError, match=r"HTTP 429 \(too many requests\) and asks to wait for 300 s"):
        get_session().get(f"{patient.endpoint}/api/whoami-v2")


def test_pauses_are_read_as_the_client_reads_them() -> None:
    def answer(status: int, **headers: str) -> httpx.Response:
        return httpx.Response(status, headers=headers)

    limit = '"api";r=0;t=55'
    assert deadlines._pause(answer(429, ratelimit=limit)) == 55
    assert deadlines._pause(answer(503, ratelimit=limit)) is None
    assert deadlines._pause(answer(503, **{"Retry-After": "7"})) == 7
    assert deadlines._pause(answer(429, **{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})) is None


def test_a_signed_address_is_not_named() -> None:
    asked = httpx.URL(f"{constants.ENDPOINT}/alice/model/resolve/main/model.safetensors")
    assert deadlines._shown(asked) == "/alice/model/resolve/main/model.safetensors"
    assert deadlines._shown(httpx.URL("https://storage.example/signed/5c45f191")) == "a file in its storage"
