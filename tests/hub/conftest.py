"""A fresh Hub per test, and clients in processes of their own: the libraries read `HF_ENDPOINT` when imported."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, HubServer


def run_client(
    hub: HubServer, function: Callable[..., Any], *args: Any, token: str | None = ALICE, home: Path | None = None
) -> Any:
    """Call `function(*args)` in a new process which talks to `hub`, and return its result.

    The function is sent as source: it imports what it needs itself. Arguments and result are JSON.
    """
    env = {**os.environ, **hub.env(token, home)}
    folder = Path(env["HF_HOME"])
    result = folder / "result.json"
    script = folder / "client.py"
    script.write_text(
        "from __future__ import annotations\n\nimport json, sys\n\n"
        + textwrap.dedent(inspect.getsource(function))
        + f"\nif __name__ == '__main__':\n    result = {function.__name__}(*json.loads(sys.argv[1]))\n"
        + "    open(sys.argv[2], 'w').write(json.dumps(result))\n"
    )
    command = [sys.executable, str(script), json.dumps(args), str(result)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{function.__name__} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return json.loads(result.read_text())


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path / "hub") as server:
        yield server


@pytest.fixture(scope="module")
def module_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with HubServer(tmp_path_factory.mktemp("hub")) as server:
        yield server


@pytest.fixture
def client(hub: HubServer) -> Callable[..., Any]:
    """`client(function, *args, token=ALICE, home=None)`: see `run_client`."""
    return lambda function, *args, **kwargs: run_client(hub, function, *args, **kwargs)


@pytest.fixture(scope="module")
def module_client(module_hub: HubServer) -> Callable[..., Any]:
    return lambda function, *args, **kwargs: run_client(module_hub, function, *args, **kwargs)
