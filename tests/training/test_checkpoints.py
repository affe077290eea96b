"""Checkpoints: damage is noticed, the newest whole one is found and restored, and folders belong to one run."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Images, arguments, build, same_weights, trainer
from transformers import Trainer

from macs_hf.training import checkpoints as module
from macs_hf.training.checkpoints import (
    checkpoint_to_continue,
    checkpoints,
    claim_output_dir,
    flaw_of,
    last_complete_checkpoint,
    read_identity,
    restore_weights,
    was_finished,
    write_record,
)


IDENTITY = {"seed": 1, "learning_rate": 1e-4, "optim_args": None, "max_steps": 10}


def checkpoint(folder: Path, step: int, state: str | None = "whole") -> Path:
    """A folder as the trainer leaves it, or with another state; `None` for one that was cut off before its state."""
    path = folder / f"checkpoint-{step}"
    (path / "shards").mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "training_args.bin", "shards/0.pt"):
        (path / name).write_bytes(name.encode() * 10)
    write_record(path, IDENTITY)
    if state is not None:
        (path / "trainer_state.json").write_text(json.dumps({"global_step": step}) if state == "whole" else state)
    return path


# ---- The record ----


def test_a_checkpoint_without_a_flaw(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 7)
    assert flaw_of(path) is None and was_finished(path) and read_identity(path) == IDENTITY
    files = json.loads((path / "checkpoint.json").read_text())["files"]
    assert sorted(files) == ["model.safetensors", "optimizer.pt", "shards/0.pt"]
    # What resuming does not need may go, and files may be added, as in a repository on the Hub.
    (path / "training_args.bin").unlink()
    (path / "README.md").write_text("# Card")
    assert flaw_of(path) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trainer_state.json", None),
        ("trainer_state.json", b'{"global_step": 4'),
        ("trainer_state.json", b"{}"),
        ("checkpoint.json", b""),
        ("checkpoint.json", b"{}"),
        ("model.safetensors", None),
        ("model.safetensors", b"model.safetensors" * 9),
        ("shards/0.pt", b"shards/0.pt" * 9 + b"shards/0.p?"),
    ],
)
def test_damage_is_noticed_and_its_file_named(name: str, content: bytes | None, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 7)
    (path / name).unlink() if content is None else (path / name).write_bytes(content)
    assert flaw_of(path).startswith(f"{name} ")
    assert was_finished(path) == (name != "trainer_state.json")


def test_large_files_are_sampled_from_first_to_last_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCKS", 3)
    monkeypatch.setattr(module, "BLOCK_BYTES", 4)
    path, seen = tmp_path / "weights", {12: [], 22: []}
    for size, noticed in seen.items():
        path.write_bytes(bytes(size))
        expected = module.content_of(path)
        for place in range(size):
            path.write_bytes(bytes(place) + b"x" + bytes(size - place - 1))
            if module.content_of(path) != expected:
                noticed.append(place)
    assert seen == {12: list(range(12)), 22: [0, 1, 2, 3, 9, 10, 11, 12, 18, 19, 20, 21]}


# ---- Which checkpoint ----


def test_the_newest_whole_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert last_complete_checkpoint(tmp_path) is None is checkpoint_to_continue(tmp_path)
    assert checkpoints(tmp_path / "nowhere") == []
    steps = [9, 20, 100, 300]  # by step, not by name
    cut, newer, good, damaged = (checkpoint(tmp_path, step, None if step == 300 else "whole") for step in steps[::-1])
    for name in ("checkpoint-best", "checkpoint-", "tmp-checkpoint-200", "checkpoint-3x"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-400").write_text("a file")
    (damaged / "optimizer.pt").unlink()
    assert checkpoints(tmp_path) == [damaged, good, newer, cut]
    assert last_complete_checkpoint(tmp_path) == last_complete_checkpoint(tmp_path, up_to_step=100) == newer
    assert last_complete_checkpoint(tmp_path, up_to_step=99) == good
    assert last_complete_checkpoint(tmp_path, up_to_step=19) is None
    assert checkpoint_to_continue(tmp_path) == newer
    (line,) = caplog.messages
    assert line.startswith(f"{cut} is skipped: trainer_state.json")


# ---- Weights ----


def test_plain_trainer_loses_weights_here(tmp_path: Path) -> None:
    """The reason for `restore_weights`: if this fails, Trainer has learned to do it, and the override can go."""
    run = trainer(tmp_path, build("vit"), max_steps=2, save_strategy="steps", save_steps=2)
    run.train()
    plain = Trainer(model=build("vit", seed=1), args=arguments(tmp_path, max_steps=2), train_dataset=Images())
    plain.train(resume_from_checkpoint=True)
    assert not same_weights(run.model, plain.model)


def test_what_does_not_fit_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    build("vit").save_pretrained(tmp_path / "vit")
    build("resnet").save_pretrained(tmp_path / "resnet")
    model = build("vit", seed=1)
    model.classifier = torch.nn.Linear(16, 7)
    model.config.num_labels = 7
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    for name, problem in (("vit", "mismatched: .*classifier"), ("resnet", "missing: .*; unexpected: ")):
        with pytest.raises(ValueError, match=problem):
            restore_weights(model, tmp_path / name)
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())


# ---- Whose folder ----


RUN: dict[str, Any] = {"model": "tiny", "dataset": "digits", "seed": 0, "lambda_margin": 0.1}


def test_a_folder_is_claimed_and_the_same_run_goes_on_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    assert claim_output_dir(folder, RUN) is None
    assert json.loads((folder / "run.json").read_text()) == RUN
    path = checkpoint(folder, 10)
    checkpoint(folder, 20, None)
    assert claim_output_dir(folder, dict(RUN)) == str(path)
    with pytest.raises(FileExistsError, match=r"\(seed: 0, now 1, lambda_margin: 0.1, now 0.0\)"):
        claim_output_dir(folder, RUN | {"seed": 1, "lambda_margin": 0.0})
    assert json.loads((folder / "run.json").read_text()) == RUN


def test_another_recipe_may_take_over_the_folder_of_a_run_that_has_checkpoints(tmp_path: Path) -> None:
    """If asked to: then only what is named has to be the same."""
    claim_output_dir(tmp_path, RUN)
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match="seed: 0, now 1"):
        claim_output_dir(tmp_path, RUN | {"seed": 1}, same=["model", "dataset"])
    path = checkpoint(tmp_path, 10)
    with pytest.raises(FileExistsError, match="dataset: "):
        claim_output_dir(tmp_path, RUN | {"seed": 1, "dataset": "other"}, same=["model", "dataset"])
    assert claim_output_dir(tmp_path, RUN | {"seed": 1}, same=["model", "dataset"]) == str(path)
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 1
