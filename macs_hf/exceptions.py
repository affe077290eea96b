"""Errors that a user can fix: checks that raise them, and what they say in one sentence."""

import errno
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

# Added to the sentences of other libraries, which may need their context.
HINT = " (MACS_HF_TRACEBACK=1 shows where)"

# Beside ValueError, TypeError, OSError and ImportError, which the library and its dependencies raise about input.
DAMAGED = "A file cannot be read ({error}): it is damaged or incomplete."
FAMILIES = {
    **dict.fromkeys(("SafetensorError", "BadZipFile", "UnpicklingError", "ArrowException", "EOFError"), DAMAGED),
    "HubSilentError": "{error}. Try again later, or set HF_HUB_OFFLINE=1 if what is needed was downloaded before.",
    "HTTPError": "The Hub did not do what was asked ({error}). Try again later.",
    "OutOfMemoryError": "Out of memory ({error}). Lower per_device_train_batch_size and raise "
    "gradient_accumulation_steps, or lower per_device_eval_batch_size.",
    "MemoryError": "Out of memory. Lower the batch sizes, or dataloader_num_workers.",
    **dict.fromkeys(("DatasetsError", "FloatingPointError", "NotImplementedError"), "{error}"),
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
    text, ours = str(error).strip() or type(error).__name__, _is_ours(error)
    if "Original Traceback" in text:  # a worker of a DataLoader sends its traceback as text
        text = text.rpartition(f"\n{type(error).__name__}: ")[2]
    text = " ".join(text.split())  # names of classes may hold anything
    if _is_full_disk(error, text):
        return FULL_DISK.format(error=text)
    kinds = [cls.__name__ for cls in type(error).__mro__]
    family = next((text for name, text in FAMILIES.items() if name in kinds), None)
    if isinstance(error, ImportError) and (error.name or "").startswith("macs_hf"):
        return None
    if family is None and not isinstance(error, ValueError | TypeError | OSError | ImportError):
        return None
    # Our own sentences name the fix; those of others may need their context.
    return (family or "{error}").format(error=text) + ("" if ours else HINT)


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


# ---- Labels ----


MAP_LABELS = "Map the labels to 0 .. classes - 1, or give the model a head of the right size."


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
