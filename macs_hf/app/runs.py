"""Finished runs: a visitor's own audits, folders, and models on the Hub that were pushed with their report."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import httpx

from ..hub.connection import is_local
from ..report.run import REPORT_FILE, ROWS_FILE, Run, load_run
from .access import Access
from .visitor import Visitor


def run_named(name: str, visitor: Visitor, access: Access) -> Run:
    """
    A run by its name.

    Args:
        name (`str`): Of one of the visitor's audits, a folder, or a Hub id.
        visitor ([`Visitor`]): Who asks.
        access ([`Access`]): What they may name.
    """
    if name in visitor.runs:
        return visitor.runs[name]
    name = name.strip()
    if is_local(name):
        return load_run(access.check_folder(name))
    run = hub_run(access.check_model(name))
    if run is None:
        raise ValueError(f"{name!r} is neither the folder of a run nor a model on the Hub with a report.")
    return run


def run_choices(visitor: Visitor, access: Access) -> list[str]:
    """What there is to choose from: the visitor's audits, what was given at the start and, for the owner, `runs/`."""
    given = [name for name in access.given if is_run(name)]
    found = sorted(str(path.parent) for path in Path("runs").glob(f"*/{REPORT_FILE}")) if access.is_private else []
    return list(dict.fromkeys([*visitor.runs, *given, *found]))


def is_run(name: str) -> bool:
    return Path(name, REPORT_FILE).is_file()


def hub_run(repo_id: str) -> Run | None:
    """The report and rows that were last pushed with a model; `None` if there are none."""
    if constants.HF_HUB_OFFLINE:
        return None
    try:
        return _pushed_run(repo_id, HfApi().model_info(repo_id).sha)
    except (OSError, ValueError, HFValidationError, httpx.HTTPError):
        return None


@lru_cache(maxsize=8)
def _pushed_run(repo_id: str, commit: str | None) -> Run:
    folder = snapshot_download(repo_id, revision=commit, allow_patterns=[REPORT_FILE, ROWS_FILE])
    return replace(load_run(folder), name=repo_id)
