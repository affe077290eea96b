"""Which checkpoint a run continues from, and that it is refused unless it goes on exactly."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import Images, StopAt, arguments, build, same_weights
from transformers import AutoModelForImageClassification, Trainer, TrainingArguments

from macs_hf import METHODS, MaCSTrainer
from macs_hf.training.checkpoints import checkpoint_to_resume, identity_of


def start(folder: Path, data: Any = None, stop_at: int | None = None, **overrides: Any) -> MaCSTrainer:
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1} | overrides
    return MaCSTrainer(
        model=build("vit"),
        args=arguments(folder, **options),
        train_dataset=data or Images(),
        eval_dataset=Images(8, seed=1),
        callbacks=[StopAt(stop_at)] if stop_at else None,
        run_facts={"dataset": "images"},
    )


def resumed(run: MaCSTrainer, checkpoint: str | bool) -> str | None:
    return checkpoint_to_resume(checkpoint, run.args, identity_of(run.args, run.train_dataset, run.run_facts))


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


def cut(name: str) -> Callable[[Path], Any]:
    return lambda checkpoint: (checkpoint / name).write_bytes((checkpoint / name).read_bytes()[:-100])


def fill(name: str, content: str) -> Callable[[Path], Any]:
    return lambda checkpoint: (checkpoint / name).write_text(content)


DAMAGES = {
    "no-optimizer": lambda checkpoint: (checkpoint / "optimizer.pt").unlink(),
    "no-scheduler": lambda checkpoint: (checkpoint / "scheduler.pt").unlink(),
    "no-generators": lambda checkpoint: (checkpoint / "rng_state.pth").unlink(),
    "no-record": lambda checkpoint: (checkpoint / "checkpoint.json").unlink(),
    "cut-optimizer": cut("optimizer.pt"),
    "empty-optimizer": fill("optimizer.pt", ""),
    "cut-generators": cut("rng_state.pth"),
    "cut-weights": cut("model.safetensors"),
    "empty-state": fill("trainer_state.json", "{}"),
    "empty-folder": lambda checkpoint: [path.unlink() for path in checkpoint.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_line(
    damage: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    DAMAGES[damage](folder / "checkpoint-2")
    assert resumed(start(folder), True) == str(folder / "checkpoint-1")
    assert f"{folder / 'checkpoint-2'} is skipped: " in caplog.text
    with pytest.raises(ValueError, match=r"cannot continue from '.*checkpoint-2' as if it had not stopped: "):
        resumed(start(folder), str(folder / "checkpoint-2"))


def test_going_on_from_the_one_before_equals_never_stopped(folder: Path, tmp_path: Path) -> None:
    cut("optimizer.pt")(folder / "checkpoint-2")
    whole, resumed = start(tmp_path / "whole"), start(folder)
    whole.train()
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 4 and same_weights(whole.model, resumed.model)


def test_without_another_checkpoint_the_sentence_says_how_to_use_the_weights(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / "checkpoint-1")
    DAMAGES["no-optimizer"](folder / "checkpoint-2")
    with pytest.raises(ValueError, match=r"optimizer.pt is missing. To start a new run from its weights, load model="):
        start(folder).train(resume_from_checkpoint=True)
    model = AutoModelForImageClassification.from_pretrained(folder / "checkpoint-2")
    anew = MaCSTrainer(model=model, args=arguments(tmp_path / "anew", max_steps=1), train_dataset=Images())
    anew.train()
    assert anew.state.global_step == 1


def test_checkpoints_of_the_model_alone_are_refused(tmp_path: Path) -> None:
    start(tmp_path, save_only_model=True, max_steps=1).train()
    for checkpoint in (True, str(tmp_path / "checkpoint-1")):
        with pytest.raises(ValueError, match=r"without optimizer.pt and scheduler.pt, as save_only_model=True leaves"):
            start(tmp_path).train(resume_from_checkpoint=checkpoint)


def test_checkpoints_of_plain_trainer_are_refused(tmp_path: Path) -> None:
    args = TrainingArguments(
        **{"output_dir": str(tmp_path), "max_steps": 1, "save_strategy": "steps", "save_steps": 1},
        **{"use_cpu": True, "report_to": "none", "disable_tqdm": True},
    )
    Trainer(model=build("vit"), args=args, train_dataset=Images()).train()
    with pytest.raises(
        ValueError, match=r"no checkpoint.json: it was saved by plain Trainer or by an earlier version"
    ):
        start(tmp_path).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (METHODS["focal"], r"\(lambda_margin: 0.1, now 0.0, .*focal_gamma: 0.0, now 2.0\)"),
        ({"seed": 1}, r"\(seed: 42, now 1\)"),
        ({"data_seed": 1}, r"\(data_seed: None, now 1\)"),
        ({"learning_rate": 1e-3}, r"\(learning_rate: 0.01, now 0.001\)"),
        ({"per_device_train_batch_size": 4}, r"\(per_device_train_batch_size: 8, now 4\)"),
        ({"gradient_accumulation_steps": 2}, r"\(gradient_accumulation_steps: 1, now 2\)"),
        ({"lr_scheduler_type": "cosine"}, r"\(lr_scheduler_type: 'linear', now 'cosine'\)"),
        ({"data": Images(24)}, r"\(training_samples: 32, now 24\)"),
    ],
    ids=lambda value: "-".join(value)[:24] if isinstance(value, dict) else "",
)
def test_a_checkpoint_of_another_run_is_refused(change: dict[str, Any], difference: str, stopped: Path) -> None:
    for checkpoint in (True, str(stopped / "checkpoint-2")):
        with pytest.raises(ValueError, match=rf"it is of another run {difference}"):
            start(stopped, **change).train(resume_from_checkpoint=checkpoint)


def test_facts_and_processes_count_too(folder: Path) -> None:
    path = folder / "checkpoint-2" / "checkpoint.json"
    record = json.loads(path.read_text())
    record["run"] |= {"dataset": "pets", "processes": 2}
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"another run \(dataset: 'pets', now 'images', processes: 2, now 1\)"):
        start(folder).train(resume_from_checkpoint=True)


def test_what_does_not_change_what_is_learned_may_change(stopped: Path) -> None:
    other = {"dataloader_num_workers": 2, "logging_steps": 3, "save_steps": 2, "per_device_eval_batch_size": 4}
    assert resumed(start(stopped, **other), True) == str(stopped / "checkpoint-2")


def test_another_length_is_another_schedule(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = start(folder, max_steps=6)
    run.train(resume_from_checkpoint=True)
    assert run.state.global_step == 6
    assert "Another schedule than" in caplog.text and "(max_steps: 4, now 6)" in caplog.text


def test_a_best_model_that_is_gone_is_missed_before_training(tmp_path: Path) -> None:
    best = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True, "max_steps": 2}
    # The highest loss counts as the best here, so that the best is not the last.
    best |= {"metric_for_best_model": "loss", "greater_is_better": True}
    run = start(tmp_path, **best)
    run.train()
    assert run.state.best_model_checkpoint == str(tmp_path / "checkpoint-1")
    weights = tmp_path / "checkpoint-1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"saved in '.*checkpoint-1', and model.safetensors .*load_best_model"):
        start(tmp_path, **best | {"max_steps": 3}).train(resume_from_checkpoint=True)
    shutil.rmtree(tmp_path / "checkpoint-1")
    with pytest.raises(ValueError, match=r"saved in '.*checkpoint-1', and it is not there any more.*load_best_model"):
        start(tmp_path, **best | {"max_steps": 3}).train(resume_from_checkpoint=True)
    start(tmp_path, **best | {"max_steps": 3, "load_best_model_at_end": False}).train(resume_from_checkpoint=True)


def test_images_are_not_seen_twice_when_a_run_goes_on(stopped: Path) -> None:
    with pytest.raises(ValueError, match="ignore_data_skip=True would see the first images of the epoch again"):
        resumed(start(stopped, ignore_data_skip=True), True)
    with pytest.raises(ValueError, match="split_batches: False, now True"):
        resumed(start(stopped, accelerator_config={"split_batches": True}), True)
