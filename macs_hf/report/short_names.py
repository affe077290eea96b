"""How a model or dataset is called where others read it."""

import re
from pathlib import Path


def short_name(name: str) -> str:
    """A Hub id as it is; of a local path only the last part, which says nothing about the machine."""
    return name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else Path(name).name
