"""The Hugging Face Hub from the outside: whether it can be reached, said at once and in plain words."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from huggingface_hub import constants
from huggingface_hub.utils import get_session


TIMEOUT_SECONDS = 5.0


def is_local(name_or_path: str | os.PathLike) -> bool:
    return Path(name_or_path).exists()


def require_hub(what: str) -> None:
    """
    Raise a `ConnectionError` if the Hub does not answer within seconds; its own clients take minutes to give up.

    Offline mode (`HF_HUB_OFFLINE=1`) is left to them: they then look into the cache only, and fail at once.
    """
    if constants.HF_HUB_OFFLINE:
        return
    failures: list[str] = [f"no answer within {TIMEOUT_SECONDS:g} s"]

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=TIMEOUT_SECONDS)
            failures.clear()
        except httpx2.TimeoutException:
            pass
        except Exception as error:
            failures[:] = [str(error)]

    # The client's timeout holds for each address of the host in turn, and not for looking it up; a thread's for all.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    if failures:
        raise ConnectionError(
            f"{what} has to come from {constants.ENDPOINT}, which cannot be reached ({failures[0]}). Connect to the "
            "network; or set HF_HUB_OFFLINE=1 if it was downloaded before; or give the path of a local folder; or run "
            "without arguments, on embedded data."
        )


@contextmanager
def hub_needed(what: str, name_or_path: str) -> Iterator[None]:
    """Whatever is loaded inside fails at once and plainly if it must come from a Hub that is out of reach."""
    if is_local(name_or_path):
        yield
        return
    require_hub(what)
    try:
        yield
    except OSError as error:
        if not constants.HF_HUB_OFFLINE:
            raise
        raise ConnectionError(
            f"{what} is neither a local folder nor wholly in the cache, and HF_HUB_OFFLINE=1 forbids downloading it. "
            "Unset HF_HUB_OFFLINE; or copy the cache of a machine that has it; or give the path of a local folder; or "
            "run without arguments, on embedded data."
        ) from error
