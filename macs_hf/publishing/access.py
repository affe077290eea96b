"""Whether a repository can be pushed to, found out before training."""

from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HFValidationError, LocalTokenNotFoundError
from huggingface_hub.utils import httpx, validate_repo_id

from ..hub import WRONG_TOKEN, HubUnreachableError, hub_api, reason_of, require_hub, status_of


def check_push_access(
    repo_id: str, *, private: bool | None = None, revision: str | None = None, token: str | None = None
) -> str:
    """
    Make sure that a repository can be pushed to, before hours of training: reach the Hub, know who pushes, and make
    the repository and the branch if they are not there.

    Args:
        repo_id (`str`): `user/name`, or `name` below the token's own user.
        private (`bool`, *optional*): Whether only its owner may see it.
        revision (`str`, *optional*): The branch to push to.
        token (`str`, *optional*): In place of the one of HF_TOKEN or `hf auth login`.

    Returns:
        `str`: the full id.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} cannot be pushed to: {error} Name it user/name (hub_model_id).") from None
    refuse_offline(repo_id)
    try:
        require_hub(f"Access to {repo_id!r}")
    except HubUnreachableError as error:
        raise ConnectionError(
            f"{repo_id!r} cannot be pushed to: {constants.ENDPOINT} cannot be reached ({error.reason}). Connect to "
            "the network, or train without pushing and push the folder later with `macs-hf push`."
        ) from None
    api = hub_api(token)
    user = writing_user(api, f"{repo_id!r} cannot be pushed to")
    try:
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None and revision != constants.DEFAULT_REVISION:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        api.auth_check(repo_id, write=True)
        is_private = api.model_info(repo_id).private
    except httpx.HTTPError as error:
        if status_of(error) not in (401, 403, 404):
            raise ConnectionError(f"{repo_id!r} cannot be pushed to now: {reason_of(error)}. Try later.") from error
        raise PermissionError(
            f"{repo_id!r} cannot be pushed to: {user} may not write there ({reason_of(error)}). Name a "
            f"repository of your own, such as hub_model_id={user}/name, or ask its owner."
        ) from None
    if private and not is_private:
        raise ValueError(
            f"{repo_id!r} was to be private, but it is there already and public. Make it private in its settings, or "
            "name another (hub_model_id)."
        )
    return repo_id


def refuse_offline(repo_id: str) -> None:
    if constants.HF_HUB_OFFLINE:
        raise ConnectionError(f"{repo_id!r} cannot be pushed to while HF_HUB_OFFLINE=1. Unset it, or do not push.")


def writing_user(api: HfApi, refused: str) -> str:
    """The name of the user whose token is used; if that is not known, or may not write, the error begins `refused`."""
    try:
        me = api.whoami()
    except LocalTokenNotFoundError:
        raise PermissionError(
            f"{refused}: you are not logged in. Run `hf auth login` or set HF_TOKEN, with a token that may write "
            "(https://huggingface.co/settings/tokens)."
        ) from None
    except httpx.HTTPError as error:
        if status_of(error) == 401:
            raise PermissionError(f"{refused}: {WRONG_TOKEN}") from None
        raise ConnectionError(f"{refused} now: {reason_of(error)}. Try later.") from error
    if me.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise PermissionError(
            f"{refused}: the token of {me['name']} may only read. Make one that may write at "
            "https://huggingface.co/settings/tokens, then `hf auth login` or set HF_TOKEN."
        )
    return me["name"]


def open_repo(args: Any, token: str | None = None, private: bool | None = None) -> str:
    """[`check_push_access`] of the repository that training arguments name: `hub_model_id`, or the output folder."""
    refuse_hub_token(args)
    name = args.hub_model_id or Path(args.output_dir).absolute().name
    private = args.hub_private_repo if private is None else private
    return check_push_access(name, private=private, revision=args.hub_revision, token=token)


def refuse_hub_token(args: Any) -> None:
    if args.hub_token is not None:
        raise ValueError(
            "hub_token would be written into training_args.bin, and into the history of your shell. Leave it out, and "
            "run `hf auth login` or set HF_TOKEN."
        )
