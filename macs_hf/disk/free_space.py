"""Whether what a run will write fits on the disk, found out before it trains."""

import shutil
from pathlib import Path


def check_free_space(folder: str | Path, needed: int, what: str) -> None:
    """
    Args:
        folder (`str` or `Path`): Where it will be written; it need not be there yet.
        needed (`int`): Bytes.
        what (`str`): What takes them, and how to need fewer.

    Raises:
        `OSError`: If the disk has less free space.
    """
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    if free < needed:
        raise OSError(
            f"The run will write about {readable_size(needed)} to output_dir={str(folder)!r}, but the disk has "
            f"{readable_size(free)} free: {what}. Free some space, or choose another output_dir."
        )


def readable_size(size: float) -> str:
    """A number of bytes in the largest unit that leaves a number of at least 1."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
