"""Why the Hub did not do what was asked, in a line."""

from collections.abc import Iterator

from huggingface_hub import get_session, get_token
from huggingface_hub.errors import EntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import httpx

from .deadlines import TOO_MANY, DeadlineClient, HubSilentError, Refusal


WRONG_TOKEN = (
    "the Hub does not know your token. Get one at https://huggingface.co/settings/tokens, then `hf auth login` or set "
    "HF_TOKEN (unset it if it is an old one)."
)


FILE = "/resolve/"  # in the path of a file: /owner/name/resolve/branch/folder/file


def reason_of(error: BaseException) -> str:
    """Why a push failed, in a line; uploads wrap the Hub's answer in other exceptions."""
    for cause in _causes(error):
        status = status_of(cause)
        if status is not None:
            known = {401: WRONG_TOKEN.rstrip("."), 403: "your token may not write there", 507: "the Hub has no space"}
            known[TOO_MANY] = "too many requests, wait a few minutes"
            return f"{known.get(status, 'the Hub refused or failed')} (HTTP {status})"
        if isinstance(cause, HubSilentError):
            return str(cause)
        if isinstance(cause, httpx.TransportError):
            return f"the connection was cut ({cause or type(cause).__name__})"
        if isinstance(cause, OfflineModeIsEnabled):
            return "HF_HUB_OFFLINE=1 is set"
    return str(error).rstrip(".") or type(error).__name__


def forget_refusals() -> None:
    if isinstance(session := get_session(), DeadlineClient):
        session.deadline.refusals.clear()


def why_unreadable(what: str, error: BaseException) -> OSError | None:
    """
    The error to raise in place of that of a library which could not read `what` from the Hub; `None` if the Hub had no
    part in it. Libraries keep the Hub's answer as a cause, or drop it; then the client's own notes have it.
    """
    if isinstance(error, HubSilentError):
        return None  # it says so itself
    causes = list(_causes(error))
    if silent := [cause for cause in causes if isinstance(cause, HubSilentError)]:
        return HubSilentError(str(silent[0]))
    told = [Refusal(_path_of(cause), status_of(cause)) for cause in causes if _is_refusal(cause)]
    if not told and not isinstance(error, OSError):
        return None
    session = get_session()
    noted = list(session.deadline.refusals) if isinstance(session, DeadlineClient) else []
    of_files = [refusal for refusal in noted if FILE in refusal.path]
    found = of_files + told + [refusal for refusal in noted if refusal.status != 404]
    return unreadable(what, found[0]) if found else None


def unreadable(what: str, refusal: Refusal) -> OSError:
    """The error that says which file of `what` was refused, and why."""
    path, status = refusal
    part = path.partition(FILE)[2].partition("/")[2]
    part = part or ("its list of files" if path.startswith("/api/") else "a file of it")
    if status is None:
        return ConnectionError(f"{what} cannot be read: the connection was cut (at {part}). Try again.")
    if status == 401:
        return PermissionError(f"{what} cannot be read: {WRONG_TOKEN}")
    if status == 403:
        reader = (
            "your token may not read" if get_token() else "you are not logged in (`hf auth login`), and may not read"
        )
        return PermissionError(f"{what} cannot be read: {reader} {part} (HTTP 403).")
    if status == 404:
        return FileNotFoundError(f"{what} cannot be read: the Hub does not find {part} (HTTP 404).")
    if status == TOO_MANY:
        wait = "Wait a few minutes" + ("" if get_token() else ", or log in (`hf auth login`), which allows more")
        return ConnectionError(f"{what} cannot be read: too many requests to the Hub (HTTP 429 at {part}). {wait}.")
    return ConnectionError(f"{what} cannot be read: the Hub answers with HTTP {status} (at {part}). Try again later.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _is_refusal(error: BaseException) -> bool:
    """A cut, or an answer other than that there is no such file, which a library may have asked for just to know."""
    if isinstance(error, EntryNotFoundError | httpx.ConnectError):  # a host that cannot be reached may be another one
        return False
    return isinstance(error, httpx.TransportError) or status_of(error) is not None


def _path_of(error: BaseException) -> str:
    try:
        return (getattr(error, "response", None) or error).request.url.path
    except RuntimeError:  # httpx says so if nobody has told it
        return ""


def status_of(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)
