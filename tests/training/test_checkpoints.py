"""Checkpoints: the newest complete one is found, all of it is restored or none, and folders belong to one run."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import MODELS, build, same_weights, trainer

from macs_hf.training.checkpoints import (
    checkpoint_to_continue,
    checkpoints,
    claim_output_dir,
    last_complete_checkpoint,
    restore_weights,
    write_record,
)


def checkpoint(folder: Path, step: int, state: str | None = "whole") -> Path:
    """A folder as the trainer leaves it, or with another state; `None` for one that was cut off before its state."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "optimizer.pt").write_bytes(b"moments")
    write_record(path, {"seed": 0, "max_steps": 100})
    if state is not None:
        (path / "trainer_state.json").write_text(json.dumps({"global_step": step}) if state == "whole" else state)
    return path


# ---- Which checkpoint ----


def test_checkpoints_are_ordered_by_step_and_other_folders_ignored(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        checkpoint(tmp_path, step)
    for name in ("checkpoint-best", "checkpoint-", "tmp-checkpoint-200", "checkpoint-3x"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-300").write_text("a file")
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-9", "checkpoint-20", "checkpoint-100"]
    assert checkpoints(tmp_path / "nowhere") == []


def test_the_newest_whole_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert last_complete_checkpoint(tmp_path) is None is checkpoint_to_continue(tmp_path)
    good, newer = checkpoint(tmp_path, 10), checkpoint(tmp_path, 20)
    checkpoint(tmp_path, 30, None)
    checkpoint(tmp_path, 40, '{"global_step": 4')
    checkpoint(tmp_path, 50, "{}")
    assert last_complete_checkpoint(tmp_path) == newer
    assert last_complete_checkpoint(tmp_path, up_to_step=20) == newer
    assert last_complete_checkpoint(tmp_path, up_to_step=19) == good
    assert last_complete_checkpoint(tmp_path, up_to_step=9) is None
    assert checkpoint_to_continue(tmp_path) == newer
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"{tmp_path / f'checkpoint-{step}'} is skipped: trainer_state.json is missing or damaged: it was cut off "
        "while it was saved."
        for step in (50, 40, 30)
    ]


# ---- Weights ----


@pytest.mark.parametrize(("name", "ema_decay"), [("timm", None), ("vit", 0.9)])
def test_one_process_writes(
    name: str, ema_decay: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer may call `_save` in all of them; those that do not write may have been given no weights."""
    run = trainer(tmp_path / "run", build(name), max_steps=1, ema_decay=ema_decay)
    run.train()
    folders = [tmp_path / "run", tmp_path / "run" / "checkpoint-1", tmp_path / "elsewhere"]
    monkeypatch.setattr(type(run.args), "should_save", False)
    for folder in folders:
        run._save(str(folder), state_dict={})
        assert not folder.exists() or not list(folder.iterdir())
    monkeypatch.undo()
    for folder in folders:
        run._save(str(folder), state_dict=run.model.state_dict())
        assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_is_restored(name: str, tmp_path: Path) -> None:
    saved, other = build(name, seed=0), build(name, seed=1)
    with torch.no_grad():
        for tensor in saved.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.5)  # statistics of BatchNorm too
    saved.save_pretrained(tmp_path)
    before = dict(other.named_parameters())
    restore_weights(other, tmp_path)
    assert same_weights(saved, other)
    # In place: an optimiser that holds the parameters goes on with them.
    assert all(parameter is before[name] for name, parameter in other.named_parameters())


def test_another_number_of_labels_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    build("vit").save_pretrained(tmp_path)
    model = build("vit", seed=1)
    model.classifier = torch.nn.Linear(16, 7)
    model.config.num_labels = 7
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"does not fit ViTForImageClassification \(mismatched: .*classifier.*number"):
        restore_weights(model, tmp_path)
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())


def test_another_model_is_refused(tmp_path: Path) -> None:
    build("resnet").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"does not fit ViTForImageClassification \(missing: .*; unexpected: "):
        restore_weights(build("vit"), tmp_path)


# ---- Whose folder ----

RUN: dict[str, Any] = {"model": "tiny", "dataset": "digits", "seed": 0, "lambda_margin": 0.1}


def test_a_new_folder_is_claimed_and_the_same_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    assert claim_output_dir(folder, RUN) is None
    assert json.loads((folder / "run.json").read_text()) == RUN
    path = checkpoint(folder, 10)
    checkpoint(folder, 20, None)
    assert claim_output_dir(folder, dict(RUN)) == str(path)


def test_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    claim_output_dir(tmp_path, RUN)
    checkpoint(tmp_path, 10)
    message = r"another run \(seed: 0, now 1, lambda_margin: 0.1, now 0.0\).*output_dir.*resume_from_checkpoint"
    with pytest.raises(FileExistsError, match=message):
        claim_output_dir(tmp_path, RUN | {"seed": 1, "lambda_margin": 0.0})
    assert json.loads((tmp_path / "run.json").read_text()) == RUN


def test_another_recipe_may_take_over_the_folder_of_a_run_that_has_checkpoints(tmp_path: Path) -> None:
    """If asked to: then only what is named has to be the same."""
    claim_output_dir(tmp_path, RUN)
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match="seed: 0, now 1"):
        claim_output_dir(tmp_path, RUN | {"seed": 1}, same=["model", "dataset"])
    path = checkpoint(tmp_path, 10)
    for fixed in ("model", "dataset"):
        with pytest.raises(FileExistsError, match=f"{fixed}: "):
            claim_output_dir(tmp_path, RUN | {"seed": 1, fixed: "other"}, same=["model", "dataset"])
    assert claim_output_dir(tmp_path, RUN | {"seed": 1}, same=["model", "dataset"]) == str(path)
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 1
