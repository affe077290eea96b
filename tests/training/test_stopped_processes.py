"""Whole processes, one or two, that are stopped and killed, and started again until they are done."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from macs_hf.training.checkpoints import checkpoints, last_complete_checkpoint, step_of
from macs_hf.training.signals import lost_processes_named


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
def test_a_signal_to_one_of_two_processes_stops_both_after_the_same_step(tmp_path: Path) -> None:
    # Three steps an epoch. BatchNorm and an average: each process has statistics of its own, saved are the first's.
    settings = {"per_device_train_batch_size": 4, "save_steps": 100, "max_steps": 8, "ema_decay": 0.7}
    whole = result(work(tmp_path / "whole", 2, **settings), tmp_path / "whole")
    # Process 1 is sent the signal in step 4.
    stopped = work(tmp_path / "run", 2, send=[1, 3, signal.SIGTERM], **settings)
    (checkpoint,) = checkpoints(tmp_path / "run")
    assert checkpoint == last_complete_checkpoint(tmp_path / "run") and step_of(checkpoint) == 4
    assert stopped.stderr.count("Stopped by SIGTERM after step 4. The same run, started again, continues from") == 1
    assert stopped.returncode != 0 and "exitcode  : 143" in stopped.stderr
    assert not list((tmp_path / "run").glob("rank*.json"))
    alone = work(shutil.copytree(tmp_path / "run", tmp_path / "alone"), 1, **settings)
    assert result(alone, tmp_path / "alone")["step"] == 8
    assert alone.stderr.count("not exactly as if it had not stopped: processes: 2, now 1") == 1
    assert result(work(tmp_path / "run", 2, **settings), tmp_path / "run") == whole


@pytest.mark.parametrize(
    ("error", "processes", "expected"),
    [
        (RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:4711"), 2, True),
        (torch.distributed.DistBackendError("NCCL error in: unhandled system error"), 2, True),
        (RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer"), 1, False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x16 and 32x4)"), 2, False),
    ],
)
def test_what_a_transport_says_is_known_from_other_errors(
    error: RuntimeError, processes: int, expected: bool, tmp_path: Path
) -> None:
    args = SimpleNamespace(world_size=processes, process_index=0, output_dir=str(tmp_path))
    with pytest.raises(ConnectionError if expected else RuntimeError), lost_processes_named(args):
        raise error


@pytest.mark.slow
def test_a_process_whose_partner_died_ends_in_a_sentence_that_names_the_newest_checkpoint(tmp_path: Path) -> None:
    """Without a launcher, which would end it too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = {"send": [1, 4, signal.SIGKILL], "save_steps": 2, "max_steps": 60, "per_device_train_batch_size": 4}
    command = [str(TESTS / "training" / "stopping_worker.py"), str(tmp_path), json.dumps(settings)]
    shared = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]), "WORLD_SIZE": "2"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    first, second = (
        subprocess.Popen(
            [sys.executable, *command],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    errors = first.communicate(timeout=300)[1], second.communicate(timeout=300)[1]
    assert second.returncode == -signal.SIGKILL and first.returncode == 1, errors
    (sentence,) = [line for line in errors[0].splitlines() if "ConnectionError: " in line]
    assert sentence.endswith(f"continues from {tmp_path / 'checkpoint-4'}.")
    assert "gloo" not in errors[0].lower()


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
