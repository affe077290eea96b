"""How long to wait for the Hub: after five seconds a line says for what, and within a minute it is given up.

The Hub's client has no deadline for most requests, and repeats others for minutes. [`limit_waiting`] gives its HTTP
client, which transformers and datasets use too, a limit over all requests in a row that get no good answer.
"""

import logging
import threading
import time
from typing import Any

from huggingface_hub import constants, get_session, set_client_factory
from huggingface_hub.utils import httpx


logger = logging.getLogger(__name__)

SAY_AFTER = 5.0
GIVE_UP_AFTER = 45.0
# An answer that is an error came at once: repeating it for longer helps nobody.
ERRORS_FOR = 10.0
# Failures so far apart have nothing to do with each other.
FORGET_AFTER = 20.0
OUT_OF_ORDER = (408, 500, 502, 503, 504)


class HubSilentError(httpx.TransportError, ConnectionError):
    """The Hub gave no good answer for so long that it was given up. Clients do not repeat such a request."""


class Deadline:
    """How long the Hub has given no good answer, over all requests and clients of a process."""

    def __init__(self) -> None:
        self._since: float | None = None  # when that began
        self._latest = 0.0  # when it was last seen
        self._reason = ""
        self._said = False

    def left(self, what: str) -> float:
        """Seconds that the next request may take."""
        now = time.monotonic()
        if self._since is None or now - self._latest > FORGET_AFTER:
            self.recover()
            return GIVE_UP_AFTER
        if now - self._since > 0.95 * GIVE_UP_AFTER:
            raise self._given_up(what)
        return GIVE_UP_AFTER - (now - self._since)

    def fail(self, since: float, reason: str, at_most: float, what: str) -> None:
        """Take note of a bad answer, or of none; give up if there has been no good one for `at_most` seconds."""
        self._since = since if self._since is None else self._since
        self._latest, self._reason = time.monotonic(), reason
        if self._latest - self._since > 0.95 * at_most:
            raise self._given_up(what)

    def recover(self) -> None:
        self._since, self._said = None, False

    def say(self, what: str) -> None:
        if not self._said:
            self._said = True
            logger.warning(f"Waiting for {constants.ENDPOINT} to answer {what}; giving up after {GIVE_UP_AFTER:g} s.")

    def _given_up(self, what: str) -> HubSilentError:
        return HubSilentError(f"{constants.ENDPOINT} {self._reason} for {self._latest - self._since:.0f} s ({what})")


class DeadlineClient(httpx.Client):
    """A client whose requests take no longer than a [`Deadline`] allows."""

    def __init__(self, deadline: Deadline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deadline = deadline

    def send(self, request: httpx.Request, **kwargs: Any) -> httpx.Response:
        start, what = time.monotonic(), f"{request.method} {request.url.path}"
        left = self.deadline.left(what)
        asked = request.extensions.get("timeout", {})
        limits = {kind: asked.get(kind) for kind in ("connect", "read", "write", "pool")}
        request.extensions["timeout"] = {kind: left if old is None else min(old, left) for kind, old in limits.items()}
        timer = threading.Timer(SAY_AFTER, self.deadline.say, args=[what])
        timer.daemon = True
        timer.start()
        try:
            response = super().send(request, **kwargs)
        except httpx.TimeoutException:
            self.deadline.fail(start, "has not answered", GIVE_UP_AFTER, what)
            raise
        finally:
            timer.cancel()
        if response.status_code in OUT_OF_ORDER:
            self.deadline.fail(time.monotonic(), f"answers with HTTP {response.status_code}", ERRORS_FOR, what)
        else:
            self.deadline.recover()
        return response


def limit_waiting() -> None:
    """Let no request of this process to the Hub wait for more than a minute, or for 5 s without a line about it."""
    present = get_session()
    if isinstance(present, DeadlineClient):
        return
    hooks, deadline = present.event_hooks, Deadline()
    set_client_factory(lambda: DeadlineClient(deadline, event_hooks=hooks, follow_redirects=True, timeout=None))
