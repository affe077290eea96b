"""What a log file gets to see of a run: one line an epoch. Tests of the commands have a terminal."""

import io
from pathlib import Path
from typing import Any

import pytest
from tiny import Images, build, same_weights, trainer
from transformers import Trainer, TrainingArguments

from macs_hf import MaCSTrainer
from macs_hf.training import TerminalCallback
from macs_hf.training.callbacks import Screen


def shown(folder: Path, screen: Screen, **options: Any) -> MaCSTrainer:
    """Trained for two epochs of four steps, with an entry in the log every three steps."""
    usual = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "logging_steps": 3, "max_steps": -1}
    usual |= {"eval_strategy": "epoch", "save_strategy": "epoch"}
    run = trainer(folder, build("vit"), Images(32), eval_dataset=Images(20, seed=1), **usual | options)
    TerminalCallback(screen).add_to(run)
    run.train()
    return run


def test_a_log_file_has_a_line_an_epoch_and_the_run_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    log = io.StringIO()
    run = shown(tmp_path / "a", Screen(file=log))
    losses = {entry["step"]: entry["loss"] for entry in run.state.log_history if "loss" in entry}
    scores = [entry for entry in run.state.log_history if "eval_accuracy" in entry]
    assert sorted(losses) == [3, 4, 6, 8]  # the ends of both epochs too
    means = [(3 * losses[3] + losses[4]) / 4, (2 * losses[6] + 2 * losses[8]) / 4]
    for number, (line, mean, found) in enumerate(zip(log.getvalue().splitlines(), means, scores, strict=True), 1):
        accuracy, ece = f"{100 * found['eval_accuracy']:5.2f}%", f"{100 * found['eval_ece']:5.2f}%"
        start = f"epoch {number}/2   loss {mean:.4f}   accuracy {accuracy}   ECE {ece}   saved   0:"
        assert line.startswith(start), line
    printed = capsys.readouterr()
    assert "loss" not in printed.out + printed.err
    plain = MaCSTrainer(build("vit"), run.args, train_dataset=Images(32), eval_dataset=Images(20, seed=1))
    plain.args.output_dir = str(tmp_path / "b")
    plain.train()
    assert same_weights(run.model, plain.model)


def test_a_plain_trainer_can_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    log = io.StringIO()
    args = TrainingArguments(
        str(tmp_path), num_train_epochs=1, report_to="none", use_cpu=True, disable_tqdm=True, save_strategy="no"
    )
    run = Trainer(model=build("vit"), args=args, train_dataset=Images(16), eval_dataset=Images(8, seed=1))
    TerminalCallback(Screen(file=log)).add_to(run)
    run.train()
    run.evaluate()
    first, second = log.getvalue().splitlines()
    assert first.startswith("epoch 1/1   loss ") and second.startswith("evaluated   validation loss ")
    assert capsys.readouterr().out == ""


def test_other_processes_show_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaCSTrainer, "is_world_process_zero", lambda self: False)
    log = io.StringIO()
    shown(tmp_path, Screen(file=log), save_strategy="no")
    assert log.getvalue() == ""
