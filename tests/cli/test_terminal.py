"""What `macs-hf train`, `evaluate` and `calibrate` print: on a terminal, in a log file, quiet and verbose."""

import fcntl
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import warnings
from pathlib import Path

import datasets
import pytest
import torch
from huggingface_hub.utils import are_progress_bars_disabled
from transformers import set_seed
from transformers.utils import logging as transformers_logging

from macs_hf import METHODS, Objective
from macs_hf.cli import train
from macs_hf.cli.main import main
from macs_hf.cli.output import _held_out, quiet_libraries
from macs_hf.cli.process import ends_on_signals
from macs_hf.models.loading import load_classifier
from macs_hf.objective.objective import describe


QUICK = [
    *("--max_train_samples", "64", "--num_train_epochs", "2", "--per_device_train_batch_size", "32"),
    *("--corruptions", "none", "--use_cpu", "true", "--dataloader_pin_memory", "false", "--logging_steps", "1"),
]
NOISE = ("Writing model shards", "Loading weights", "LOAD REPORT", "{'", "it/s", "UserWarning")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal") / "model"
    set_seed(0)
    model, processor = load_classifier("tiny", [str(digit) for digit in range(10)])
    with torch.no_grad():
        model.classifier[-1].weight.mul_(30)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_a_log_of_training(here: Path, capfd: pytest.CaptureFixture) -> None:
    train.main([*QUICK, "--output_dir", "run"])
    shown, errors = capfd.readouterr()
    lines = shown.splitlines()
    assert lines[1:9] == [
        "data      digits, 10 classes: 64 train, 135 validation, 450 test images",
        "copies    between train, validation and test: none",
        "held out  135 images are too few for coverage guarantees (400): add more in a split `validation`, or name "
        "another with --calibration_split",
        "network   tiny, from scratch, 32 x 32 pixels, 79,962 weights",
        "method    recommended: cross-entropy + 0.5 x consistency (noise+blur of pixels, on 25% of the images)",
        "training  2 epochs, batches of 32, learning rate 0.005 (cosine), seed 0",
        "device    cpu, 1 process",
        "output    run",
    ]
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert len(epochs) == 2
    form = r"epoch \d/2   loss [\d.]+   accuracy .+%   ECE .+%   saved   \d:\d\d:\d\d"
    assert all(re.fullmatch(form, line) for line in epochs)
    phases = ["fitting the temperature on 135 images", "testing on 450 images", "computing intervals"]
    start = lines.index(phases[0])
    assert lines[start : start + 3] == phases
    assert any("method recommended" in line for line in lines[start:])
    assert lines[-2:] == [
        "  macs-hf app run             see it in the browser",
        "  macs-hf push run USER/NAME  push it to the Hub",
    ]
    assert not any(noise in shown + errors for noise in (*NOISE, "\x1b", "\r"))


@pytest.mark.parametrize(
    ("images", "row"),
    [
        (99, "99 images are too few to fit a temperature (100) and for coverage guarantees (400): "),
        (399, "399 images are too few for coverage guarantees (400): "),
        (400, None),
    ],
)
def test_what_too_few_held_out_images_will_not_give(images: int, row: str | None) -> None:
    found = _held_out(range(images))
    assert found == {} if row is None else found["held out"].startswith(row)


def test_what_is_minimised() -> None:
    assert describe(Objective(**METHODS["ce"])) == "cross-entropy"
    half = Objective(**METHODS["perturb_augment"] | {"augment_fraction": 0.5})
    assert describe(half) == "cross-entropy, with noise+blur on 50% of the images"
    assert describe(Objective(**METHODS["two_view_ce"])) == "cross-entropy + also on images with noise+blur"


def test_verbose_and_quiet(here: Path, capfd: pytest.CaptureFixture) -> None:
    train.main([*QUICK, "--output_dir", "run", "--verbose"])
    shown, errors = capfd.readouterr()
    assert "{'loss': " in shown and "Writing model shards" in errors and "data      digits" in shown
    train.main([*QUICK, "--output_dir", "run", "--quiet"])  # they change nothing of a run: it is the same one
    shown, errors = capfd.readouterr()
    assert shown == "" and all(line.startswith("macs-hf train: ") for line in errors.splitlines())
    assert "Continuing from run/checkpoint-4" in errors
    with pytest.raises(SystemExit):
        train.main([*QUICK, "--quiet", "--verbose"])
    assert "--quiet" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_a_log_of_measuring(command: str, model: Path, here: Path, capfd: pytest.CaptureFixture) -> None:
    words = [command, str(model), "--dataset", "digits", "--cpu", "--output_dir", "out", "--max_samples", "120"]
    assert main(words) == 0
    shown, errors = capfd.readouterr()
    lines = shown.splitlines()
    assert lines[0].startswith(f"macs-hf {command} ")
    fitted = "" if command == "evaluate" else "120 train (a tenth, split off) images to calibrate, "
    tested = "120 test images" if command == "evaluate" else "120 test images to test"
    if command == "calibrate":
        assert lines.pop(2).startswith("held out  120 images are too few for coverage guarantees (400): add more in")
    assert lines[1:5] == [
        f"data      digits, 10 classes: {fitted}{tested}",
        "network   model, 32 x 32 pixels, 79,962 weights",
        "device    cpu, 1 process",
        "output    out",
    ]
    assert "testing on 120 images" in lines and "drawing the pictures" in lines
    assert ("fitting the temperature on 120 images" in lines) == (command == "calibrate")
    # A network that nobody trained: it is neither to be calibrated nor pushed.
    following = f"macs-hf app {model} --dataset digits" if command == "evaluate" else "macs-hf app out"
    assert lines[lines.index("Next:") + 1 :] == [f"  {following}  see it in the browser"]
    assert not any(noise in shown + errors for noise in (*NOISE, "\x1b", "\r"))
    assert main([*words, "--quiet"]) == 0
    assert capfd.readouterr().out == ""


def test_other_libraries_speak_again_afterwards() -> None:
    logger = logging.getLogger("transformers")
    before = logger.level, transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    with quiet_libraries():
        assert logger.level == logging.ERROR and not transformers_logging.is_progress_bar_enabled()
        assert datasets.utils.are_progress_bars_disabled() and are_progress_bars_disabled()
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn("unheard", UserWarning, stacklevel=1)
        assert not caught
    assert (logger.level, transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_signals_end_a_command_in_one_line_of_the_main_process(
    number: signal.Signals, rank: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as left, ends_on_signals("macs-hf evaluate", lambda: "Start again."):
        os.kill(os.getpid(), number)
        signal.sigtimedwait({signal.SIGUSR1}, 5)  # until the handler has run
    assert left.value.code == 128 + number
    line = f"macs-hf evaluate: Stopped by {number.name}. Start again.\n"
    assert capsys.readouterr().err == (line if rank == "0" else "")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.slow
def test_on_a_terminal_there_is_one_bar_and_every_line_fits(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    words = ["-m", "macs_hf.cli", "train", *QUICK, "--logging_steps", "1"]
    process = subprocess.Popen(
        [sys.executable, *words], cwd=tmp_path, env=environment | {"TERM": "xterm"}, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait() == 0
    text = seen.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")
    lines = [line for line in plain.splitlines() if line.strip()]
    assert max(map(len, lines)) <= 80
    assert any(re.match(r"epoch 1/2 .*━.* [0-4]/4 ", line) for line in lines)
    # What reads images has a bar of its own, which goes away.
    assert not any(noise in plain for noise in NOISE if noise != "it/s")
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") > 0  # the cursor is back
