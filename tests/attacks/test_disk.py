"""Attacks by the disk: full at every write of the final save, about to be full, or not to be written to."""

import errno
import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from attacks.changes import edit
from attacks.conftest import TRAIN, Attack
from transformers import AutoModelForImageClassification

from macs_hf.cli.main import main
from macs_hf.report.run_folder import locked_folder


# What is written at the end of a run, and which function writes it.
WRITERS = {
    "weights": "transformers.modeling_utils.safe_save_file",
    "config": "transformers.PreTrainedConfig.to_json_file",
    "processor": "transformers.image_processing_base.ImageProcessingMixin.to_json_file",
    "training arguments": "torch.save",
    "report": "macs_hf.report.report.write_text_atomically",
    "rows": "pyarrow.parquet.write_table",
    "picture": "pathlib.Path.write_bytes",
    "card": "macs_hf.publishing.card.write_text_atomically",
    "settings of the card": "macs_hf.publishing.card.write_text_atomically",
    "what was still in memory": "macs_hf.report.run_folder._sync",
}
# Files of a finished run that belong together.
TOGETHER = ("config.json", "model.safetensors", "preprocessor_config.json", "evaluation.json", "samples.parquet")
TOGETHER += ("reliability.png", "README.md", "card.json")
# The same run measured under corruptions too, so that the old and the new state differ.
AGAIN = shlex.split(f"{TRAIN} --output_dir run --corruptions cifar")


def full(*args: Any, **kwargs: Any) -> None:
    """Writes a part of the file, as far as there is space."""
    path = next(arg for arg in args if isinstance(arg, str | Path) and Path(arg).parent.is_dir())
    with open(path, "wb") as file:
        file.write(b"a part of it")
    raise OSError(errno.ENOSPC, "No space left on device")


def slow(case: Any) -> Any:
    """The others of a kind."""
    return pytest.param(case, marks=pytest.mark.slow)


class State(NamedTuple):
    files: dict[str, bytes | None]
    corrupted: bool
    marked: bool


def state(folder: Path) -> State:
    files = {name: (folder / name).read_bytes() if (folder / name).is_file() else None for name in TOGETHER}
    report = json.loads(files["evaluation.json"] or "{}")
    config = json.loads(files["config.json"] or "{}")
    return State(files, report.get("corruptions") is not None, "marked" in config)


@pytest.mark.parametrize("what", [*map(slow, list(WRITERS)[1:]), *list(WRITERS)[:1]])
def test_a_full_disk_leaves_the_old_state_and_a_restart_makes_the_new_one(
    what: str, place: Path, own_process: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    edit("run/config.json", marked=True)(place)
    old = state(place / "run")
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(WRITERS[what], full)
        main(AGAIN)
    assert left.value.code == 2
    assert "disk is full" in capfd.readouterr().err
    assert state(place / "run") == old
    assert not list(place.rglob("_writing")) and not list(place.rglob("*.tmp"))
    assert main(AGAIN) == 0
    new = state(place / "run")
    assert (new.corrupted, new.marked) == (True, False) and None not in new.files.values()
    AutoModelForImageClassification.from_pretrained(place / "run")


@pytest.mark.parametrize(
    ("command", "what"),
    [("calibrate", "weights"), ("calibrate", "card"), ("evaluate", "rows"), ("evaluate", "what was still in memory")],
)
def test_a_full_disk_while_measuring_leaves_nothing(
    command: str, what: str, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WRITERS[what], full)
    attack(command, "disk is full")


@pytest.mark.parametrize("writer", [WRITERS["config"], "macs_hf.exporting.write_onnx"])
def test_a_full_disk_while_exporting_leaves_nothing(
    writer: str, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(writer, full)
    attack("!export model --output_dir out", "disk is full")


@pytest.mark.parametrize("plan", ["{", "[" * 100_000, '{"removed": ["../model/config.json"]}'])
def test_a_damaged_plan_moves_nothing(plan: str, place: Path) -> None:
    old = state(place / "run")
    (place / "run" / "_writing").mkdir()
    (place / "run" / "_writing" / "complete.json").write_text(plan)
    with locked_folder(place / "run"):
        assert not (place / "run" / "_writing").exists()
    assert state(place / "run") == old


@pytest.mark.parametrize("moves", [0, *map(slow, range(1, 9))])
def test_a_run_that_is_killed_while_files_are_moved_is_completed(
    moves: int, place: Path, own_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit("run/config.json", marked=True)(place)
    replace, done = Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        if path.parent.parent.name == "_writing" and target.parent == Path("run"):
            if len(done) == moves:
                raise KeyboardInterrupt
            done.append(path.name)
        return replace(path, target)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(Path, "replace", killed)
        main(AGAIN)
    assert left.value.code == 130
    assert not (place / "run" / "config.json").exists()  # nobody takes the mixture for a model
    with locked_folder(place / "run"):
        pass
    new = state(place / "run")
    assert (new.corrupted, new.marked) == (True, False) and None not in new.files.values()
    AutoModelForImageClassification.from_pretrained(place / "run")


@pytest.mark.parametrize(
    ("words", "free", "named"),
    [
        ("train", 1_000_000, "2 checkpoints of 96"),
        ("train --save_strategy no", 500_000, "0 checkpoints"),
        ("train --save_only_model true", 500_000, "2 checkpoints of 32"),
        ("photos --save_total_limit 9 --num_train_epochs 9", 9_000_000, "10 checkpoints of"),
        ("train --ema_decay 0.9", 3_000_000, "2 checkpoints of 1.3 MB"),
    ],
)
def test_no_room_is_said_before_training(
    words: str, free: int, named: str, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    attack(words, named)
