"""Stopping anywhere and resuming is the same as never stopping, to the last bit, or a warning names what is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import Augmented, Images, StopAt, arguments, build, logged, same_weights, trainer
from transformers import AutoModelForImageClassification, Trainer

from macs_hf import METHODS, MaCSTrainer
from macs_hf.training.checkpoints import checkpoint_to_resume, identity_of


# The highest loss counts as the best, so that the best is not the last.
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
EACH_STEP = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}


def start(folder: Path, data: Any = None, stop_at: int | None = None, **overrides: Any) -> MaCSTrainer:
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1} | overrides
    return trainer(
        folder,
        build("vit"),
        data or Images(),
        eval_dataset=Images(8, seed=1),
        callbacks=[StopAt(stop_at)] if stop_at else None,
        run_facts={"dataset": "images"},
        **options,
    )


def inexact(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings about what is not exact."""
    return [message for message in caplog.messages if "not exactly" in message]


# ---- Exactly ----


@pytest.mark.parametrize(("stop_at", "workers"), [(4, 0), pytest.param(6, 2, marks=pytest.mark.slow)])
def test_stopped_and_resumed_equals_never_stopped(stop_at: int, workers: int, tmp_path: Path) -> None:
    def run(folder: str, stop_at: int | None = None, resume: bool = False) -> MaCSTrainer:
        """Twelve steps of three per epoch, drop-path on, evaluating as it goes."""
        options = EACH_STEP | {"eval_steps": 2, "max_steps": 12, "dataloader_num_workers": workers}
        callbacks = [StopAt(stop_at)] if stop_at else None
        held_out, model = Images(8, seed=1), build("swin", drop_path=0.3)
        made = trainer(tmp_path / folder, model, Augmented(), eval_dataset=held_out, callbacks=callbacks, **options)
        made.train(resume_from_checkpoint=resume)
        return made

    whole = run("whole")
    run("parts", stop_at)
    resumed = run("parts", resume=True)
    assert resumed.state.global_step == 12
    assert same_weights(whole.model, resumed.model)
    assert logged(whole, "loss")[stop_at:] == logged(resumed, "loss")[-(12 - stop_at) :]


def test_number_of_workers_does_not_change_augmentation(tmp_path: Path) -> None:
    # Without drop-path: torch's loader draws a different number of seeds from the generator that it shares.
    runs = [trainer(tmp_path, build("swin"), Augmented(), dataloader_num_workers=workers) for workers in (0, 2)]
    for run in runs:
        run.train()
    assert same_weights(*(run.model for run in runs))


# ---- Damaged ----


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps that was stopped after two, with a checkpoint of each."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    start(folder, stop_at=2).train()
    return folder


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, to damage."""
    return shutil.copytree(stopped, tmp_path / "run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> MaCSTrainer:
    """The same run, never stopped."""
    run = start(tmp_path_factory.mktemp("runs") / "whole")
    run.train()
    return run


def resumed(run: MaCSTrainer, checkpoint: str | bool) -> str | None:
    return checkpoint_to_resume(checkpoint, run.args, identity_of(run.args, run.train_dataset, run.run_facts))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    "damage",
    [
        lambda checkpoint: cut(checkpoint / "optimizer.pt"),
        lambda checkpoint: [path.unlink() for path in checkpoint.iterdir()],
    ],
    ids=["cut", "empty"],
)
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_line(
    damage: Callable[[Path], Any], folder: Path, whole: MaCSTrainer, caplog: pytest.LogCaptureFixture
) -> None:
    damage(folder / "checkpoint-2")
    with pytest.raises(ValueError, match=r"checkpoint-2' as if it had not stopped"):
        resumed(start(folder), str(folder / "checkpoint-2"))
    run = start(folder)
    run.train(resume_from_checkpoint=True)
    assert f"{folder / 'checkpoint-2'} is skipped: " in caplog.text
    assert run.state.global_step == 4 and same_weights(whole.model, run.model)


def test_without_another_checkpoint_the_sentence_says_how_to_use_the_weights(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint-1")
    (folder / "checkpoint-2" / "optimizer.pt").unlink()
    with pytest.raises(ValueError, match=r"optimizer.pt is missing. To start a new run from its weights, load model="):
        start(folder).train(resume_from_checkpoint=True)
    AutoModelForImageClassification.from_pretrained(folder / "checkpoint-2")


def test_damaged_weights_of_plain_trainer_are_refused_when_they_are_read(folder: Path) -> None:
    (folder / "checkpoint-2" / "checkpoint.json").unlink()
    cut(folder / "checkpoint-2" / "model.safetensors")
    with pytest.raises(ValueError, match=r"checkpoint-2 are damaged"):
        start(folder).train(resume_from_checkpoint=True)


def test_a_best_model_damaged_or_gone_is_missed_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    best = BEST | EACH_STEP
    run = start(tmp_path, max_steps=2, **best)
    run.train()
    assert run.state.best_model_checkpoint == str(tmp_path / "checkpoint-1")
    cut(tmp_path / "checkpoint-1" / "model.safetensors")
    with pytest.raises(ValueError, match=r"saved in '.*checkpoint-1', and model.safetensors .*load_best_model"):
        start(tmp_path, max_steps=3, **best).train(resume_from_checkpoint=True)
    start(tmp_path, max_steps=3, **best | {"load_best_model_at_end": False}).train(resume_from_checkpoint=True)
    shutil.rmtree(tmp_path / "checkpoint-1")
    start(tmp_path, max_steps=4, **best).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert str(tmp_path / "checkpoint-1") in inexact(caplog)[-1]


# ---- What Trainer goes on with ----


def plain_run(kind: type[Trainer], folder: Path, stop_at: int | None = None, **overrides: Any) -> Trainer:
    """Cross-entropy on a model that plain `Trainer` restores whole."""
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "method": "ce"} | overrides
    return kind(
        model=build("timm"),
        args=arguments(folder, **options),
        train_dataset=Images(),
        callbacks=[StopAt(stop_at)] if stop_at else None,
    )


@pytest.mark.parametrize("change", [{}, {"per_device_train_batch_size": 4, "learning_rate": 1e-3}])
def test_a_checkpoint_of_plain_trainer_goes_on_as_with_plain_trainer(
    change: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain_run(Trainer, tmp_path / "plain", stop_at=2).train()
    runs = []
    for kind in (Trainer, MaCSTrainer):
        run = plain_run(kind, shutil.copytree(tmp_path / "plain", tmp_path / kind.__name__), **change)
        run.train(resume_from_checkpoint=True)
        runs.append(run)
    assert runs[0].state.global_step == runs[1].state.global_step == 4
    assert same_weights(runs[0].model, runs[1].model)
    (warning,) = inexact(caplog)
    assert "checkpoint.json" in warning


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed: 42, now 1"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches: False, now True"),
        ({"data": Images(24)}, "training_samples: 32, now 24"),
        ({"ignore_data_skip": True}, "ignore_data_skip=True"),
        ({"logging_steps": 3, "save_steps": 2, "per_device_eval_batch_size": 4}, None),  # not about what is learned
    ],
)
def test_another_recipe_goes_on_with_one_warning_that_names_it(
    change: dict[str, Any], named: str | None, stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert resumed(start(stopped, **change), True) == str(stopped / "checkpoint-2")
    assert len(inexact(caplog)) == (named is not None) and (named or "") in caplog.text


def test_all_differences_are_in_one_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Among them another number of processes, and facts of the user's own."""
    path = folder / "checkpoint-2" / "checkpoint.json"
    record = json.loads(path.read_text())
    record["run"] |= {"dataset": "pets", "processes": 2}
    path.write_text(json.dumps(record))
    assert resumed(start(folder, seed=1), True) == str(folder / "checkpoint-2")
    (warning,) = inexact(caplog)
    for named in ("dataset: 'pets', now 'images'", "processes: 2, now 1", "seed: 42, now 1"):
        assert named in warning


def test_another_objective_is_refused_and_nothing_is_changed(folder: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for checkpoint in (True, str(folder / "checkpoint-2")):
        with pytest.raises(ValueError, match=r"lambda_margin: 0.1, now 0.0"):
            start(folder, **METHODS["focal"]).train(resume_from_checkpoint=checkpoint)
    assert files == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_model_in_shards_goes_on_exactly(folder: Path, whole: MaCSTrainer, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = folder / "checkpoint-2"
    model = AutoModelForImageClassification.from_pretrained(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    model.save_pretrained(checkpoint, max_shard_size="10KB")
    assert len(list(checkpoint.glob("model-*.safetensors"))) > 1
    again = start(folder)
    again.train(resume_from_checkpoint=str(checkpoint))
    assert same_weights(whole.model, again.model) and inexact(caplog) == []


@pytest.mark.parametrize("model_alone", [True, False])
def test_a_new_optimiser_is_started(model_alone: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start(tmp_path, save_only_model=model_alone, stop_at=2).train()
    if not model_alone:  # as plain Trainer saves it, which does not load the optimiser without the schedule
        for name in ("checkpoint.json", "scheduler.pt"):
            (tmp_path / "checkpoint-2" / name).unlink()
    run = start(tmp_path)
    run.train(resume_from_checkpoint=True)
    assert run.state.global_step == 4
    (warning,) = inexact(caplog)
    assert "optimizer.pt and scheduler.pt" in warning


def test_averages_end_with_the_weights_that_were_trained(whole: MaCSTrainer, tmp_path: Path) -> None:
    start(tmp_path, ema_decay=0.7, stop_at=2).train()
    run = start(tmp_path)
    run.train(resume_from_checkpoint=True)
    assert same_weights(whole.model, run.model)


def test_only_the_same_run_where_that_is_asked_for(folder: Path) -> None:
    """As the command does unless it is told otherwise; the length may change."""
    for change in ({"seed": 1}, {"ignore_data_skip": True}):
        run = start(folder, **change)
        run.resumes_only_same = None
        with pytest.raises(ValueError, match=r"seed: 42, now 1|ignore_data_skip"):
            run.train(resume_from_checkpoint=True)
    run = start(folder, max_steps=5)
    run.resumes_only_same = None
    run.train(resume_from_checkpoint=True)
    (folder / "checkpoint-5" / "checkpoint.json").unlink()
    with pytest.raises(ValueError, match=r"checkpoint.json"):
        run.train(resume_from_checkpoint=True)
