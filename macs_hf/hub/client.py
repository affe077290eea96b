"""The HTTP client of commands: it waits no longer than a [`Deadline`], and says which file of a dataset is refused.

Streams read files one by one, in other processes too, where nobody could add to what the libraries say of an answer:
the address of the storage, with its signature.
"""

from typing import Any

from huggingface_hub import constants, get_session, set_client_factory
from huggingface_hub.utils import httpx

from .deadlines import OUT_OF_ORDER, TOO_MANY, Deadline, DeadlineClient, HubSilentError, Refusal
from .failure_reasons import FILE, unreadable


# Answers that clients repeat the request for, or with which they find out the end of a file.
NO_REFUSALS = (*OUT_OF_ORDER, TOO_MANY, 416)


class HubClient(DeadlineClient):
    """A client that raises a sentence for a file of a dataset that cannot be had."""

    def send(self, request: httpx.Request, **kwargs: Any) -> httpx.Response:
        dataset = _dataset_of(request)
        try:
            response = super().send(request, **kwargs)
        except HubSilentError as error:
            if dataset is None:
                raise
            # Of a class that `datasets` does not take for a reason to ask again, for minutes.
            raise ConnectionError(f"Dataset {dataset!r} cannot be read: {error}. Try again later.") from error
        if dataset is None or not response.is_error or response.status_code in NO_REFUSALS:
            return response
        response.close()
        raise unreadable(f"Dataset {dataset!r}", Refusal(request.url.path, response.status_code))


def _dataset_of(request: httpx.Request) -> str | None:
    """Which dataset's file is to be read. Whether there is one is asked with HEAD, and a refusal is then an answer."""
    place, file, _ = request.url.path.partition(FILE)
    is_read = request.method == "GET" and file and str(request.url).startswith(f"{constants.ENDPOINT}/datasets/")
    return place.partition("/datasets/")[2] if is_read else None


def limit_waiting() -> None:
    """Let no request of this process to the Hub wait for more than a minute, or for 5 s without a line about it."""
    present = get_session()
    if isinstance(present, DeadlineClient):
        return
    hooks, deadline = present.event_hooks, Deadline()
    set_client_factory(lambda: HubClient(deadline, event_hooks=hooks, follow_redirects=True, timeout=None))
