"""Any number of processes does what one does: runs of tiny models in 1, 2 and 4 processes, with and without
accumulation, each with the whole model (DDP) or with a shard of it (FSDP2), against committed trajectories; and runs
that `accelerate launch` starts."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import Drawn
from training.launching import HERE, launch, results

from macs_hf.randomness import KeyedDataset


pytestmark = pytest.mark.slow

TRAJECTORIES = json.loads((HERE.parent / "fixtures" / "trajectories.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("invariance") / "results.json"
    launch(HERE / "invariance_worker.py", file)
    return json.loads(file.read_text())


@pytest.mark.parametrize("trajectory", TRAJECTORIES)
def test_runs_follow_their_trajectory(trajectory: str, found: dict[str, Any]) -> None:
    runs = {name: run for name, run in found.items() if run.get("trajectory") == trajectory}
    several = {"vit fixed": 10, "timm fixed": 5}.get(trajectory, 1 if " 1x" in trajectory else 2)
    assert len(runs) == several, runs.keys()
    for name, run in runs.items():
        for key, values in TRAJECTORIES[trajectory].items():
            assert run[key] == pytest.approx(values, rel=1e-5, abs=1e-6), (name, key)


def test_trajectories_are_worth_following() -> None:
    for name, logged in TRAJECTORIES.items():
        total = [
            cross_entropy + 0.1 * margin + 0.5 * consistency
            for cross_entropy, margin, consistency in zip(
                logged["cross_entropy_loss"], logged["margin_loss"], logged["consistency_loss"], strict=True
            )
        ]
        assert logged["loss"] == pytest.approx(total, rel=1e-5), name
        assert min(logged["consistency_loss"]) > 1e-5 and len(set(logged["loss"])) == 4, name
    drawn = [tuple(logged["consistency_loss"]) for name, logged in TRAJECTORIES.items() if name.startswith("vit")]
    assert len(set(drawn)) == len(drawn)  # each number of processes, and of steps, draws its own noise


def test_evaluation_and_corruptions_are_the_same_for_any_number_of_processes(found: dict[str, Any]) -> None:
    first, *others = [result for name, result in found.items() if name.startswith("evaluation")]
    assert len(others) == 4
    assert len(first["prediction"]) == len(first["hits"]) == 13
    for other in others:
        # What is counted is equal; scores of one image depend on its place in a batch in their last bits.
        assert (other["prediction"], other["hits"]) == (first["prediction"], first["hits"])
        for name in ("nll", "scaled_nll"):
            assert other[name] == pytest.approx(first[name], abs=1e-6)
        for nll, expected in zip(other["corrupted_nll"], first["corrupted_nll"], strict=True):
            assert nll == pytest.approx(expected, abs=1e-6)
        for part in ("metrics", "margins"):
            assert other[part] == pytest.approx(first[part], rel=1e-5)
        assert other["temperature"] == first["temperature"]


def test_two_processes_draw_different_noise_and_resume_exactly_in_a_later_epoch(tmp_path: Path) -> None:
    def work(**settings: Any) -> list[dict[str, Any]]:
        launch(HERE / "launched_worker.py", tmp_path, json.dumps(settings | {"spies": True}), processes=2)
        return results(tmp_path, 2)

    # BatchNorm and an average: each process has statistics of its own, of which the first one's count.
    settings = {"ema_decay": 0.7, "eval_strategy": "steps", "eval_steps": 1, "save_steps": 5, "max_steps": 8}
    settings |= {"per_device_train_batch_size": 4}
    whole = first, second = work(**settings)
    assert not set(first["seeds"]) & set(second["seeds"])
    # 13 and 10 samples on two processes are filled up to 16; none of those counts twice.
    assert len(first["predictions"]) == 13 and first["predictions"] == second["predictions"]
    assert first["evaluation"]["loss"] == second["evaluation"]["loss"] == first["evaluation"]["nll"]
    assert first["losses"] == second["losses"] and first["temperature"] == second["temperature"]
    # Augmentation depends on seed, epoch and index only, and no sample is in two batches. Three steps an epoch.
    keyed = KeyedDataset(Drawn(24), seed=42)
    for epoch in (0, 1):
        keyed.set_epoch(epoch)
        batches = [batch for run in whole for batch in run["drawn"][3 * epoch : 3 * epoch + 3]]
        drawn = [drawn for batch in batches for drawn in batch.items()]
        expected = {str(index): keyed[index]["pixel_values"][0, 0, 1].item() for index in range(24)}
        assert len(drawn) == 24 and dict(drawn) == expected
    # Checkpoint 5 is in the middle of the second epoch.
    resumed = work(resume=str(tmp_path / "checkpoint-5"), **settings)
    for before, after in zip(whole, resumed, strict=True):
        assert after["losses"]["loss"][-3:] == before["losses"]["loss"][-3:]
        assert after["drawn"] == before["drawn"][-3:]
        assert after["losses"]["eval_loss"] == before["losses"]["eval_loss"]
    assert resumed[0]["weights"] == first["weights"]
