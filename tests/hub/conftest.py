"""A fresh Hub per test, and clients in processes of their own: the libraries read `HF_ENDPOINT` when imported."""

import functools
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, HubServer


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
    assert done.returncode == 0, f"{functions[-1].__name__} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return json.loads(result.read_text())


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path / "hub") as server:
        yield server


@pytest.fixture
def client(hub: HubServer) -> Callable[..., Any]:
    """[`run_client`] of this test's Hub."""
    return functools.partial(run_client, hub)
