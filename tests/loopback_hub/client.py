"""Clients in processes of their own: the Hugging Face libraries read `HF_ENDPOINT` when they are imported."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from loopback_hub.server import ALICE, HubServer


def run_client(
    hub: HubServer,
    *functions: Callable[..., Any],
    args: Iterable[Any] = (),
    token: str | None = ALICE,
    home: Path | None = None,
) -> Any:
    """Call the last of `functions` in a new process which talks to `hub`, and return its result.

    Functions are sent as source, so that they import what they need in the new process; all but the last are there
    to be called by it. Arguments and result are JSON.
    """
    env = {**os.environ, **hub.env(token, home)}
    folder = Path(env["HF_HOME"])
    script, result = folder / "client.py", folder / "result.json"
    sources = [
        "from __future__ import annotations",
        "import json, sys",
        *(inspect.getsource(function) for function in functions),
        f"result = {functions[-1].__name__}(*json.loads(sys.argv[1]))",
        "with open(sys.argv[2], 'w') as file:\n    json.dump(result, file)\n",
    ]
    script.write_text("\n\n".join(sources))
    command = [sys.executable, str(script), json.dumps(list(args)), str(result)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{functions[-1].__name__} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    return json.loads(result.read_text())
