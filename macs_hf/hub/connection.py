"""The Hugging Face Hub from the outside: whether it can be reached, said at once and in plain words."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_session, httpx, validate_repo_id

from .failure_reasons import WRONG_TOKEN, forget_refusals, why_unreadable


TIMEOUT_SECONDS = 5.0


class HubUnreachableError(ConnectionError):
    """
    The Hub did not answer.

    Args:
        message (`str`): What was needed, why it cannot be had, and what to do.
        reason (`str`): Why the Hub did not answer.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


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


def require_hub(what: str) -> None:
    """
    Raise a [`HubUnreachableError`] if the Hub does not answer within seconds; its own clients take minutes to give up.

    Offline mode (`HF_HUB_OFFLINE=1`) is left to them: they then look into the cache only, and fail at once.
    """
    if constants.HF_HUB_OFFLINE:
        return
    failures: list[str] = [f"no answer within {TIMEOUT_SECONDS:g} s"]

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=TIMEOUT_SECONDS)
            failures.clear()
        except httpx.TimeoutException:
            pass  # what `failures` says already
        except Exception as error:
            failures[:] = [str(error)]

    # The client's deadline holds for each address of the host in turn, and not for looking up its name, which the
    # operating system does without one; waiting for a thread bounds all of it.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    if failures:
        raise HubUnreachableError(
            f"{what} has to come from {constants.ENDPOINT}, which cannot be reached ({failures[0]}). Connect to the "
            "network; or set HF_HUB_OFFLINE=1 if it was downloaded before; or give the path of a local folder.",
            reason=failures[0],
        )


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
    api = HfApi(library_name="macs_hf")
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
        if error.response is not None and error.response.status_code == 401:
            raise PermissionError(f"{what} cannot be read: {WRONG_TOKEN}") from None
        # A Hub that is out of order is no reason to stop whoever has the files in the cache.
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
    forget_refusals()
    try:
        yield
    except Exception as error:
        if not constants.HF_HUB_OFFLINE and (reason := why_unreadable(what, error)) is not None:
            raise reason from error
        if not constants.HF_HUB_OFFLINE or not isinstance(error, OSError):
            raise
        raise ConnectionError(
            f"{what} is neither a local folder nor wholly in the cache, and HF_HUB_OFFLINE=1 forbids downloading it. "
            "Unset HF_HUB_OFFLINE; or copy the cache of a machine that has it; or give the path of a local folder."
        ) from error


def hub_api(token: str | None = None) -> HfApi:
    return HfApi(token=token, library_name="macs_hf")
