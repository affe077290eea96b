"""Which models and datasets a visitor may name.

On a page for this machine alone a visitor is its owner, and may name whatever the command line takes. On a page that
others reach, the server's disk and token are not theirs: they may name what was given at the start, and what is
public.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import httpx

from ..hub.connection import TIMEOUT_SECONDS, is_local


LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Access:
    """
    Args:
        given (`tuple[str, ...]`): Models, runs and datasets that were named at the start.
        is_private (`bool`): Whether only the owner of this machine reaches the page.
    """

    given: tuple[str, ...] = ()
    is_private: bool = True

    def check_model(self, name: str) -> str:
        """The name without spaces around it; a `ValueError` if it may not be used."""
        from ..models.loading import model_id  # takes seconds, in which the page is there already

        name = name.strip()
        if not name:
            raise ValueError("Name a model: a Hub id such as google/vit-base-patch16-224, or a folder.")
        self._check(name, model_id(name), "model")
        return name

    def check_dataset(self, name: str) -> str:
        """The same for a dataset."""
        from ..data.sources import DATASETS

        name = name.strip()
        if not name:
            raise ValueError("Name a dataset, or drop a zip with a folder of images for each class.")
        if name in DATASETS and not is_local(name):
            return name
        self._check(name, name, "dataset")
        return name

    def check_folder(self, name: str) -> Path:
        """A folder of this machine."""
        path = Path(name.strip())
        if not self.is_private and os.path.realpath(path) not in map(os.path.realpath, self.given):
            raise ValueError(_refusal(name, "model"))
        return path

    def _check(self, name: str, repo_id: str, kind: str) -> None:
        if self.is_private or name in self.given:
            return
        # The message does not say whether a folder exists on the server.
        if is_local(repo_id) or not _is_public(repo_id, kind):
            raise ValueError(_refusal(name, kind))


def _is_public(repo_id: str, kind: str) -> bool:
    """Asked without the server's own token, which may read what its visitors may not."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        info = HfApi(token=False, library_name="macs_hf").repo_info(repo_id, repo_type=kind, timeout=TIMEOUT_SECONDS)
    except (httpx.HTTPError, HFValidationError):
        return False
    return not (info.private or info.gated)


def _refusal(name: str, kind: str) -> str:
    return f"{name!r} is no public {kind} on the Hub, or the Hub cannot be reached now."
