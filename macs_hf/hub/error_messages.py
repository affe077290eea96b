"""What a user has to know about an error that they can fix, in one sentence.

Errors of other libraries are known by the names of their classes, so that none of them is imported for it.
"""

import errno
import re


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


def user_message(error: BaseException) -> str | None:
    """What a user has to know about an error that they can fix; `None` for any other."""
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
