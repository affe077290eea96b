"""What a user can fix ends a command in one sentence and exit code 2; anything else is a bug and keeps its traceback.

The library names arguments (`image_column=...`), since it knows nothing of commands; here they become flags. Errors of
other libraries are known by the names of their classes, so that `macs-hf --help` imports none of them.
"""

import errno
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ..disk.secrets import redact


FULL_DISK = "The disk is full ({error}). Free some space, then start the same command again."

# Beside ValueError, TypeError, OSError and ImportError, which the library and its dependencies raise about input.
FAMILIES = {
    "SafetensorError": "A file of weights cannot be read ({error}): it is damaged or incomplete.",
    "BadZipFile": "A file cannot be read ({error}): it is damaged or incomplete.",
    "UnpicklingError": "A file cannot be read ({error}): it is damaged, or holds more than weights and numbers.",
    "ArrowException": "A table cannot be read ({error}): it is damaged or incomplete.",
    "EOFError": "A file ends too early ({error}): it is damaged or incomplete.",
    "DatasetsError": "{error}",
    "HTTPError": "The Hub did not do what was asked ({error}). Try again later.",
    "FloatingPointError": "{error}",
    "NotImplementedError": "{error}",
    "OutOfMemoryError": "Out of memory ({error}). Lower per_device_train_batch_size and raise "
    "gradient_accumulation_steps, or lower per_device_eval_batch_size.",
    "MemoryError": "Out of memory. Lower the batch sizes, or dataloader_num_workers.",
}

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


@contextmanager
def plain_errors(program: str, arguments: Iterable[str] = ()) -> Iterator[None]:
    """
    End `program` in one sentence and exit code 2 if something is raised inside that a user can fix, and with exit code
    130 if it is interrupted. `MACS_HF_TRACEBACK=1` shows where an error was raised.

    Args:
        program (`str`): Stands in front of the sentence.
        arguments (`Iterable[str]`, *optional*): The names of the command's flags.
    """
    arguments = tuple(arguments)
    try:
        with _warnings_with_flags(program, arguments):
            yield
    except KeyboardInterrupt:
        if os.environ.get("MACS_HF_TRACEBACK"):
            raise
        sys.stderr.write(f"\n{program}: interrupted\n")
        raise SystemExit(130) from None
    except Exception as error:
        text = sentence(error)
        if text is None or os.environ.get("MACS_HF_TRACEBACK"):
            raise
        sys.stderr.write(f"{program}: {redact(with_flags(text, arguments))}\n")
        raise SystemExit(2) from error


@contextmanager
def _warnings_with_flags(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """What the library logs goes to the terminal as errors do."""
    handler, library = logging.StreamHandler(sys.stderr), logging.getLogger("macs_hf")
    handler.setFormatter(_WithFlags(program, arguments))
    if arguments:
        library.addHandler(handler)
    try:
        yield
    finally:
        library.removeHandler(handler)


class _WithFlags(logging.Formatter):
    def __init__(self, program: str, arguments: Sequence[str]) -> None:
        super().__init__()
        self.program, self.arguments = program, arguments

    def format(self, record: logging.LogRecord) -> str:
        return f"{self.program}: {redact(with_flags(record.getMessage(), self.arguments))}"


def sentence(error: BaseException) -> str | None:
    """What a user has to know about an error that they can fix; `None` for any other."""
    message = _message(error)
    if _is_full_disk(error, message):
        return FULL_DISK.format(error=message)
    names = [cls.__name__ for cls in type(error).__mro__]
    for name, text in FAMILIES.items():
        if name in names:
            return _with_hint(text.format(error=message), error)
    if isinstance(error, ImportError) and not (error.name or "").startswith("macs_hf"):
        return _with_hint(message, error)
    if isinstance(error, TypeError) and _is_ours(error) and re.search(r"\(\) (got|missing|takes) ", message):
        return None  # a call that does not fit its function
    if isinstance(error, ValueError | TypeError | OSError):
        return _with_hint(message, error)
    return None


def with_flags(text: str, arguments: Iterable[str]) -> str:
    """
    A sentence with the names of arguments as flags: `image_column=...` becomes `--image_column`, `max_steps=3` becomes
    `--max_steps 3`, `skip_bad_images=True` becomes `--skip_bad_images`. Words without an underscore (`split`) are
    flags only in front of a value.
    """
    flags = {name: name for name in arguments}
    flags |= {name: flag for name, flag in RENAMED.items() if flag in flags and name not in flags}
    if not flags:
        return text
    names = "|".join(sorted(flags, key=len, reverse=True))

    def flag(found: re.Match) -> str:
        name, value = found.groups()
        if not value and "_" not in name:
            return found[0]
        return f"--{flags[name]}" + (" " if value == "=" else "")

    # Not inside quotes, paths, other words, or calls in Python.
    return re.sub(rf"(?<![\w\-.'\"/`])(?<!\w\()({names})(=\.\.\.|=True\b|=(?=\S)|(?![\w=]))", flag, text)


def _message(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    if "Original Traceback" in text:  # a worker of a DataLoader sends its traceback as text
        text = text.rpartition(f"\n{type(error).__name__}: ")[2]
    return text if _is_ours(error) else " ".join(text.split())


def _with_hint(text: str, error: BaseException) -> str:
    """Our own sentences name the fix; those of others may need their context."""
    return text if _is_ours(error) else f"{text} (MACS_HF_TRACEBACK=1 shows where)"


def _is_ours(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").split(".")[0] == "macs_hf"


def _is_full_disk(error: BaseException, message: str) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    # Rust tells the number in words; torch's writer only notices that less was written than it asked for.
    return "os error 28" in message or ("inline_container.cc" in message and "unexpected pos" in message)
