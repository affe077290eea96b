"""What commands that measure or push have in common: how they start, and the options that several of them have."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..disk.secrets import refuse_secrets
from ..disk.terminal_text import refuse_nul
from .errors import plain_errors
from .memory import keep_freed_memory


@contextmanager
def running(name: str, options: argparse.Namespace) -> Iterator[None]:
    """Inside, `macs-hf NAME` runs: no option holds a secret, requests to the Hub have deadlines, errors are plain."""
    with plain_errors(f"macs-hf {name}", vars(options)):
        refuse_secrets(vars(options))
        refuse_nul(vars(options))
        refuse_empty(vars(options))
        from ..hub.client import limit_waiting

        limit_waiting()
        keep_freed_memory()
        yield


def refuse_empty(options: Mapping[str, Any]) -> None:
    """A variable of the shell that is not set would silently mean another folder, or no push."""
    for name, value in options.items():
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and not word.strip():
                raise ValueError(f"{name}={word!r} is empty. Name something, or leave it out.")


def positive(text: str) -> int:
    """A whole number of at least 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


OPTIONS = {
    "dataset_config": {"help": "configuration of a Hub dataset"},
    "split": {"help": "split to measure on (default: test)"},
    "image_column": {"help": "needed if there are several image columns"},
    "label_column": {"help": "needed if there are several class labels"},
    "model_revision": {"help": "branch, tag or commit of the model"},
    "max_samples": {"type": positive, "help": "maximum number of images per split (default: all)"},
    "image_size": {"type": positive, "help": "pixels, if the model was trained at another size than its config says"},
    "skip_bad_images": {"action": "store_true", "help": "leave out images that cannot be read"},
    "batch_size": {"type": positive, "default": 64, "help": "images in a forward pass (default: 64)"},
    "cpu": {"action": "store_true", "help": "do not use accelerators"},
}


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(f"--{name}", **OPTIONS[name])
