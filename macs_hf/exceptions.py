"""Errors that a user can fix: checks that raise them, and what they say in one sentence."""

import errno
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np


# ---- An argument that is wrong ----


class ArgumentError(ValueError):
    """
    An argument that has to be another one. The command line writes its flag in place of its name, the app its field.

    Args:
        argument (`str`): Its name.
        message (`str`): The rest of the sentence, which begins with the argument and its value; or ends with the
            argument, if it has no value yet.
        value (`Any`, *optional*): What it is.

    Example:

    ```python
    >>> from macs_hf.exceptions import ArgumentError
    >>> error = ArgumentError("test_split", "is not one of 'test', 'train'.", "tset")
    >>> str(error), error.sentence("--split")
    ("test_split='tset' is not one of 'test', 'train'.", "--split 'tset' is not one of 'test', 'train'.")
    >>> error = ArgumentError("test_split", "There is no split 'test'. Name one with")
    >>> str(error), error.sentence("--split")
    ("There is no split 'test'. Name one with test_split=...", "There is no split 'test'. Name one with --split")

    ```
    """

    def __init__(self, argument: str, message: str, value: Any = ...) -> None:
        super().__init__(argument, message, value)  # all of them, so that another process can send it
        self.argument, self.message, self.value = argument, message, value

    def __str__(self) -> str:
        if self.value is ...:
            return f"{self.message} {self.argument}=..."
        return f"{self.argument}={self.value!r} {self.message}"

    def sentence(self, name: str) -> str:
        """The whole sentence, with another name of the argument."""
        if self.value is ...:
            return f"{self.message} {name}"
        return f"{name} {self.message}" if self.value is True else f"{name} {self.value!r} {self.message}"


# ---- Errors in one sentence ----
# Errors of other libraries are known by the names of their classes, so that none of them is imported for it.


FULL_DISK = "The disk is full ({error}). Free some space, then start the same command again."

# What `datasets` says of a file that it streams.
CUT_STREAM = "Server Disconnected"

# Added to the sentences of other libraries, which may need their context.
HINT = " (MACS_HF_TRACEBACK=1 shows where)"

# Beside ValueError, TypeError, OSError and ImportError, which the library and its dependencies raise about input.
FAMILIES = {
    "SafetensorError": "A file of weights cannot be read ({error}): it is damaged or incomplete.",
    "BadZipFile": "A file cannot be read ({error}): it is damaged or incomplete.",
    "UnpicklingError": "A file cannot be read ({error}): it is damaged, or holds more than weights and numbers.",
    "ArrowException": "A table cannot be read ({error}): it is damaged or incomplete.",
    "EOFError": "A file ends too early ({error}): it is damaged or incomplete.",
    "DatasetsError": "{error}",
    "HubSilentError": "{error}. Try again later, or set HF_HUB_OFFLINE=1 if what is needed was downloaded before.",
    "HTTPError": "The Hub did not do what was asked ({error}). Try again later.",
    "FloatingPointError": "{error}",
    "NotImplementedError": "{error}",
    "OutOfMemoryError": "Out of memory ({error}). Lower per_device_train_batch_size and raise "
    "gradient_accumulation_steps, or lower per_device_eval_batch_size.",
    "MemoryError": "Out of memory. Lower the batch sizes, or dataloader_num_workers.",
}


def user_message(error: BaseException, names: Mapping[str, str] | None = None) -> str | None:
    """
    What a user has to know about an error that they can fix; `None` for any other.

    Args:
        error (`BaseException`): As raised.
        names (`Mapping[str, str]`, *optional*): What the user calls the arguments of the library.
    """
    if isinstance(error, ArgumentError):
        return error.sentence(names[error.argument]) if error.argument in (names or {}) else str(error)
    message = _message(error)
    if _is_full_disk(error, message):
        return FULL_DISK.format(error=message)
    if isinstance(error, ConnectionError) and message == CUT_STREAM:
        return "The connection to the Hub is cut again and again while the dataset is streamed. Try again later."
    if isinstance(error, RuntimeError) and message.startswith("Symlink loop from "):  # by `Path.resolve`
        return f"{message}: it is a link to itself. Remove it, or name another."
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


def _message(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    if "Original Traceback" in text:  # a worker of a DataLoader sends its traceback as text
        text = text.rpartition(f"\n{type(error).__name__}: ")[2]
    return text if _is_ours(error) else " ".join(text.split())


def _with_hint(text: str, error: BaseException) -> str:
    """Our own sentences name the fix; those of others may need their context."""
    return text if _is_ours(error) else text + HINT


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


# ---- Checks of single values ----
# Messages begin with the name of the field, so that a reader can put a path before it.


# Means and quantiles of the same numbers may differ in the last digits.
ROUNDING = 1e-6
MAP_LABELS = "Map the labels to 0 .. classes - 1, or give the model a head of the right size."


def check_range(name: str, value: float | None, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse a number that is not finite or lies outside of [low, high], but for rounding; `None` is not checked."""
    if value is None:
        return
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    if not low - ROUNDING <= value <= high + ROUNDING:
        bounds = f"at least {low:g}" if high == math.inf else f"within [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {bounds}, got {value}")


def check_share(name: str, value: float | None) -> None:
    """Refuse what is no share, as accuracies, confidences and calibration errors are."""
    check_range(name, value, 0.0, 1.0)


def check_count(name: str, value: int | None, at_least: int = 0) -> None:
    """Refuse what is no whole number of things."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


def check_labels(labels: Any, classes: int, where: str = "labels", advice: str = MAP_LABELS) -> None:
    """
    Refuse class numbers outside [0, classes).

    Args:
        labels (`np.ndarray` or `torch.Tensor` of shape `(n,)`): On the CPU; wide enough to hold `classes`.
        classes (`int`): Number of classes.
        where (`str`, *optional*): What holds the labels, for the message.
        advice (`str`, *optional*): What to do, for the message.
    """
    wrong = np.flatnonzero(~((labels >= 0) & (labels < classes)))  # a missing label, in a stream, is NaN
    if len(wrong):
        row, others = int(wrong[0]), f" ({len(wrong)} such rows)" if len(wrong) > 1 else ""
        label = labels[row].item()
        raise ValueError(f"Label {label} of row {row} in {where} is outside [0, {classes}){others}. {advice}")
