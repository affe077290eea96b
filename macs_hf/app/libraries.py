"""The libraries that measure are loaded after the page is there, by one thread at a time."""

import threading
from functools import cache

from .job import Job


_loading = threading.Lock()


def load_libraries() -> None:
    """Returns when they are loaded, which takes seconds: threads that load them at once may wait for each other."""
    with _loading:
        from . import answer_markup, auditing, comparison_markup, prediction  # noqa: F401


@cache
def start_loading() -> None:
    """Load them in a thread, once, when the first visitor has the page."""
    Job(_load_quietly)


def _load_quietly(job: Job) -> None:
    load_libraries()
    from datasets import disable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    # The page shows how far the work is.
    disable_progress_bars()
    disable_progress_bar()
