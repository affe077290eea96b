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

from macs_hf.cli.errors import plain_errors, user_message, with_flags
from macs_hf.data.sources import source_of
from macs_hf.data.streaming import check_streaming
from macs_hf.hub.deadlines import HubSilentError
from macs_hf.publishing import PushError


ANSWER = httpx.Response(503, request=httpx.Request("GET", "https://huggingface.co"))
FLAGS = ("dataset", "split", "calibration_split", "image_column", "max_steps", "skip_bad_images", "cpu", "batch_size")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Name one with image_column=...", "Name one with --image_column"),
        ("max_steps=-1: set max_steps to 5.", "--max_steps -1: set --max_steps to 5."),
        ("pass skip_bad_images=True to", "pass --skip_bad_images to"),
        ("dataset='' is empty: give a dataset.", "--dataset '' is empty: give a dataset."),
        ("test_split='a', validation_split='b'", "--split 'a', --calibration_split 'b'"),
        ("has no split 'x', choose a split", "has no split 'x', choose a split"),
        ("pass use_cpu=True, or per_device_eval_batch_size=8", "pass --cpu, or --batch_size 8"),
        ("call run(max_steps=3) or x.max_steps", "call run(max_steps=3) or x.max_steps"),
        ("the column 'image_column' of /tmp/max_steps/x", "the column 'image_column' of /tmp/max_steps/x"),
        ("`max_steps: 3` and my_max_steps and max_steps_2", "`max_steps: 3` and my_max_steps and max_steps_2"),
        ("learning_rate=3 is no flag of this command", "learning_rate=3 is no flag of this command"),
        ("(max_steps=2, then)", "(--max_steps 2, then)"),
        ("--max_steps stays", "--max_steps stays"),
    ],
)
def test_arguments_become_flags(text: str, expected: str) -> None:
    assert with_flags(text, FLAGS) == expected
    assert with_flags(text, ()) == text


def raised(make: Any) -> BaseException:
    """An error with the traceback it has when it is caught."""
    try:
        if isinstance(make, BaseException):
            raise make
        make()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


class Broken(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> None:
        raise ValueError("Image 0 cannot be read.")


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
        (lambda: next(iter(torch.utils.data.DataLoader(Broken(), num_workers=1))), "^Image 0 cannot be read"),
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


def test_the_sentence_and_the_exit_code(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as left, plain_errors("macs-hf train", ["max_steps"]):
        check_streaming(-1)
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith(
        "macs-hf train: A stream has no end, and --max_steps -1: set --max_steps"
    )


def test_warnings_have_flags_too(capsys: pytest.CaptureFixture) -> None:
    with plain_errors("macs-hf calibrate", FLAGS):
        logging.getLogger("macs_hf.data.splits").warning("Name one with validation_split=...")
    assert capsys.readouterr().err == "macs-hf calibrate: Name one with --calibration_split\n"
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


WORK = {
    "much": "[print('line') for _ in range(100_000)]",
    "little": "print('line')",
    "help": "from macs_hf.cli.main import main; main(['--help'])",
}


@pytest.mark.parametrize(("work", "unbuffered"), [("much", ""), ("much", "1"), ("little", ""), ("help", "")])
def test_output_that_nobody_reads_ends_a_command_quietly(work: str, unbuffered: str) -> None:
    code = f"from macs_hf.cli.errors import plain_errors\nwith plain_errors('macs-hf'): {WORK[work]}"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        settings = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        ended = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, env=settings)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_other_broken_pipes_are_errors(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as left, plain_errors("macs-hf train"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert left.value.code == 2 and "Broken pipe" in capsys.readouterr().err
