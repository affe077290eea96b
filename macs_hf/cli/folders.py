"""What folders of runs are called if the user does not say."""

import os
from pathlib import Path

from ..disk.public_names import public_name


def folder_name(name: str) -> str:
    """A dataset or model as a part of a folder's name: a Hub id with its owner, a local folder without its path."""
    return public_name(name).strip("/").replace("/", "-")


def run_name(folder: str | Path) -> str:
    """The last part of a folder's path, also for `.`, whose own name is empty."""
    return Path(folder).resolve().name


def check_output_dir(output_dir: str | Path, model: str, dataset: str) -> None:
    """Refuse a folder whose files are read: results in it would be taken for a part of the model, or for images."""
    if not str(output_dir).strip():
        raise ValueError(f"output_dir={str(output_dir)!r} is empty. Name a folder, such as runs/first.")
    folder = Path(output_dir).resolve()
    if folder == Path(model).resolve():
        raise ValueError(f"output_dir={str(output_dir)!r} is the model's own folder. Choose another.")
    if dataset.strip() and Path(dataset).is_dir() and folder.is_relative_to(Path(dataset).resolve()):
        raise ValueError(
            f"output_dir={str(output_dir)!r} is inside the dataset's folder {dataset!r}, where pictures and tables "
            "are read as data. Choose another."
        )


def is_main_process() -> bool:
    """Whether this is the process that writes, of those that a launcher started."""
    # A rank that is left over in the environment of a single process says nothing.
    return _number("WORLD_SIZE", 1) < 2 or _number("RANK", 0) == 0


def check_launch() -> None:
    """Refuse ranks that are no numbers, of which libraries say only that."""
    for variable in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        _number(variable, 0)


def _number(variable: str, default: int) -> int:
    value = os.environ.get(variable, str(default))
    if not value.removeprefix("-").isdecimal():
        raise ValueError(f"The environment variable {variable} is {value!r}, not a number of processes. Unset it.")
    return int(value)
