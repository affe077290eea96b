"""Attacks by the Hub: it hangs, fails, refuses, or holds something hostile. The limits of waiting are shortened."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from attacks.changes import HOSTILE_CODE
from attacks.conftest import Attack
from huggingface_hub import HfApi, constants
from loopback_hub.server import ALICE, ALICE_READS, BOB, HubServer

from macs_hf import hub as limits


Prepare = Callable[[HubServer], None]

PUSH = "!push run alice/x"
TRAIN = "train --push_to_hub --hub_model_id alice/x"
CALIBRATE = "calibrate --push_to_hub alice/x"
MODEL = "!evaluate alice/model --dataset data --cpu --output_dir out"
DATA = "train --dataset alice/photos"
STREAM = f"{DATA} --streaming --max_steps 2"
OFTEN = 99


def fault(
    route: str, status: int | None = None, cut: str | None = None, ending: str = "", retry_after: int | None = None
) -> Prepare:
    return lambda hub: hub.inject(route, status=status, cut=cut, times=OFTEN, ending=ending, retry_after=retry_after)


def token(value: str) -> Prepare:
    return lambda hub: os.environ.update(HF_TOKEN=value)  # the fixture `own_process` restores it


def there(repo_id: str, kind: str = "model", private: bool = False, gated: bool = False, as_user: str = "") -> Prepare:
    def prepare(hub: HubServer) -> None:
        HfApi().create_repo(repo_id, repo_type=kind, private=private)
        if gated:
            HfApi().update_repo_settings(repo_id, repo_type=kind, gated="auto")
        os.environ.update(HF_TOKEN=as_user or ALICE)

    return prepare


def model(fault: Prepare = lambda hub: None, **files: bytes) -> Prepare:
    """The model on the Hub, with other files."""

    def prepare(hub: HubServer) -> None:
        api = HfApi()
        api.create_repo("alice/model")
        api.upload_folder(repo_id="alice/model", folder_path="model")
        for name, content in files.items():
            path = "evil.py" if name == "code" else f"{name}.json"
            api.upload_file(repo_id="alice/model", path_in_repo=path, path_or_fileobj=content)
        fault(hub)

    return prepare


def photos(fault: Prepare) -> Prepare:
    def prepare(hub: HubServer) -> None:
        HfApi().create_repo("alice/photos", repo_type="dataset")
        HfApi().upload_folder(repo_id="alice/photos", repo_type="dataset", folder_path="photos")
        fault(hub)

    return prepare


def script(hub: HubServer) -> None:
    HfApi().create_repo("alice/photos", repo_type="dataset")
    HfApi().upload_file(
        repo_id="alice/photos", repo_type="dataset", path_in_repo="photos.py", path_or_fileobj=HOSTILE_CODE.encode()
    )


EVIL = json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.C"}}).encode()
EVIL_PROCESSOR = json.dumps({"auto_map": {"AutoImageProcessor": "evil.P"}, "image_processor_type": "Evil"}).encode()

WEIGHTS = "model.safetensors"
REFUSED: dict[str, tuple[str, str, Prepare]] = {  # the command, what its line names, what the Hub does
    # It fails
    "push, whoami 503": (PUSH, "HTTP 503", fault("whoami", 503)),
    "push, create 429": (PUSH, "HTTP 429", fault("create", 429)),
    "push, commit 413": (PUSH, "HTTP 413", fault("commit", 413)),
    "push, no space for a file": (PUSH, "HTTP 507", fault("upload", 507)),
    "model, files 500": (MODEL, "HTTP 500", model(fault("resolve", 500))),
    "model, wait for minutes": (MODEL, "300 s", model(fault("resolve", 429, retry_after=300))),
    # One file fails
    "weights 403": (MODEL, f"{WEIGHTS} (HTTP 403)", model(fault("resolve", 403, ending=WEIGHTS))),
    "processor 404": (
        MODEL,
        "preprocessor_config.json (HTTP 404)",
        model(fault("resolve", 404, ending="preprocessor_config.json")),
    ),
    "storage cut": (MODEL, "cut", model(fault("download", cut="body"))),
    "photo 404": (DATA, "train/ant/0.png (HTTP 404)", photos(fault("resolve", 404, ending="0.png"))),
    # A stream, whose files are read one by one, in a worker too
    "stream 404": (STREAM, "train/ant/0.png (HTTP 404)", photos(fault("resolve", 404, ending="0.png"))),
    "stream, hangs": (STREAM, "'alice/photos'", photos(fault("resolve", cut="hang", ending="0.png"))),
    "stream, half a file": (STREAM, "Disconnected", photos(fault("download", cut="file"))),
    "stream, a worker's 404": (
        f"{STREAM} --dataloader_num_workers 1",
        "'alice/photos'",
        photos(lambda hub: hub.inject("resolve", status=404, times=OFTEN, skip=24)),
    ),
    # It refuses
    "push, nobody": (PUSH, "hf auth login", token("")),
    "train, unknown token": (TRAIN, "token", token("hf_no")),
    "push, may only read": (PUSH, "read", token(ALICE_READS)),
    "train, another's": (TRAIN, "bob", token(BOB)),
    "calibrate, another's": (CALIBRATE, "bob", token(BOB)),
    "a name that leads out": ("!push run alice/..", "alice/..", token(ALICE)),
    "public, not private": (PUSH + " --private", "public", there("alice/x")),
    "no such model": (MODEL, "'alice/model'", token(ALICE)),
    "a private model": (MODEL, "private", there("alice/model", private=True, as_user=BOB)),
    "a gated model": (MODEL, "gated", there("alice/model", gated=True, as_user=BOB)),
    "no such branch": (MODEL + " --model_revision v9", "'v9'", model()),
    "no such dataset": (DATA, "'alice/photos'", token(ALICE)),
    "an empty dataset": (DATA, "alice/photos", there("alice/photos", "dataset")),
    "no checkpoint": ("train --resume_from_checkpoint alice/model", "last-checkpoint", model()),
    # It holds something hostile
    "code for a model": (MODEL, "code", model(code=HOSTILE_CODE.encode(), config=EVIL)),
    "code for a processor": (MODEL, "code", model(code=HOSTILE_CODE.encode(), preprocessor_config=EVIL_PROCESSOR)),
    "a loading script": (DATA, "script", script),
}
CUT = {f"push, cut {when}": (PUSH, "cut", fault("commit", cut=when)) for when in ("body", "answer")}
# It accepts, and never answers
SILENT: dict[str, tuple[str, str, Prepare]] = {
    **{f"push, {route}": (PUSH, "has not answered", fault(route, cut="hang")) for route in ("whoami", "upload")},
    "train, create": (TRAIN, "", fault("create", cut="hang")),
    "model, files": (MODEL, "", model(fault("resolve", cut="hang"))),
    "dataset, files": (DATA, "", photos(fault("resolve", cut="hang"))),
}
ALL = REFUSED | CUT | SILENT


@pytest.mark.parametrize("name", ALL)
def test_hub(name: str, hub: HubServer, attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, named, prepare = ALL[name]
    monkeypatch.setattr(limits, "SAY_AFTER", 0.1)
    monkeypatch.setattr(limits, "GIVE_UP_AFTER", 0.5)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between repetitions
    monkeypatch.setattr("datasets.utils.file_utils.time.sleep", lambda seconds: None)
    monkeypatch.setattr("builtins.input", lambda *args: "y")  # whoever asks gets a yes
    prepare(hub)
    # A card says where the model is: that of another place is rendered again.
    printed = attack(words, named, rewritten=("README.md", "card.json") if words.startswith(PUSH) else ())
    assert name not in SILENT or f"Waiting for {hub.endpoint}" in printed
    assert hub.key not in printed  # of addresses that are signed
    assert ALICE not in printed and BOB not in printed
    pushed = [files for repo in hub.store.repos.values() for commit in repo.commits.values() for files in commit.files]
    assert "evaluation.json" not in pushed or name in CUT
