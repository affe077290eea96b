"""What folders of runs are called if the user does not say."""

from pathlib import Path


def folder_name(name: str) -> str:
    """A dataset or model as a part of a folder's name: a Hub id with its owner, a local folder without its path."""
    return Path(name).resolve().name if Path(name).exists() else name.strip("/").replace("/", "-")


def run_name(folder: str | Path) -> str:
    """The last part of a folder's path, also for `.`, whose own name is empty."""
    return Path(folder).resolve().name
