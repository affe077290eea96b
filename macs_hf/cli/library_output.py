"""What other libraries print: nothing but errors, unless `--verbose` asks for it."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import datasets
import huggingface_hub.utils as hub
from transformers.utils import logging as transformers_logging

from ..training.screen import Screen
from .folders import is_main_process


# Loggers that speak of what this package checks by itself, or of what a user cannot change.
LIBRARIES = (
    "transformers",
    "datasets",
    "accelerate",
    "huggingface_hub",
    "timm",
    "torch",
    "httpx",
    "filelock",
    "fsspec",
)


@contextmanager
def quiet_libraries(verbose: bool = False, downloads: bool = False) -> Iterator[None]:
    """
    Inside, the progress bars, log lines and warnings of other libraries are not shown.

    Args:
        verbose (`bool`, *optional*, defaults to `False`): Change nothing.
        downloads (`bool`, *optional*, defaults to `False`): Whether downloads from the Hub keep their bars.
    """
    if verbose:
        yield
        return
    loggers = [logging.getLogger(name) for name in LIBRARIES]
    levels = [logger.level for logger in loggers]
    bars = transformers_logging.is_progress_bar_enabled(), datasets.utils.are_progress_bars_disabled()
    hidden = hub.are_progress_bars_disabled()
    with warnings.catch_warnings():
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)
        transformers_logging.disable_progress_bar()  # those of the Hub too
        datasets.utils.disable_progress_bars()
        if downloads and not hidden:
            hub.enable_progress_bars()
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if bars[0]:
                transformers_logging.enable_progress_bar()
            if not bars[1]:
                datasets.utils.enable_progress_bars()
            (hub.disable_progress_bars if hidden else hub.enable_progress_bars)()


@contextmanager
def screen_of(quiet: bool, verbose: bool, *, bars: bool = True) -> Iterator[Screen]:
    """Where a command writes to; inside, other libraries write only if it is `verbose`."""
    if quiet and verbose:
        raise ValueError("quiet=True and verbose=True contradict each other: leave one of them out.")
    screen = Screen(enabled=is_main_process() and not quiet, bars=bars and not verbose)
    with quiet_libraries(verbose, downloads=screen.draws), screen:
        yield screen


@contextmanager
def bars_of_datasets(shown: bool) -> Iterator[None]:
    """Inside, loading and reading a dataset shows how far it is, if `shown`."""
    if not (shown and datasets.utils.are_progress_bars_disabled()):
        yield
        return
    datasets.utils.enable_progress_bars()
    try:
        yield
    finally:
        datasets.utils.disable_progress_bars()
