"""Why the Hub did not do what was asked, in a line."""

from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import httpx

from .deadlines import HubSilentError


WRONG_TOKEN = (
    "the Hub does not know your token. Get one at https://huggingface.co/settings/tokens, then `hf auth login` or set "
    "HF_TOKEN (unset it if it is an old one)."
)


def reason_of(error: BaseException) -> str:
    """Why a push failed, in a line; uploads wrap the Hub's answer in other exceptions."""
    cause: BaseException | None = error
    while cause is not None:
        status = status_of(cause)
        if status is not None:
            known = {401: WRONG_TOKEN.rstrip("."), 403: "your token may not write there", 507: "the Hub has no space"}
            return f"{known.get(status, 'the Hub refused or failed')} (HTTP {status})"
        if isinstance(cause, HubSilentError):
            return str(cause)
        if isinstance(cause, httpx.TransportError):
            return f"the connection was cut ({cause or type(cause).__name__})"
        if isinstance(cause, OfflineModeIsEnabled):
            return "HF_HUB_OFFLINE=1 is set"
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return str(error).rstrip(".") or type(error).__name__


def status_of(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)
