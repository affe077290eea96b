"""What a user can mend is told in a line; anything else is a bug and keeps its traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_errors(program: str) -> Iterator[None]:
    """
    End `program` with the message alone and exit code 2 if a `ValueError`, `TypeError` or `OSError` is raised inside.

    Meant for what comes before training: settings, files, columns, access to the Hub. `MACS_HF_TRACEBACK=1` shows
    where an error was raised.
    """
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if os.environ.get("MACS_HF_TRACEBACK"):
            raise
        sys.stderr.write(f"{program}: {error}\n")
        raise SystemExit(2) from error
