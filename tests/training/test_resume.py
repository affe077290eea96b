"""Stopping anywhere and resuming is the same as never stopping, to the last bit."""

from pathlib import Path
from typing import Any

import pytest
from tiny import Augmented, Images, StopAt, arguments, build, logged, same_weights, trainer
from transformers import AutoModelForImageClassification, Trainer

from macs_hf import MaCSTrainer


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
    return trainer(
        folder,
        build("swin", drop_path=0.3),
        Augmented(),
        eval_dataset=Images(8, seed=1),
        callbacks=[StopAt(stop_at)] if stop_at else None,
        **options | overrides,
    )


@pytest.mark.parametrize(("stop_at", "workers"), [(4, 0), pytest.param(6, 2, marks=pytest.mark.slow)])
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


@pytest.mark.parametrize("name", ["vit", "timm"])
def test_every_tensor_comes_back(name: str, tmp_path: Path) -> None:
    run = trainer(tmp_path, build(name), max_steps=2, save_strategy="steps", save_steps=2)
    run.train()
    fresh = trainer(tmp_path, build(name, seed=1), max_steps=2)
    assert not same_weights(run.model, fresh.model)
    fresh.train(resume_from_checkpoint=True)
    assert same_weights(run.model, fresh.model)
    reloaded = AutoModelForImageClassification.from_pretrained(tmp_path / "checkpoint-2")
    assert same_weights(run.model, reloaded)


@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_best_model_is_the_best(name: str, tmp_path: Path) -> None:
    # The highest loss counts as the best here, so that the best is not the last.
    steps = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    run = trainer(
        tmp_path,
        build(name),
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        greater_is_better=True,
        eval_dataset=Images(16, seed=1),
        **steps,
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
