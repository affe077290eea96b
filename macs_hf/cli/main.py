"""`macs-hf COMMAND ...`: the commands that work on image classifiers, from training to the page in the browser."""

import argparse
import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .. import __version__
from ..exceptions import ArgumentError
from ..report.run_folder import refuse_secrets
from ..report.text import refuse_nul
from .errors import plain_errors


# Each is a module beside this one, loaded when it is asked for, with a function `main(argv)`; those that
# measure share one.
COMMANDS = {
    "train": "train a classifier, calibrate it, measure it and, if asked, push it",
    "evaluate": "measure any classifier: accuracy, calibration, under corruption",
    "calibrate": "fit a temperature on held-out data, fold it in, save the model",
    "compare": "compare two runs on the same test images, image by image",
    "app": "audit, try and compare classifiers in the browser",
    "export": "write ONNX files, float32 and int8, checked and measured",
    "verify": "measure a published model again, and compare with its report",
    "push": "push a run's model, report, pictures and card to the Hub",
}
EXAMPLES = """\
examples:
  macs-hf train --dataset cifar10 --model resnet50
  macs-hf evaluate user/model --dataset user/photos --corruptions imagenet
  macs-hf calibrate user/model --dataset user/photos --push_to_hub user/new
  macs-hf compare runs/first runs/second
  macs-hf app runs/first
  macs-hf export user/model --output_dir exported --int8 --dataset user/photos
  macs-hf verify user/model
  macs-hf push runs/first user/name

`macs-hf COMMAND --help` lists the options of a command.
"""
MEASURING = ("evaluate", "calibrate", "verify")


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    with plain_errors("macs-hf"):
        if not argv:
            _parser().print_help()
            return 2
        name = _parser().parse_args(argv[:1]).command
        if name == "train":  # whose help does not load what training needs
            from .train_arguments import help_asked_for

            if (text := help_asked_for(argv[1:])) is not None:
                print(text)
                return 0
        if name in MEASURING:
            return getattr(import_module(".measure", __package__), f"{name}_main")(argv[1:])
        return import_module(f".{name}", __package__).main(argv[1:])


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="macs-hf",
        usage="macs-hf COMMAND ...",
        description=f"Margin and Consistency Supervision for Hugging Face image classifiers.\n\ncommands:\n{listed}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"macs-hf {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


# ---- What commands have in common ----
# What commands that measure or push have in common: how they start, and the options that several of them have.


# Arguments without a flag.
POSITIONAL = ("model", "folder", "repo")


@contextmanager
def running(name: str, options: argparse.Namespace) -> Iterator[None]:
    """Inside, `macs-hf NAME` runs: no option holds a secret, requests to the Hub have deadlines, errors are plain."""
    with plain_errors(f"macs-hf {name}", vars(options), positional=POSITIONAL):
        refuse_secrets(vars(options))
        refuse_nul(vars(options))
        refuse_empty(vars(options))
        from ..hub import limit_waiting

        limit_waiting()
        keep_freed_memory()
        yield


def refuse_empty(options: Mapping[str, Any]) -> None:
    """A variable of the shell that is not set would silently mean another folder, or no push."""
    for name, value in options.items():
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and not word.strip():
                raise ArgumentError(name, "is empty. Name something, or leave it out.", word)


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


# ---- Memory ----
# Large tensors on a CPU: memory that was freed is used again instead of being asked from the system each time.


# Names and numbers of glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
MEGABYTE = 2**20


def keep_freed_memory() -> bool:
    """
    Tell glibc to keep freed memory. By default it returns every large block to the system and gets it back for the
    next tensor, page by page, which may take nearly half of a forward pass (model_cards/benchmarks/memory.json).

    Returns:
        `bool`: Whether anything was changed: not on other C libraries, nor where the user has set malloc up.
    """
    if any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return False
    # No block of its own for a large tensor, nothing back to the system, and growth in large steps.
    return all(mallopt(*option) == 1 for option in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, 64 * MEGABYTE)))
