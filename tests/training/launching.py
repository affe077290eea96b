"""Starts the scripts of this folder as processes of their own, under `accelerate launch` if there are several."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


HERE = Path(__file__).parent
CONFIGS = HERE.parents[1] / "examples" / "accelerate"
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE.parent)))}


def launch(
    *words: object, processes: int = 1, config: Path = CONFIGS / "cpu.yaml", check: bool = True
) -> subprocess.CompletedProcess:
    """Run a script; the first of `words` is its path."""
    launcher = ["-m", "accelerate.commands.launch", "--config_file", config, "--num_processes", processes]
    launcher = [*launcher, "--main_process_port", "0"] if processes > 1 else []
    command = [sys.executable, *map(str, [*launcher, *words])]
    done = subprocess.run(
        command, env=ENVIRONMENT | {"DS_ACCELERATOR": "cpu"}, capture_output=True, text=True, timeout=900
    )
    assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done


def results(folder: Path, processes: int = 1) -> list[dict[str, Any]]:
    """What each process left at its end."""
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(processes)]
