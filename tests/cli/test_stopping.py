"""`macs-hf train` that is stopped, started again, or asked to continue from what it cannot continue from exactly."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Run
from tiny import same_weights
from transformers import TrainerCallback

from macs_hf.cli import train


QUICK = [
    *("--max_train_samples", "96", "--num_train_epochs", "2", "--per_device_train_batch_size", "32"),
    *("--corruptions", "none", "--disable_tqdm", "true", "--use_cpu", "true", "--dataloader_pin_memory", "false"),
]


class Send(TrainerCallback):
    def __init__(self, number: int) -> None:
        self.number = number

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            os.kill(os.getpid(), self.number)


def refused(run: Run, capsys: pytest.CaptureFixture, *argv: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        run(*argv)
    assert left.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def stopped(run: Run, capfd: pytest.CaptureFixture, number: signal.Signals) -> int:
    """The exit code of a command that leaves a checkpoint and neither a model, nor a card, nor a report."""
    with pytest.raises(SystemExit) as left:
        run("--output_dir", "run", callbacks=[Send(number)])
    line = capfd.readouterr().err.splitlines()[-1]
    assert number.name in line and "run/checkpoint-4" in line
    # The checkpoint of the first epoch has made room.
    assert sorted(path.name for path in Path("run").iterdir()) == ["checkpoint-4", "run.json"]
    return left.value.code


def test_sigterm_stops_a_command_and_the_same_command_goes_on(run: Run, capfd: pytest.CaptureFixture) -> None:
    assert stopped(run, capfd, signal.SIGTERM) == 143
    whole, again = run("--output_dir", "whole"), run("--output_dir", "run")
    assert again.state.global_step == 6 and same_weights(whole.model, again.model)
    assert Path("run", "README.md").exists()


def test_ctrl_c_stops_a_command(run: Run, capfd: pytest.CaptureFixture) -> None:
    assert stopped(run, capfd, signal.SIGINT) == 130


@pytest.mark.parametrize(
    ("saving", "origin", "number"),
    [("epoch", "run/checkpoint-6", signal.SIGTERM), ("no", "the beginning", signal.SIGINT)],
)
def test_a_signal_after_training_says_where_the_same_command_goes_on(
    saving: str,
    origin: str,
    number: signal.Signals,
    run: Run,
    capfd: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train, "evaluate_checkpoint", lambda *args, **kwargs: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit) as left:
        run("--output_dir", "run", "--save_strategy", saving)
    assert left.value.code == 128 + number
    line = capfd.readouterr().err.splitlines()[-1]
    assert number.name in line and origin in line
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.fixture
def finished(run: Run) -> Path:
    run("--output_dir", "run", "--save_total_limit", "5")
    return Path("run")


def test_an_incomplete_checkpoint_is_refused_and_its_weights_can_be_taken(
    run: Run, finished: Path, capsys: pytest.CaptureFixture
) -> None:
    (finished / "checkpoint-6" / "optimizer.pt").unlink()
    line = refused(run, capsys, "--output_dir", "other", "--resume_from_checkpoint", "run/checkpoint-6")
    assert "optimizer.pt" in line and "'run/checkpoint-6'" in line
    shutil.rmtree(finished / "checkpoint-3")
    assert "optimizer.pt" in refused(run, capsys, "--output_dir", "run")
    assert run("--model", "run/checkpoint-6", "--output_dir", "anew").state.global_step == 6


def test_a_command_goes_on_from_the_newest_whole_checkpoint(
    run: Run, finished: Path, capsys: pytest.CaptureFixture
) -> None:
    (finished / "checkpoint-6" / "rng_state.pth").write_bytes(b"")
    run("--output_dir", "run", "--save_total_limit", "5")
    error = capsys.readouterr().err
    skipped, continued = (next(line for line in error.splitlines() if name in line) for name in ("-6", "-3"))
    assert "rng_state.pth" in skipped and "Continuing" in continued


def test_a_checkpoint_of_another_command_is_refused(run: Run, finished: Path, capsys: pytest.CaptureFixture) -> None:
    words = ("--output_dir", "other", "--resume_from_checkpoint", "run/checkpoint-3")
    line = refused(run, capsys, *words, "--method", "ce")
    assert "lambda_consistency: 0.5, now 0.0" in line
    longer = run(*words, "--num_train_epochs", "3")
    assert longer.state.global_step == 9
    assert "num_train_epochs: 2.0, now 3" in capsys.readouterr().err
    record = json.loads(Path("other", "checkpoint-9", "checkpoint.json").read_text())
    assert (record["run"]["dataset"], record["run"]["method"]) == ("digits", "recommended")
