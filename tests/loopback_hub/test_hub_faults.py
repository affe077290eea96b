"""Pushes which fail half-way: what the client sees, and that pushing again works."""

from collections.abc import Callable
from typing import Any

import pytest
from loopback_hub.server import HubServer


Client = Callable[..., Any]


def push_again_until_done(repo: str) -> list[str]:
    from pathlib import Path

    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repo, exist_ok=True)
    folder = Path("pushed")
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 8000)
    (folder / "config.json").write_text("{}")
    outcomes = []
    while not outcomes or outcomes[-1] != "ok":
        try:
            api.upload_folder(repo_id=repo, folder_path=folder)
            outcomes.append("ok")
        except Exception as error:
            answer = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
            outcomes.append(str(answer.status_code) if answer else "cut")
    return outcomes


@pytest.mark.parametrize(
    ("route", "fault", "outcomes", "uploads"),
    [
        ("commit", {"status": 503, "times": 2}, ["503", "503", "ok"], 1),
        ("commit", {"status": 401}, ["401", "ok"], 1),
        ("commit", {"cut": "body"}, ["cut", "ok"], 1),
        ("commit", {"cut": "answer"}, ["cut", "ok"], 1),  # it was made; pushing again finds nothing to do
        ("upload", {"status": 507}, ["507", "ok"], 2),
        ("upload", {"cut": "body"}, ["ok"], 2),  # repeated by the client itself, as is a 5xx
        ("upload", {"status": 500}, ["ok"], 2),
        ("preupload", {"status": 403}, ["403", "ok"], 1),
        pytest.param("upload", {"cut": "body", "times": 6}, ["cut", "ok"], 7, marks=pytest.mark.slow),
    ],
)
def test_pushing_again_after_a_fault(
    hub: HubServer, client: Client, route: str, fault: dict[str, Any], outcomes: list[str], uploads: int
) -> None:
    hub.inject(route, **fault)
    assert client(push_again_until_done, args=["alice/hurt"]) == outcomes
    repo = hub.repo("alice/hurt")
    assert [commit.title for commit in repo.history()][1:] == ["initial commit"]  # one commit, not two
    assert hub.files("alice/hurt")["model.safetensors"] == bytes(range(256)) * 8000
    assert hub.counts()["upload"] == uploads
    assert {path.name for path in repo.folder.iterdir()} == {"repo.json", "objects"}  # no half upload stays behind
    injected = fault.get("status", 0)
    assert sum(r.route == route and r.status == injected for r in hub.requests) == fault.get("times", 1)
