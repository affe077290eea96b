"""The Hugging Face Hub from the outside: whether it can be reached, said at once and in plain words."""

import os
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
    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT_SECONDS)
    except httpx2.HTTPError as error:
        raise ConnectionError(
            f"{what} has to come from {constants.ENDPOINT}, which cannot be reached ({error}). Connect to the "
            "network; or set HF_HUB_OFFLINE=1 if it was downloaded before; or give the path of a local folder; or run "
            "without arguments, on embedded data."
        ) from None
