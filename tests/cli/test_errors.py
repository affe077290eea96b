"""What a user can fix ends in one sentence with flags and exit code 2; bugs keep their traceback."""

import errno
import json
import logging
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest
import torch
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch._utils import ExceptionWrapper

from macs_hf.cli.errors import plain_errors
from macs_hf.data.sources import source_of
from macs_hf.data.streaming import check_streaming
from macs_hf.exceptions import ArgumentError, user_message
from macs_hf.hub import HubSilentError
from macs_hf.publishing import PushError


ANSWER = httpx.Response(503, request=httpx.Request("GET", "https://huggingface.co"))
FLAGS = ("dataset", "split", "calibration_split", "image_column", "max_steps", "skip_bad_images", "cpu", "batch_size")


@pytest.mark.parametrize(
    ("argument", "value", "in_python", "in_a_command"),
    [
        ("image_column", "x", "image_column='x' is wrong.", "--image_column 'x' is wrong."),
        ("test_split", "x", "test_split='x' is wrong.", "--split 'x' is wrong."),
        ("skip_bad_images", True, "skip_bad_images=True is wrong.", "--skip_bad_images is wrong."),
        ("max_steps", 0, "max_steps=0 is wrong.", "--max_steps 0 is wrong."),
        ("max_steps", None, "max_steps=None is wrong.", "--max_steps None is wrong."),
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
        (lambda: source_of(" "), r"dataset=' ' is empty: .*\.$"),
        (ValueError("two\n  lines"), r"two lines \(MACS_HF_TRACEBACK=1 shows where\)$"),
        (TypeError(""), "TypeError"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x"), r"\[Errno 2\] No such file: 'x'"),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full .*Free some space"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "The disk is full"),
        (RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos 704 vs 598"), "The disk is full"),
        (SafetensorError("header too large"), "A file of weights cannot be read .header too large.: it is damaged"),
        (lambda: json.loads("{"), "Expecting property name"),
        (zipfile.BadZipFile("File is not a zip file"), "A file cannot be read .*damaged or incomplete"),
        (pickle.UnpicklingError("invalid load key"), "A file cannot be read .invalid load key.*damaged"),
        (EOFError("Ran out of input"), "A file ends too early .Ran out of input.: it is damaged"),
        (pyarrow.ArrowInvalid("Not a Parquet file"), "A table cannot be read .Not a Parquet file"),
        (datasets.exceptions.DatasetGenerationError("no rows"), "no rows"),
        (HfHubHTTPError("503", response=ANSWER), "The Hub did not do what was asked .503"),
        (httpx.ConnectTimeout("timed out"), "The Hub did not do what was asked .timed out.. Try again later"),
        (HubSilentError("The Hub is silent"), r"^The Hub is silent\. Try again later, or set HF_HUB_OFFLINE=1"),
        (FloatingPointError("The loss became nan."), r"The loss became nan\."),
        (torch.OutOfMemoryError("Tried to allocate"), "Out of memory .*per_device_train_batch_size"),
        (MemoryError(), "Out of memory"),
        (NotImplementedError("get_input_embeddings"), "get_input_embeddings"),
        (ModuleNotFoundError("No module named 'wandb'", name="wandb"), "No module named 'wandb'"),
        (PushError("Pushing failed."), "Pushing failed."),
        (in_a_worker, "^Image 0 cannot be read"),
    ],
)
def test_errors_that_a_user_can_fix(error: Any, pattern: str) -> None:
    assert re.search(pattern, user_message(raised(error)))


def test_damaged_weights(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.zeros(4)}, path)
    path.write_bytes(path.read_bytes()[:20])
    assert "A file of weights cannot be read" in user_message(raised(lambda: load_file(path)))


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        AttributeError("x"),
        RuntimeError("x"),
        ImportError("cannot import name", name="macs_hf.data"),
        AssertionError(),
    ],
)
def test_bugs_keep_their_traceback(error: Exception) -> None:
    assert user_message(error) is None
    with pytest.raises(type(error)), plain_errors("macs-hf"):
        raise error


def test_calls_that_do_not_fit_are_bugs_if_they_are_ours() -> None:
    code = "def call():\n    int(nothing=1)\n    len()"
    for module, is_bug in (("macs_hf.cli.somewhere", True), ("transformers.optimization", False)):
        scope = {"__name__": module, "int": lambda *, x: x}
        exec(code, scope)
        assert (user_message(raised(scope["call"])) is None) == is_bug


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
    code = f"from macs_hf.cli.errors import plain_errors\nwith plain_errors('macs-hf'): {work}"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
