"""A command as a process: what a user can fix ends it in one sentence and exit code 2, a bug in its traceback.

The library knows nothing of commands: its errors carry the name of their argument, for which a flag is written here.
"""

import argparse
import ctypes
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from ..exceptions import ArgumentError, user_message
from ..report.run_folder import public_name, redact, refuse_secrets
from ..report.text import WIDEST, printable, wrapped


UNREAD = 141  # the exit code that shells give for SIGPIPE

# Arguments of the library whose flags have other names.
RENAMED = {
    "validation_split": "calibration_split",
    "test_split": "split",
    "config": "dataset_config",
    "revision": "model_revision",
    "use_cpu": "cpu",
    "per_device_eval_batch_size": "batch_size",
    "hub_model_id": "push_to_hub",
}


def _shows_tracebacks() -> bool:
    return os.environ.get("MACS_HF_TRACEBACK", "0") not in ("", "0")


def _write(text: str) -> None:
    """To where `sys.stderr` is now: above a bar, while there is one. A terminal gets it broken between words."""
    text = printable(text)
    if sys.stderr.isatty():
        width = min(shutil.get_terminal_size().columns, WIDEST)
        text = "\n".join(wrapped(text, width, 2))
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def plain_errors(program: str, arguments: Iterable[str] = (), positional: Iterable[str] = ()) -> Iterator[None]:
    """
    End `program` in one sentence and exit code 2 if something is raised inside that a user can fix, and with exit code
    130 if it is interrupted. `MACS_HF_TRACEBACK=1` shows where an error was raised.

    Args:
        program (`str`): Stands in front of the sentence.
        arguments (`Iterable[str]`, *optional*): The names of the command's arguments; its warnings are shown too.
        positional (`Iterable[str]`, *optional*): Those of them that are given without a flag.
    """
    names = _names(arguments, positional)
    try:
        with _written_warnings(program) if names else nullcontext():
            yield
        print(end="", flush=True)  # here, and not when Python ends, where nobody can catch what it raises
        _leave_process_group()
    except BrokenPipeError:  # nobody reads the output any more (`| head -3`): end quietly, as Unix commands do
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes again when it ends
        raise SystemExit(UNREAD) from None
    except KeyboardInterrupt:
        if _shows_tracebacks():
            raise
        _write(f"\n{program}: interrupted")
        raise SystemExit(130) from None
    except Exception as error:
        text = user_message(error, names)
        if text is None or _shows_tracebacks():
            raise
        _write(f"{program}: {redact(text)}")
        raise SystemExit(2) from error


def _leave_process_group() -> None:
    """
    Where several processes have worked together, and all is done. Threads of gloo's that still hold a tensor while
    Python ends would abort the process. Not after an error: the others may still wait for this one.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _names(arguments: Iterable[str], positional: Iterable[str]) -> dict[str, str]:
    """How the command line writes the arguments of the library."""
    flags = {name: f"--{name}" for name in arguments} | {name: name.upper() for name in positional}
    renamed = {name: flags[flag] for name, flag in RENAMED.items() if flag in flags}
    return renamed | flags


@contextmanager
def _written_warnings(program: str) -> Iterator[None]:
    """What the library logs goes to the terminal as errors do."""
    handler, library = logging.Handler(), logging.getLogger("macs_hf")
    handler.emit = lambda record: _write(f"{program}: {redact(record.getMessage())}")
    library.addHandler(handler)
    try:
        yield
    finally:
        library.removeHandler(handler)


class _Terminated(BaseException):
    """SIGTERM was received."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


@contextmanager
def ends_on_signals(program: str, advice: Callable[[], str]) -> Iterator[None]:
    """
    Inside, Ctrl-C and SIGTERM end `program` in one line of the main process, with exit codes 130 and 143.

    Args:
        program (`str`): Stands in front of the line.
        advice (`Callable`): Gives a sentence about what the same command does if it is started again.
    """
    # In another thread signals cannot be caught; `nohup` and a caller's own handler are respected.
    is_main = threading.current_thread() is threading.main_thread()
    catches = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if catches:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except (KeyboardInterrupt, _Terminated) as stopped:
        if _shows_tracebacks():
            raise
        number = signal.SIGINT if isinstance(stopped, KeyboardInterrupt) else signal.SIGTERM
        if is_main_process():
            _write(f"{program}: Stopped by {number.name}. {advice()}")
        raise SystemExit(128 + number) from None
    finally:
        if catches:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


# ---- The beginning of a command ----


# Arguments without a flag.
POSITIONAL = ("model", "folder", "repo")


@contextmanager
def running(name: str, options: argparse.Namespace) -> Iterator[None]:
    """Inside, `macs-hf NAME` runs: no option holds a secret, requests to the Hub have deadlines, errors are plain."""
    with plain_errors(f"macs-hf {name}", vars(options), positional=POSITIONAL):
        refuse_secrets(vars(options))
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


# ---- Memory ----


# Names and numbers of glibc's malloc.h: no block of its own for a large tensor, nothing back to the system, and growth
# in large steps.
MALLOC_OPTIONS = {"MMAP_MAX": (-4, 0), "TRIM_THRESHOLD": (-1, -1), "TOP_PAD": (-2, 64 * 2**20)}


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
    return mallopt is not None and all(mallopt(*option) == 1 for option in MALLOC_OPTIONS.values())


# ---- Folders ----
# What folders of runs are called if the user does not say.


def folder_name(name: str) -> str:
    """A dataset or model as a part of a folder's name: a Hub id with its owner, a local folder without its path."""
    return public_name(name).strip("/").replace("/", "-")


def checked_output_dir(output_dir: str | Path, model: str, dataset: str) -> Path:
    """
    The folder as it is meant, without `..`, which would name another folder once a part of the path is replaced.
    Refused is one whose files are read: results in it would be taken for a part of the model, or for images.
    """
    folder = Path(output_dir).resolve()
    if folder == Path(model).resolve():
        raise ArgumentError("output_dir", "is the model's own folder. Choose another.", str(output_dir))
    if dataset.strip() and Path(dataset).is_dir() and folder.is_relative_to(Path(dataset).resolve()):
        message = f"is inside the dataset's folder {dataset!r}, where pictures and tables are read as data."
        raise ArgumentError("output_dir", f"{message} Choose another.", str(output_dir))
    if ".." not in Path(output_dir).parts:
        return Path(output_dir)
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def is_main_process() -> bool:
    """Whether this is the process that writes, of those that a launcher started."""
    # A rank that is left over in the environment of a single process says nothing.
    return int(os.environ.get("WORLD_SIZE", 1)) < 2 or int(os.environ.get("RANK", 0)) == 0
