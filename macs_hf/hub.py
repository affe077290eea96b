"""The Hugging Face Hub: what is local and what is not, whether it can be reached, and reasons in plain words.

Nothing waits for long: after five seconds a line says for what, and within a minute it is given up.
"""

import difflib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from huggingface_hub import HfApi, constants, get_token, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_session, httpx, parse_ratelimit_headers, validate_repo_id

from . import __version__
from .exceptions import ArgumentError


logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0  # to find out whether there is a Hub
SAY_AFTER = 5.0
GIVE_UP_AFTER = 45.0  # requests in a row; a file, if nothing moves for so long
LEAST_BYTES = 1000  # of a file: less in `GIVE_UP_AFTER` is nothing
TIMEOUTS = ("connect", "read", "write", "pool")
OUT_OF_ORDER = (408, 500, 502, 503, 504)
TOO_MANY = 429
SILENT, CUT = "has not answered", "cuts the connection"
FILE = "/resolve/"  # in the path of a file: /owner/name/resolve/branch/folder/file
WRONG_TOKEN = (
    "the Hub does not know your token. Get one at https://huggingface.co/settings/tokens, then `hf auth login` or set "
    "HF_TOKEN (unset it if it is an old one)."
)


# ---- What is local ----


def is_local(name_or_path: str | os.PathLike) -> bool:
    return Path(name_or_path).exists()


def is_hub_id(name: str) -> bool:
    """Whether a name means a repository: it has an owner. A name without one is that of something local."""
    if "/" not in name or is_local(name):
        return False
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def check_place(argument: str, name: str, known: Iterable[str] = ()) -> None:
    """
    Refuse a name that looks like that of a folder which is not there, or nearly like a known one, without the Hub.

    Args:
        argument (`str`): Whose value it is.
        name (`str`): The name.
        known (`Iterable[str]`, *optional*): Names without an owner that mean something.
    """
    known, parent = list(known), os.path.dirname(name.rstrip("/"))
    if name in known or os.path.isdir(name):
        return
    around = sorted(place.name for place in Path(parent).iterdir()) if os.path.isdir(parent or ".") else []
    beside = [os.path.join(parent, place) for place in around if Path(parent, place).is_dir()]
    there = {place.lower(): place for place in (beside if parent else known + beside)}
    similar = difflib.get_close_matches(name.rstrip("/").lower(), there, n=1, cutoff=0.8)
    meant = f" Did you mean {there[similar[0]]!r}?" if similar else ""
    if name.startswith((".", "/", "~", "runs/")) or (parent and os.path.isdir(parent)) or is_local(name):
        raise ArgumentError(
            argument, f"is no folder.{meant or ' Give the path of one, or the id of a repository.'}", name
        )
    if meant and not parent:
        raise ArgumentError(argument, f"is neither a known name nor a folder.{meant}", name)


def hub_api(token: str | bool | None = None) -> HfApi:
    return HfApi(token=token, library_name="macs_hf", library_version=__version__)


# ---- Whether the Hub can be reached ----


class HubUnreachableError(ConnectionError):
    """The Hub did not answer; `reason` says why, and the message also what was needed, and what to do."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def require_hub(what: str) -> None:
    """
    Raise a [`HubUnreachableError`] if the Hub does not answer within seconds; its own clients take minutes to give up.

    Offline mode (`HF_HUB_OFFLINE=1`) is left to them: they then look into the cache only, and fail at once.
    """
    if constants.HF_HUB_OFFLINE:
        return
    try:
        _within(TIMEOUT_SECONDS, lambda: get_session().head(constants.ENDPOINT, timeout=TIMEOUT_SECONDS), "at all")
    except Exception as error:
        is_silence = isinstance(error, httpx.TimeoutException)
        reason = f"no answer within {TIMEOUT_SECONDS:g} s" if is_silence else str(error)
        raise HubUnreachableError(
            f"{what} has to come from {constants.ENDPOINT}, which cannot be reached ({reason}). Connect to the "
            "network; or set HF_HUB_OFFLINE=1 if it was downloaded before; or give the path of a local folder.",
            reason=reason,
        ) from None


def require_repo(what: str, repo_id: str, repo_type: str = "model", revision: str | None = None) -> None:
    """
    Raise a plain error if a repository cannot be read: missing or private, gated, unknown revision, wrong token.

    Other failures are left to the clients, which may have the files in their cache.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError:
        raise FileNotFoundError(f"{what} is neither a local folder nor the id of a Hub {repo_type}.") from None
    require_hub(what)
    if constants.HF_HUB_OFFLINE:
        return
    page = f"{constants.ENDPOINT}/{'datasets/' if repo_type == 'dataset' else ''}{repo_id}"
    api = hub_api()
    try:
        api.auth_check(repo_id, repo_type=repo_type)
        if revision is not None:
            api.repo_info(repo_id, repo_type=repo_type, revision=revision, timeout=TIMEOUT_SECONDS)
    except GatedRepoError:
        who = "your token's account has" if get_token() else "you are not logged in and have"
        raise PermissionError(
            f"{what} is gated, and {who} no access yet. Accept its terms at {page}, then log in with `hf auth login` "
            "or set HF_TOKEN."
        ) from None
    except RevisionNotFoundError:
        raise ValueError(f"{what} has no branch, tag or commit {revision!r}: see {page}/tree/main.") from None
    except RepositoryNotFoundError:
        reader = "your token may not read it" if get_token() else "you are not logged in (`hf auth login` or HF_TOKEN)"
        raise FileNotFoundError(
            f"{what} is not at {page}: the name is wrong, or it is private and {reader}. There "
            "is no local folder of that name either."
        ) from None
    except HfHubHTTPError as error:
        if status_of(error) == 401:
            raise PermissionError(f"{what} cannot be read: {WRONG_TOKEN}") from None
        # A Hub that is out of order is no reason to stop whoever has the files in the cache.
    except HubSilentError:
        raise
    except httpx.HTTPError:
        # The Hub answered a moment ago. Whether the files can be had without it, only the client that loads them
        # knows; if not, it says so.
        pass


@contextmanager
def hub_needed(what: str, name_or_path: str, repo_type: str = "model", revision: str | None = None) -> Iterator[None]:
    """Whatever is loaded inside fails at once and plainly if it must come from a Hub that cannot give it."""
    if is_local(name_or_path):
        yield
        return
    require_repo(what, name_or_path, repo_type, revision)
    HubClient.refusals.clear()
    try:
        yield
    except Exception as error:
        if not constants.HF_HUB_OFFLINE and (reason := _why_unreadable(what, error)) is not None:
            raise reason from error
        if not constants.HF_HUB_OFFLINE or not isinstance(error, OSError):
            raise
        raise ConnectionError(
            f"{what} is neither a local folder nor wholly in the cache, and HF_HUB_OFFLINE=1 forbids downloading it. "
            "Unset HF_HUB_OFFLINE; or copy the cache of a machine that has it; or give the path of a local folder."
        ) from error


# ---- The client of commands ----
# The Hub's own client has no limit for most requests. This one, which transformers and datasets use too, has; and what
# went wrong is kept, which those libraries do not always pass on.


class HubSilentError(httpx.TransportError, ConnectionError):
    """The Hub gave no good answer for so long that it was given up. Its library does not repeat such a request."""


class Refusal(NamedTuple):
    """A request that the Hub did not do, its HTTP status (`None`: the connection was cut), and what it said."""

    path: str
    status: int | None
    said: str = ""


class _Sent(httpx.SyncByteStream):
    """A request's body; `since` when it has not moved."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.since = stream, time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.stream:
            yield piece
            self.since = time.monotonic()  # the piece is sent when the next one is asked for

    def close(self) -> None:
        self.stream.close()


class _Received(_Sent):
    """A file. What its reader does between two pieces takes as long as it takes."""

    def __init__(self, stream: Any, what: str) -> None:
        super().__init__(stream)
        self.what = what

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        try:
            for piece in self.stream:
                count, now = count + len(piece), time.monotonic()
                if count >= LEAST_BYTES:
                    count, self.since, HubClient.trouble_since = 0, now, None
                elif now - self.since > GIVE_UP_AFTER:
                    raise HubSilentError(f"{constants.ENDPOINT} sends too little of {self.what}")
                yield piece
                self.since += time.monotonic() - now
            HubClient.trouble_since = None
        except HubSilentError:
            raise
        except httpx.TransportError as error:
            _fail(self.since, SILENT if isinstance(error, httpx.TimeoutException) else CUT, self.what)
            raise


def _within(limit: float, call: Callable[[], Any], what: str, body: _Sent | None = None) -> Any:
    """
    What a call returns; a line if nothing moves for long, and an `httpx.ReadTimeout` after `limit` seconds.

    A client's own limits hold for each piece of an answer, and not for looking up a host's name, which the operating
    system does without one; waiting for a thread bounds all of it.
    """
    done, start, is_said = Future(), time.monotonic(), False

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not wait([done], timeout=0.1).done:
        silent = time.monotonic() - max(start, body.since if body is not None else start)
        if silent > limit:
            raise httpx.ReadTimeout(f"no answer within {limit:g} s")
        if silent > SAY_AFTER and not is_said:
            is_said = True
            logger.warning(f"Waiting for {constants.ENDPOINT} to answer {what}; giving up after {limit:.0f} s.")
    return done.result()


def limit_waiting() -> None:
    """
    Let no request of this process to the Hub wait for more than a minute, or for 5 s without a line about it. Files
    may take longer, as long as they move.
    """
    present = get_session()
    if not isinstance(present, HubClient):
        hooks = present.event_hooks
        set_client_factory(lambda: HubClient(event_hooks=hooks, follow_redirects=True, timeout=None))


class HubClient(httpx.Client):
    """A client that gives up, says what it waits for, and raises a sentence for a dataset's file that is refused."""

    # Of the process, since the Hub's library makes a new client when a connection fails.
    refusals: ClassVar[deque[Refusal]] = deque(maxlen=100)
    trouble_since: ClassVar[float | None] = None  # requests in a row failed

    def send(self, request: httpx.Request, *, stream: bool = False, **kwargs: Any) -> httpx.Response:
        dataset = _dataset_of(request)
        try:
            response = self._send(request, stream=stream, **kwargs)
        except HubSilentError as error:
            if dataset is None:
                raise
            # Of a class that `datasets` does not take for a reason to ask again, for minutes.
            raise ConnectionError(f"Dataset {dataset!r} cannot be read: {error}. Try again later.") from error
        # Clients repeat a request for some answers, and find out the end of a file with 416.
        if dataset is None or not response.is_error or response.status_code in (*OUT_OF_ORDER, TOO_MANY, 416):
            return response
        # Streams read files in other processes too, where nobody could add to what libraries say of an answer: the
        # address of the storage, with its signature.
        response.close()
        raise _unreadable(f"Dataset {dataset!r}", Refusal(request.url.path, response.status_code))

    def _send(self, request: httpx.Request, *, stream: bool, **kwargs: Any) -> httpx.Response:
        start, what = time.monotonic(), f"{request.method} {_name_of(request.url)}"
        limit, asked = _time_left(start), request.extensions.get("timeout", {})
        request.extensions["timeout"] = {kind: min(asked.get(kind) or limit, limit) for kind in TIMEOUTS}
        request.stream = body = _Sent(request.stream)
        is_file = request.method == "GET" and (stream or FILE in request.url.path)

        def answer() -> httpx.Response:
            response = super(HubClient, self).send(request, stream=True, **kwargs)
            if not is_file:
                response.read()
            return response

        is_hub = is_file or str(request.url).startswith(constants.ENDPOINT)
        try:
            response = _within(limit, answer, what, body)
        except httpx.TimeoutException:
            _fail(start, SILENT, what)
            raise
        except httpx.TransportError as error:
            if is_hub:  # libraries also ask other hosts, and do without their answer
                self.refusals.append(Refusal(request.url.path, None))
                _fail(start, "cannot be reached" if isinstance(error, httpx.ConnectError) else CUT, what)
            raise
        # Clients find out that there is no such file by asking for it.
        if is_hub and response.is_error and response.headers.get("X-Error-Code") != "EntryNotFound":
            said = _too_many(response) if response.status_code == TOO_MANY else ""
            self.refusals.append(Refusal(request.url.path, response.status_code, said))
        if response.status_code in OUT_OF_ORDER:
            _fail(start, f"answers with HTTP {response.status_code}", what)
        elif response.status_code == TOO_MANY:
            self._pause(response, start, what)
        elif not is_file:  # whether it comes is still to be seen
            HubClient.trouble_since = None
        if is_file:
            response.stream = _Received(response.stream, what)
            if not stream:
                response.read()
        return response

    def _pause(self, response: httpx.Response, start: float, what: str) -> None:
        """Clients wait for as long as they are asked to, without a word."""
        pause = _asked_pause(response) or 0.0
        HubClient.trouble_since = self.trouble_since or start
        line = f"{constants.ENDPOINT} answers {what}: {_too_many(response)}"
        if pause > _time_left(time.monotonic()):
            raise HubSilentError(line)
        if pause > SAY_AFTER:
            logger.warning(f"{line}. Waiting.")


def _time_left(now: float) -> float:
    """Seconds for the next request; those that failed one after the other have one limit together."""
    if HubClient.trouble_since is None or now - HubClient.trouble_since > 2 * GIVE_UP_AFTER:
        HubClient.trouble_since = None  # what was long ago has nothing to do with it
        return GIVE_UP_AFTER
    return max(GIVE_UP_AFTER - (now - HubClient.trouble_since), 0.05 * GIVE_UP_AFTER)


def _fail(start: float, reason: str, what: str) -> None:
    """Clients repeat what failed: say so, and give up if nothing good has come for too long."""
    if HubClient.trouble_since is None:
        HubClient.trouble_since = start
        if reason != SILENT:  # that is said already
            logger.warning(f"Waiting for {constants.ENDPOINT}, which {reason} ({what}).")
    waited = time.monotonic() - HubClient.trouble_since
    if waited > 0.95 * GIVE_UP_AFTER:
        raise HubSilentError(f"{constants.ENDPOINT} {reason} for {waited:.0f} s ({what})")


def _name_of(url: httpx.URL) -> str:
    """Addresses in the Hub's storage may be signed."""
    return url.path if str(url).startswith(constants.ENDPOINT) else "a file in its storage"


def _dataset_of(request: httpx.Request) -> str | None:
    """Which dataset's file is to be read. Whether there is one is asked with HEAD, and a refusal is then an answer."""
    place, file, _ = request.url.path.partition(FILE)
    is_read = request.method == "GET" and file and str(request.url).startswith(f"{constants.ENDPOINT}/datasets/")
    return place.partition("/datasets/")[2] if is_read else None


def _asked_pause(response: httpx.Response) -> float | None:
    """Seconds that the Hub asks its clients to wait for, which they do."""
    limit = parse_ratelimit_headers(response.headers)
    if limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds
    asked = response.headers.get("Retry-After", "").strip()
    return float(asked) if asked.isdecimal() else None


def _too_many(response: httpx.Response) -> str:
    """What the Hub said when it refused because of too many requests."""
    said, pause = response.headers.get("X-Error-Message"), _asked_pause(response)
    if said is None:
        try:
            said = response.json()["error"]
        except (ValueError, KeyError, TypeError, httpx.StreamError):  # no JSON, or not read
            said = None
    said = f", {' '.join(str(said).split())!r}" if said else ""
    return f"too many requests (HTTP 429{said})" + (f", wait for {pause:g} s" if pause is not None else "")


# ---- Why the Hub did not do it ----


def reason_of(error: BaseException) -> str:
    """Why a push failed, in a line; uploads wrap the Hub's answer in other exceptions."""
    for cause in _causes(error):
        status = status_of(cause)
        if status is not None:
            known = {401: WRONG_TOKEN.rstrip("."), 403: "your token may not write there", 507: "the Hub has no space"}
            if status == TOO_MANY:
                return _too_many(cause.response)
            return f"{known.get(status, 'the Hub refused or failed')} (HTTP {status})"
        if isinstance(cause, HubSilentError):
            return str(cause)
        if isinstance(cause, httpx.TransportError):
            return f"the connection was cut ({cause or type(cause).__name__})"
        if isinstance(cause, OfflineModeIsEnabled):
            return "HF_HUB_OFFLINE=1 is set"
    return str(error).rstrip(".") or type(error).__name__


def status_of(error: BaseException) -> int | None:
    """The HTTP status of the answer that an error is about."""
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _why_unreadable(what: str, error: BaseException) -> OSError | None:
    """
    The error to raise in place of that of a library which could not read `what` from the Hub; `None` if the Hub had no
    part in it, or the library is left to say so.
    """
    if isinstance(error, HubSilentError):
        return None  # it says so itself
    causes = list(_causes(error))
    if silent := [cause for cause in causes if isinstance(cause, HubSilentError)]:
        return HubSilentError(str(silent[0]))
    if not any(isinstance(cause, OSError | httpx.HTTPError) for cause in causes):
        return None
    of_files = [refusal for refusal in HubClient.refusals if FILE in refusal.path]
    found = of_files + [refusal for refusal in HubClient.refusals if refusal.status != 404]
    return _unreadable(what, found[0]) if found else None


def _unreadable(what: str, refusal: Refusal) -> OSError:
    """The error that says which file of `what` was refused, and why."""
    path, status, said = refusal
    part = path.partition(FILE)[2].partition("/")[2]
    part = part or ("its list of files" if path.startswith("/api/") else "a file of it")
    reader = "your token" if get_token() else "who is not logged in (`hf auth login`)"
    reasons = {
        None: f"the connection was cut (at {part}). Try again.",
        401: WRONG_TOKEN,
        403: f"{reader} may not read {part} (HTTP 403).",
        404: f"the Hub does not find {part} (HTTP 404).",
        TOO_MANY: f"{said} (at {part}). Wait a few minutes, or log in (`hf auth login`).",
    }
    reason = reasons.get(status, f"the Hub answers with HTTP {status} (at {part}). Try again later.")
    kinds = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError}
    return kinds.get(status, ConnectionError)(f"{what} cannot be read: {reason}")
