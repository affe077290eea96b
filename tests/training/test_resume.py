"""Stopping anywhere and resuming is the same as never stopping, to the last bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import Augmented, Images, StopAt, arguments, build, logged, same_weights, trainer
from transformers import AutoModelForImageClassification, Trainer, TrainerCallback

from macs_hf import MaCSTrainer
from macs_hf.training.checkpoints import last_complete_checkpoint


class KillAt(TrainerCallback):
    """Ends its own process at once after a step, as a power failure would: nothing is cleaned up or flushed."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def start(folder: Path | str, stop_at: int | None = None, workers: int = 0, **overrides: Any) -> MaCSTrainer:
    """Twelve steps of three per epoch, drop-path on, evaluating as it goes."""
    options = {
        "max_steps": 12,
        "save_strategy": "steps",
        "save_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "dataloader_num_workers": workers,
    }
    return MaCSTrainer(
        model=build("swin", drop_path=0.3),
        args=arguments(folder, **options | overrides),
        train_dataset=Augmented(),
        eval_dataset=Images(8, seed=1),
        callbacks=[StopAt(stop_at)] if stop_at else None,
    )


@pytest.mark.parametrize(("stop_at", "workers"), [(4, 0), (6, 0), (7, 2)], ids=["mid-epoch", "epoch-end", "2-workers"])
def test_stopped_and_resumed_equals_never_stopped(stop_at: int, workers: int, tmp_path: Path) -> None:
    whole = start(tmp_path / "whole", workers=workers)
    whole.train()
    start(tmp_path / "parts", stop_at=stop_at, workers=workers).train()
    resumed = start(tmp_path / "parts", workers=workers)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 12
    assert same_weights(whole.model, resumed.model)
    assert logged(whole, "loss")[stop_at:] == logged(resumed, "loss")[-(12 - stop_at) :]


def test_number_of_workers_does_not_change_augmentation(tmp_path: Path) -> None:
    # Without drop-path: torch's loader draws a different number of seeds from the generator that it shares.
    runs = [trainer(tmp_path, build("swin"), Augmented(), dataloader_num_workers=workers) for workers in (0, 2)]
    for run in runs:
        run.train()
    assert same_weights(*(run.model for run in runs))


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from training.test_resume import KillAt, start
run = start({folder!r}, save_steps=3, eval_strategy="no")
run.add_callback(KillAt(4))
run.train()
"""


def test_killed_between_two_checkpoints_and_resumed_equals_never_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    script = KILLED.format(tests=str(Path(__file__).parents[1]), folder=str(folder))
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr[-3000:]
    assert last_complete_checkpoint(folder) == folder / "checkpoint-3"

    whole = start(tmp_path / "whole", save_strategy="no", eval_strategy="no")
    resumed = start(folder, save_strategy="no", eval_strategy="no")
    whole.train()
    resumed.train(resume_from_checkpoint=True)
    assert same_weights(whole.model, resumed.model)


def test_a_checkpoint_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    start(tmp_path, stop_at=2).train()
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text('{"best')
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    resumed = start(tmp_path, max_steps=3)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 3


def test_resume_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No valid checkpoint found in output directory"):
        start(tmp_path).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("name", ["vit", "swin", "resnet", "timm"])
def test_every_tensor_comes_back(name: str, tmp_path: Path) -> None:
    run = trainer(tmp_path, build(name), max_steps=2, save_strategy="steps", save_steps=2)
    run.train()
    fresh = trainer(tmp_path, build(name, seed=1), max_steps=2)
    assert not same_weights(run.model, fresh.model)
    fresh.train(resume_from_checkpoint=True)
    assert same_weights(run.model, fresh.model)
    reloaded = AutoModelForImageClassification.from_pretrained(tmp_path / "checkpoint-2")
    assert same_weights(run.model, reloaded)


@pytest.mark.parametrize("name", ["vit", "swin", "resnet", "timm"])
def test_best_model_is_the_best(name: str, tmp_path: Path) -> None:
    # The highest loss counts as the best here, so that the best is not the last.
    run = MaCSTrainer(
        model=build(name),
        args=arguments(
            tmp_path,
            max_steps=4,
            save_strategy="steps",
            save_steps=1,
            eval_strategy="steps",
            eval_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model="loss",
            greater_is_better=True,
        ),
        train_dataset=Images(),
        eval_dataset=Images(16, seed=1),
    )
    run.train()
    losses = logged(run, "eval_loss")
    assert losses.index(max(losses)) != len(losses) - 1
    assert run.evaluate()["eval_loss"] == pytest.approx(max(losses), abs=1e-6)


def test_plain_trainer_loses_weights_here(tmp_path: Path) -> None:
    """The reason for `restore_weights`: if this fails, Trainer has learned to do it, and the override can go."""
    run = trainer(tmp_path, build("vit"), max_steps=2, save_strategy="steps", save_steps=2)
    run.train()
    plain = Trainer(model=build("vit", seed=1), args=arguments(tmp_path, max_steps=2), train_dataset=Images())
    plain.train(resume_from_checkpoint=True)
    assert not same_weights(run.model, plain.model)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, build("vit"), max_steps=1, save_strategy="steps", save_steps=1).train()
    with pytest.raises(ValueError, match="does not fit ResNetForImageClassification"):
        trainer(tmp_path, build("resnet")).train(resume_from_checkpoint=True)
