"""Whole processes, one or two, that are stopped and killed, and started again until they are done."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from macs_hf.training.checkpoints import checkpoints, last_complete_checkpoint, step_of


TESTS = Path(__file__).parents[1]
CPU = TESTS.parent / "examples" / "accelerate" / "cpu.yaml"
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CPU), "--main_process_port", "0"]


def work(folder: Path, processes: int, **settings: Any) -> subprocess.CompletedProcess:
    launcher = [sys.executable] if processes == 1 else [*LAUNCH, "--num_processes", str(processes)]
    return subprocess.run(
        [*launcher, str(TESTS / "training" / "stopping_worker.py"), str(folder), json.dumps(settings)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        capture_output=True,
        text=True,
        timeout=600,
    )


def result(done: subprocess.CompletedProcess, folder: Path) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "rank0.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "exchange_always", "steps"), [(signal.SIGTERM, True, {5}), (signal.SIGINT, False, {5, 6})]
)
def test_a_signal_to_one_of_two_processes_stops_both_after_the_same_step(
    number: signal.Signals, exchange_always: bool, steps: set[int], tmp_path: Path
) -> None:
    # Three steps an epoch. BatchNorm and an average: each process has statistics of its own, saved are the first's.
    settings = {"per_device_train_batch_size": 4, "save_steps": 100, "max_steps": 8, "ema_decay": 0.7}
    whole = result(work(tmp_path / "whole", 2, **settings), tmp_path / "whole")
    # Process 1 is sent the signal in step 4. All know of it after step 5, or else at the end of the epoch.
    stopped = work(tmp_path / "run", 2, send=[1, 3, number], exchange_always=exchange_always, **settings)
    (checkpoint,) = checkpoints(tmp_path / "run")
    assert checkpoint == last_complete_checkpoint(tmp_path / "run") and step_of(checkpoint) in steps
    line = f"Stopped by {number.name} after step {step_of(checkpoint)}. The same run, started again, continues from"
    assert stopped.stderr.count(line) == 1
    assert stopped.returncode != 0 and f"exitcode  : {128 + number}" in stopped.stderr
    assert not list((tmp_path / "run").glob("rank*.json"))
    alone = work(shutil.copytree(tmp_path / "run", tmp_path / "alone"), 1, **settings)
    assert result(alone, tmp_path / "alone")["step"] == 8
    assert alone.stderr.count("not exactly as if it had not stopped: processes: 2, now 1") == 1
    assert result(work(tmp_path / "run", 2, **settings), tmp_path / "run") == whole


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "kills"), [(1, 8), (2, 4)])
def test_killed_again_and_again_at_any_moment_equals_never_stopped(processes: int, kills: int, tmp_path: Path) -> None:
    settings = {"per_device_train_batch_size": 8 // processes, "save_steps": 1, "save_total_limit": 2}
    settings |= {"max_steps": 60, "ema_decay": 0.7}
    whole = result(work(tmp_path / "whole", processes, **settings), tmp_path / "whole")
    killed = 0
    for seed in range(kills):
        done = work(tmp_path / "run", processes, kill_seed=seed, **settings)
        killed += done.returncode == (-signal.SIGKILL if processes == 1 else 1)
    assert killed >= kills // 2, done.stderr[-3000:]
    assert result(work(tmp_path / "run", processes, **settings), tmp_path / "run") == whole
