"""Two processes (gloo, CPU) must do what one does, and what `accelerate launch` starts must work."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


TESTS = Path(__file__).parents[1]
CONFIGS = TESTS.parent / "examples" / "accelerate"
FIXED_BLUR = {"perturbation": "blur", "blur_sigma_min": 1.0, "blur_sigma_max": 1.0}


def launch(processes: int, *command: str, config: str = "cpu") -> subprocess.CompletedProcess:
    options = ["--config_file", str(CONFIGS / f"{config}.yaml"), "--num_processes", str(processes)]
    if processes == 1:
        options = ["--cpu", "--num_processes", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", *options, "--main_process_port", "0", *command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def worker(folder: Path, processes: int, config: str = "cpu", **settings: Any) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    launch(
        processes, str(TESTS / "training" / "distributed_worker.py"), str(folder), json.dumps(settings), config=config
    )
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(processes)]


def numbers_by_epoch(runs: list[dict[str, Any]], steps: int) -> list[dict[str, float]]:
    """For each epoch of so many steps, what was drawn for each sample, on whichever process it was."""
    epochs = []
    for first in range(0, len(runs[0]["drawn"]), steps):
        batches = [batch for run in runs for batch in run["drawn"][first : first + steps]]
        epochs.append({index: number for batch in batches for index, number in batch.items()})
        assert len(epochs[-1]) == sum(len(batch) for batch in batches)  # no sample is in two batches
    return epochs


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit", "timm"])
def test_two_processes_equal_one(model: str, tmp_path: Path) -> None:
    settings = {"model": model, "samples": 16, "max_steps": 4, **FIXED_BLUR}
    (one,) = worker(tmp_path / "one", 1, per_device_train_batch_size=8, **settings)
    two = worker(tmp_path / "two", 2, per_device_train_batch_size=4, **settings)
    for key, values in one["losses"].items():
        assert two[0]["losses"][key] == pytest.approx(values, rel=1e-4, abs=1e-6), key
        assert min(values) > 0
    assert two[0]["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)
    # 10 samples on two processes are filled up to 16; none of those counts twice.
    assert two[0]["evaluation"]["loss"] == pytest.approx(one["evaluation"]["loss"], rel=1e-4)
    assert two[0]["evaluation"]["loss"] == two[1]["evaluation"]["loss"] == two[0]["evaluation"]["nll"]
    assert two[0]["rows"] == two[1]["rows"] == one["rows"] == 13
    assert two[0]["predictions"] == two[1]["predictions"]
    assert two[0]["temperature"] == two[1]["temperature"] == pytest.approx(one["temperature"], rel=1e-3)
    assert two[0]["weights"] == pytest.approx(two[1]["weights"])

    # Augmentation: new for each sample in each epoch, and the same however many processes there are.
    first, second = numbers_by_epoch([one], steps=2)
    assert len(first) == 16 and first.keys() == second.keys()
    assert len({*first.values(), *second.values()}) == 32
    assert numbers_by_epoch(two, steps=2) == [first, second]


@pytest.mark.slow
def test_processes_draw_different_noise_and_resume_exactly_in_a_later_epoch(tmp_path: Path) -> None:
    # BatchNorm and an average: each process has statistics of its own, of which the first one's count.
    settings = {"model": "resnet", "samples": 24, "ema_decay": 0.7, "eval_strategy": "steps", "eval_steps": 1}
    settings |= {"per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 5, "max_steps": 8}
    whole = worker(tmp_path / "parts", 2, **settings)
    assert not set(whole[0]["seeds"]) & set(whole[1]["seeds"])
    assert whole[0]["losses"]["consistency_loss"] == whole[1]["losses"]["consistency_loss"]
    # Three steps an epoch: checkpoint 5 is in the middle of the second.
    resumed = worker(tmp_path / "parts", 2, resume=str(tmp_path / "parts" / "checkpoint-5"), **settings)
    for rank in (0, 1):
        assert resumed[rank]["losses"]["loss"][-3:] == whole[rank]["losses"]["loss"][-3:]
        assert resumed[rank]["drawn"] == whole[rank]["drawn"][-3:]
        assert resumed[rank]["evaluated"] == whole[rank]["evaluated"]
    assert resumed[0]["weights"] == whole[0]["weights"]
