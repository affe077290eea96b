"""How training is spread over processes makes no difference: 1, 2 or 4 of them, with and without accumulation, each
with the whole model (DDP) or with a shard of it (FSDP2), against committed trajectories."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
TRAJECTORIES = json.loads((TESTS / "fixtures" / "trajectories.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    results = tmp_path_factory.mktemp("invariance") / "results.json"
    done = subprocess.run(
        [sys.executable, str(TESTS / "training" / "invariance_worker.py"), str(results)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(results.read_text())


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
