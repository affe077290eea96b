"""The record in a checkpoint: whatever happens to a file is noticed, and is said in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from macs_hf.training import checkpoints as record
from macs_hf.training.checkpoints import flaw_of, read_identity, was_finished, write_record


IDENTITY = {"seed": 1, "learning_rate": 1e-4, "optim_args": None, "max_steps": 10}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        (tmp_path / name).write_bytes(name.encode() * 10)
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "0.pt").write_bytes(b"shard")
    write_record(tmp_path, IDENTITY)
    (tmp_path / "trainer_state.json").write_text('{"global_step": 7}')
    return tmp_path


def test_a_checkpoint_without_a_flaw(checkpoint: Path) -> None:
    assert flaw_of(checkpoint) is None and was_finished(checkpoint)
    assert read_identity(checkpoint) == IDENTITY
    files = json.loads((checkpoint / "checkpoint.json").read_text())["files"]
    assert sorted(files) == ["model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt", "shards/0.pt"]
    # What resuming does not need may go, and files may be added, as in a repository on the Hub.
    (checkpoint / "training_args.bin").unlink()
    (checkpoint / "README.md").write_text("# Card")
    assert flaw_of(checkpoint) is None


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1])


def fill(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content)


def remove(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names]


def flip(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b"?")


CUT_OFF = "trainer_state.json is missing or damaged: it was cut off while it was saved"


@pytest.mark.parametrize(
    ("damage", "flaw"),
    [
        (remove("trainer_state.json"), CUT_OFF),
        (fill("trainer_state.json", ""), CUT_OFF),
        (fill("trainer_state.json", "{}"), CUT_OFF),
        (cut("trainer_state.json"), CUT_OFF),
        (cut("optimizer.pt"), "optimizer.pt has changed since it was saved"),
        (fill("optimizer.pt", ""), "optimizer.pt has changed since it was saved"),
        (cut("rng_state.pth"), "rng_state.pth has changed since it was saved"),
        (cut("model.safetensors"), "model.safetensors has changed since it was saved"),
        (flip("model.safetensors"), "model.safetensors has changed since it was saved"),
        (remove("optimizer.pt"), "optimizer.pt is missing"),
        (remove("scheduler.pt"), "scheduler.pt is missing"),
        (remove("rng_state.pth"), "rng_state.pth is missing"),
        (remove("shards/0.pt"), "shards/0.pt is missing"),
        (fill("checkpoint.json", ""), "checkpoint.json is damaged"),
        (fill("checkpoint.json", "{}"), "checkpoint.json is damaged"),
        (fill("checkpoint.json", '{"run": {}, "files": {"a": {}}}'), "a is missing"),
    ],
)
def test_every_kind_of_damage_has_its_sentence(damage: Callable[[Path], None], flaw: str, checkpoint: Path) -> None:
    damage(checkpoint)
    assert (flaw_of(checkpoint) or "").startswith(flaw)
    assert was_finished(checkpoint) == (flaw != CUT_OFF)


def test_large_files_are_sampled_from_their_first_byte_to_their_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "BLOCKS", 3)
    monkeypatch.setattr(record, "BLOCK_BYTES", 4)
    path = tmp_path / "weights"
    seen = {}
    for size in (12, 22):
        path.write_bytes(bytes(size))
        expected = record.content_of(path)
        seen[size] = []
        for place in range(size):
            path.write_bytes(bytes(place) + b"x" + bytes(size - place - 1))
            if record.content_of(path) != expected:
                seen[size].append(place)
    assert seen == {12: list(range(12)), 22: [0, 1, 2, 3, 9, 10, 11, 12, 18, 19, 20, 21]}
