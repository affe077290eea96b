"""What a user can fix ends in one sentence with flags and exit code 2; bugs keep their traceback."""

import errno
import logging
import os
import pickle
import re
import subprocess
import sys
import zipfile
from typing import Any

import datasets
import pyarrow
import pytest
import torch
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx
from safetensors import SafetensorError
from safetensors.torch import load
from torch._utils import ExceptionWrapper

from macs_hf.cli.process import plain_errors
from macs_hf.data.streaming import check_streaming
from macs_hf.exceptions import ArgumentError, user_message
from macs_hf.hub import HubSilentError
from macs_hf.publishing import PushError


ANSWER = httpx.Response(503, request=httpx.Request("GET", "https://huggingface.co"))
FLAGS = ("split", "image_column", "max_steps", "skip_bad_images")


@pytest.mark.parametrize(
    ("argument", "value", "in_python", "in_a_command"),
    [
        ("image_column", "x", "image_column='x' is wrong.", "--image_column 'x' is wrong."),
        ("test_split", "x", "test_split='x' is wrong.", "--split 'x' is wrong."),
        ("skip_bad_images", True, "skip_bad_images=True is wrong.", "--skip_bad_images is wrong."),
        ("max_steps", ..., "is wrong. max_steps=...", "is wrong. --max_steps"),
        ("model", "x", "model='x' is wrong.", "MODEL 'x' is wrong."),
        ("no_flag_of_this_command", 3, "no_flag_of_this_command=3 is wrong.", "no_flag_of_this_command=3 is wrong."),
    ],
)
def test_an_error_names_its_argument(
    argument: str, value: Any, in_python: str, in_a_command: str, capsys: pytest.CaptureFixture
) -> None:
    error = ArgumentError(argument, "is wrong.", value)
    assert str(error) == in_python == str(pickle.loads(pickle.dumps(error)))
    with pytest.raises(SystemExit) as left, plain_errors("macs-hf evaluate", FLAGS, positional=["model"]):
        raise error
    assert left.value.code == 2 and capsys.readouterr().err == f"macs-hf evaluate: {in_a_command}\n"


def raised(make: Any) -> BaseException:
    """An error with the traceback it has when it is caught."""
    try:
        if isinstance(make, BaseException):
            raise make
        make()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def in_a_worker() -> None:
    """What the main process raises in place of an error of a worker of a DataLoader."""
    try:
        raise ValueError("Image 0 cannot be read.")
    except ValueError:
        ExceptionWrapper(where="in DataLoader worker process 0").reraise()


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        (lambda: check_streaming(-1), r"A stream has no end, and max_steps=-1: set max_steps to the last .*\.$"),
        (ValueError("two\n  lines"), r"^two lines \(MACS_HF_TRACEBACK=1 shows where\)$"),
        (TypeError(""), "TypeError"),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "The disk is full"),
        (RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos 704 vs 598"), "The disk is full"),
        (lambda: load(b"\x10"), "A file cannot be read .*: it is damaged or incomplete"),
        (zipfile.BadZipFile("File is not a zip file"), "damaged or incomplete"),
        (pyarrow.ArrowInvalid("Not a Parquet file"), "damaged or incomplete"),
        (datasets.exceptions.DatasetGenerationError("no rows"), "no rows"),
        (HfHubHTTPError("503", response=ANSWER), "The Hub did not do what was asked .503"),
        (HubSilentError("The Hub is silent"), r"^The Hub is silent\. Try again later, or set HF_HUB_OFFLINE=1"),
        (FloatingPointError("The loss became nan."), r"The loss became nan\."),
        (torch.OutOfMemoryError("Tried to allocate"), "Out of memory .*per_device_train_batch_size"),
        (ModuleNotFoundError("No module named 'wandb'", name="wandb"), "No module named 'wandb'"),
        (PushError("Pushing failed."), "Pushing failed."),
        (in_a_worker, "^Image 0 cannot be read"),
    ],
)
def test_errors_that_a_user_can_fix(error: Any, pattern: str) -> None:
    assert re.search(pattern, user_message(raised(error)))


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        RuntimeError("x"),
        ImportError("cannot import name", name="macs_hf.data"),
    ],
)
def test_bugs_keep_their_traceback(error: Exception) -> None:
    assert user_message(error) is None
    with pytest.raises(type(error)), plain_errors("macs-hf"):
        raise error


def test_warnings_are_written_as_errors_are(capsys: pytest.CaptureFixture) -> None:
    with plain_errors("macs-hf calibrate", FLAGS):
        logging.getLogger("macs_hf.data.sources").warning("Mind this.")
    assert capsys.readouterr().err == "macs-hf calibrate: Mind this.\n"
    assert not logging.getLogger("macs_hf").handlers


def test_an_interrupt_is_a_line(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as left, plain_errors("macs-hf train"):
        raise KeyboardInterrupt
    assert left.value.code == 130
    assert capsys.readouterr().err == "\nmacs-hf train: interrupted\n"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_traceback_on_request(error: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACS_HF_TRACEBACK", "1")
    with pytest.raises(error), plain_errors("macs-hf train"):
        raise error


@pytest.mark.parametrize("work", ["[print('line') for _ in range(100_000)]", "import this"])
def test_output_that_nobody_reads_ends_a_command_quietly(work: str) -> None:
    """Written while it works, or when it ends."""
    code = f"from macs_hf.cli.process import plain_errors\nwith plain_errors('macs-hf'): {work}"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
