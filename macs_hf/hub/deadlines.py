"""How long to wait for the Hub: after five seconds a line says for what, and within a minute it is given up.

The Hub's client has no deadline for most requests, and repeats others for minutes. `limit_waiting` gives its HTTP
client, which transformers and datasets use too, a limit over all requests in a row that get no good answer. It also
keeps what went wrong, which those libraries do not pass on.
"""

import logging
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from huggingface_hub import constants
from huggingface_hub.utils import httpx, parse_ratelimit_headers


logger = logging.getLogger(__name__)

SAY_AFTER = 5.0
GIVE_UP_AFTER = 45.0
# An answer that is an error came at once: repeating it for longer helps nobody.
ERRORS_FOR = 10.0
# Failures so far apart have nothing to do with each other.
FORGET_AFTER = 20.0
OUT_OF_ORDER = (408, 500, 502, 503, 504)
TOO_MANY = 429


class HubSilentError(httpx.TransportError, ConnectionError):
    """The Hub gave no good answer for so long that it was given up. Clients do not repeat such a request."""


class Refusal(NamedTuple):
    """A request that the Hub did not do, its HTTP status (`None`: the connection was cut)."""

    path: str
    status: int | None


class Deadline:
    """How long the Hub has given no good answer, over all requests and clients of a process."""

    def __init__(self) -> None:
        self.refusals: deque[Refusal] = deque(maxlen=100)
        self._storage: set[str] = set()  # hosts that the Hub sends its clients to
        self._since: float | None = None  # when that began
        self._latest = 0.0  # when it was last seen
        self._failures = 0
        self._pause = 0.0  # that the Hub asked for, which is no sign that the trouble is over
        self._reason = ""
        self._said = False

    def left(self, what: str) -> float:
        """Seconds that the next request may take."""
        now = time.monotonic()
        if self._since is None or now - self._latest > FORGET_AFTER + self._pause:
            self.recover()
            return GIVE_UP_AFTER
        if now - self._since > 0.95 * GIVE_UP_AFTER:
            raise self._given_up(what)
        return GIVE_UP_AFTER - (now - self._since)

    def fail(self, since: float, reason: str, at_most: float, what: str) -> None:
        """Take note of a bad answer, or of none; give up if there has been no good one for `at_most` seconds."""
        self._since = since if self._since is None else self._since
        self._latest, self._reason = time.monotonic(), reason
        self._failures += 1
        if self._latest - self._since > 0.95 * at_most:
            raise self._given_up(what)

    def expect_repetition(self, pause: float | None, at_most: float, what: str) -> None:
        """
        The client is about to repeat a request: say so if that takes long, give up if it takes too long.

        Args:
            pause (`float`, *optional*): Seconds that the Hub asks for. Without, clients wait for 1, 2, 4, 8, 8 s.
            at_most (`float`): Seconds to go on for.
            what (`str`): The request.
        """
        so_far, self._pause = self._latest - self._since, pause or 0.0
        if pause is not None and so_far + pause > at_most:
            raise HubSilentError(f"{constants.ENDPOINT} {self._reason} and asks to wait for {pause:g} s ({what})")
        if so_far + (min(8, 2 ** (self._failures - 1)) if pause is None else pause) > SAY_AFTER:
            self.say(f"{constants.ENDPOINT}, which {self._reason} ({what})", at_most)

    def concerns(self, url: httpx.URL) -> bool:
        """Whether it is the Hub's or its storage's. Libraries also ask other hosts, and do without their answer."""
        return str(url).startswith(constants.ENDPOINT) or url.host in self._storage

    def note(self, request: httpx.Request, response: httpx.Response | None) -> None:
        """Keep what went wrong, and where the Hub sends its clients to."""
        if not self.concerns(request.url):
            return
        if response is None or _is_refusal(response):
            self.refusals.append(Refusal(request.url.path, None if response is None else response.status_code))
        elif "Location" in response.headers:
            self._storage.add(httpx.URL(response.headers["Location"]).host)

    def recover(self) -> None:
        self._since, self._said, self._failures, self._pause = None, False, 0, 0.0

    def say(self, waiting_for: str, at_most: float) -> None:
        if not self._said:
            self._said = True
            logger.warning(f"Waiting for {waiting_for}; giving up after {at_most:g} s.")

    def _given_up(self, what: str) -> HubSilentError:
        return HubSilentError(f"{constants.ENDPOINT} {self._reason} for {self._latest - self._since:.0f} s ({what})")


class DeadlineClient(httpx.Client):
    """A client whose requests take no longer than a [`Deadline`] allows."""

    def __init__(self, deadline: Deadline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deadline = deadline

    def send(self, request: httpx.Request, **kwargs: Any) -> httpx.Response:
        start, what = time.monotonic(), f"{request.method} {_shown(request.url)}"
        left = self.deadline.left(what)
        asked = request.extensions.get("timeout", {})
        limits = {kind: asked.get(kind) for kind in ("connect", "read", "write", "pool")}
        request.extensions["timeout"] = {kind: left if old is None else min(old, left) for kind, old in limits.items()}
        waiting_for = f"{constants.ENDPOINT} to answer {what}"
        timer = threading.Timer(SAY_AFTER, self.deadline.say, args=[waiting_for, GIVE_UP_AFTER])
        timer.daemon = True
        timer.start()
        try:
            response = super().send(request, **kwargs)
        except httpx.TimeoutException:
            self.deadline.fail(start, "has not answered", GIVE_UP_AFTER, what)
            raise
        except httpx.TransportError as error:
            self.deadline.note(request, None)
            if self.deadline.concerns(request.url):
                reason = "cannot be reached" if isinstance(error, httpx.ConnectError) else "cuts the connection"
                self.deadline.fail(time.monotonic(), reason, GIVE_UP_AFTER, what)
                self.deadline.expect_repetition(None, GIVE_UP_AFTER, what)
            raise
        finally:
            timer.cancel()
        self.deadline.note(request, response)
        if response.status_code in (*OUT_OF_ORDER, TOO_MANY):
            self._take_failure(response, what)
        else:
            self.deadline.recover()
        return response

    def _take_failure(self, response: httpx.Response, what: str) -> None:
        reason, at_most = f"answers with HTTP {response.status_code}", ERRORS_FOR
        if response.status_code == TOO_MANY:
            reason, at_most = f"{reason} (too many requests)", GIVE_UP_AFTER
        self.deadline.fail(time.monotonic(), reason, at_most, what)
        self.deadline.expect_repetition(_pause(response), at_most, what)


def _shown(url: httpx.URL) -> str:
    """Addresses in the Hub's storage may be signed."""
    return url.path if str(url).startswith(constants.ENDPOINT) else "a file in its storage"


def _pause(response: httpx.Response) -> float | None:
    """Seconds that the Hub asks its clients to wait for, which they do."""
    limit = parse_ratelimit_headers(response.headers)
    if response.status_code == TOO_MANY and limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds
    asked = response.headers.get("Retry-After", "").strip()
    return float(asked) if asked.isdecimal() else None


def _is_refusal(response: httpx.Response) -> bool:
    """An error other than that there is no such file, which clients find out by asking for it."""
    return response.is_error and response.headers.get("X-Error-Code") != "EntryNotFound"
