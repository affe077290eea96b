"""Attacks by several commands at once."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from attacks.changes import write
from attacks.conftest import QUICK, Attack
from filelock import FileLock
from loopback_hub.server import HubServer

from macs_hf.report.run_folder import LOCK_FILE, locked_folder


IN_USE = "is in use"


@pytest.mark.parametrize(
    "words",
    [
        "train --output_dir ./other/../run",
        "evaluate --output_dir run",
        "!push ./run/ alice/x",
    ],
)
def test_a_folder_that_another_command_writes_into(words: str, attack: Attack, hub: HubServer) -> None:
    with FileLock(Path("run", LOCK_FILE)):
        attack(words, IN_USE)
    assert hub.requests == []


def test_a_rank_that_is_left_over_does_not_pass_the_lock(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with FileLock(Path("run", LOCK_FILE)):
        attack("evaluate --output_dir run", IN_USE)


def test_an_export_is_not_replaced_by_that_of_another_model(attack: Attack, place: Path) -> None:
    pytest.importorskip("onnxruntime")
    for name in ("export.json", "config.json"):
        write(f"out/{name}", "{}")(place)
    write("out/run.json", json.dumps({"command": "export", "model": "other"}))(place)
    attack("!export model --output_dir out", "model: 'other', now 'model'")
    with FileLock(Path("out", LOCK_FILE)):
        attack("!export model --output_dir out", IN_USE)


def test_only_the_main_process_of_a_run_holds_the_lock(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "run"), locked_folder(tmp_path / "run", hold=False):
        assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK_FILE]
    assert not (tmp_path / "run").exists()


HOLD = """
import sys, time
from macs_hf.report.run_folder import locked_folder
with locked_folder(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_process_that_is_killed_frees_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FileExistsError, match="is in use"), locked_folder(folder):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with locked_folder(folder):
        assert (folder / LOCK_FILE).exists()


@pytest.mark.slow
def test_two_runs_started_together_in_one_folder(place: Path) -> None:
    words = shlex.split(f"train {QUICK} --dataset data --output_dir new")
    command = [sys.executable, "-m", "macs_hf.cli", *words]
    runs = {
        seed: subprocess.Popen(
            [*command, "--seed", str(seed)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        for seed in (1, 2)
    }
    errors = {seed: run.communicate(timeout=600)[1] for seed, run in runs.items()}
    (refused,) = [seed for seed, run in runs.items() if run.returncode == 2]
    (done,) = [seed for seed, run in runs.items() if run.returncode == 0]
    assert IN_USE in errors[refused] or f"seed: {done}, now {refused}" in errors[refused]
    assert "Traceback" not in errors[refused]
    assert json.loads(Path("new", "run.json").read_text())["seed"] == done
    assert json.loads(Path("new", "evaluation.json").read_text())["seeds"] == {"seed": done}
