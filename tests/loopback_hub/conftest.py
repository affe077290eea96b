"""A fresh Hub per test, and clients which talk to it."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_hub.client import run_client
from loopback_hub.server import HubServer


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path / "hub") as server:
        yield server


@pytest.fixture
def client(hub: HubServer) -> Callable[..., Any]:
    """[`run_client`] of this test's Hub."""
    return functools.partial(run_client, hub)
