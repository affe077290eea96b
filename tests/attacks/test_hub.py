"""Attacks by the Hub: it hangs, fails, refuses, or holds something hostile. The limits of waiting are shortened."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from attacks.changes import EXECUTED, HOSTILE_CODE, hostile_pickle
from attacks.conftest import Attack
from huggingface_hub import HfApi, constants
from loopback_hub.server import ALICE, ALICE_READS, BOB, HubServer

from macs_hf.hub import deadlines


Prepare = Callable[[HubServer], None]

PUSH = "!push run alice/x"
TRAIN = "train --push_to_hub --hub_model_id alice/x"
CALIBRATE = "calibrate --push_to_hub alice/x"
MODEL = "!evaluate alice/model --dataset data --cpu --output_dir out"
DATA = "train --dataset alice/photos"
STREAM = f"{DATA} --streaming --max_steps 2"
SILENT = "has not answered for"
LATER = "HTTP 429 (too many requests) and asks to wait for 300 s"
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


def model(fault: Prepare = lambda hub: None, **files: bytes | None) -> Prepare:
    """The model on the Hub, with other files, or without those of None."""

    def prepare(hub: HubServer) -> None:
        api = HfApi()
        api.create_repo("alice/model")
        api.upload_folder(repo_id="alice/model", folder_path="model")
        for name, content in files.items():
            path = {"code": "evil.py", "weights": "model.safetensors", "pickle": "pytorch_model.bin"}.get(
                name, f"{name}.json"
            )
            if content is None:
                api.delete_file(path, "alice/model")
            else:
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

HUB = [
    # It accepts, and never answers
    *(
        (f"push, {route} hangs", PUSH, SILENT, fault(route, cut="hang"))
        for route in ("whoami", "create", "auth_check")
    ),
    *((f"push, {route} hangs", PUSH, SILENT, fault(route, cut="hang")) for route in ("info", "tree", "preupload")),
    *((f"push, {route} hangs", PUSH, SILENT, fault(route, cut="hang")) for route in ("lfs_batch", "upload", "commit")),
    *((f"train, {route} hangs", TRAIN, SILENT, fault(route, cut="hang")) for route in ("whoami", "create", "info")),
    ("calibrate, whoami hangs", CALIBRATE, SILENT, fault("whoami", cut="hang")),
    ("model, files hang", MODEL, SILENT, model(fault("resolve", cut="hang"))),
    ("model, access hangs", MODEL, SILENT, model(fault("auth_check", cut="hang"))),
    ("model, list hangs", MODEL + " --model_revision main", SILENT, model(fault("info", cut="hang"))),
    ("dataset, files hang", DATA, SILENT, photos(fault("resolve", cut="hang"))),
    ("dataset, list hangs", DATA, SILENT, photos(fault("tree", cut="hang"))),
    # It fails
    *((f"push, whoami {code}", PUSH, f"HTTP {code}", fault("whoami", code)) for code in (500, 503)),
    *((f"push, create {code}", PUSH, f"HTTP {code}", fault("create", code)) for code in (400, 403, 429, 500)),
    *((f"push, commit {code}", PUSH, f"HTTP {code}", fault("commit", code)) for code in (400, 401, 403, 413, 503)),
    ("push, no space", PUSH, "the Hub has no space (HTTP 507)", fault("commit", 507)),
    ("push, no space for a file", PUSH, "the Hub has no space (HTTP 507)", fault("upload", 507)),
    ("push, may not upload", PUSH, "may not write there (HTTP 403)", fault("preupload", 403)),
    ("push, cut in the middle", PUSH, "the connection was cut", fault("commit", cut="body")),
    ("push, cut before the answer", PUSH, "the connection was cut", fault("commit", cut="answer")),
    ("train, whoami 503", TRAIN, "HTTP 503", fault("whoami", 503)),
    ("model, files 500", MODEL, "answers with HTTP 500", model(fault("resolve", 500))),
    ("model, files 503", MODEL, "answers with HTTP 503", model(fault("resolve", 503))),
    ("dataset, list 500", DATA, "HTTP 500", photos(fault("info", 500))),
    ("dataset, files 503", DATA, "HTTP 503", photos(fault("resolve", 503))),
    ("model, wait for minutes", MODEL, LATER, model(fault("resolve", 429, retry_after=300))),
    ("dataset, wait for minutes", DATA, LATER, photos(fault("resolve", 429, retry_after=300))),
    ("push, wait for minutes", PUSH, LATER, fault("preupload", 429, retry_after=300)),
    # One file fails
    *(
        (
            f"{name} {code}",
            MODEL,
            f"cannot be read: {why} {name.strip('/')} (HTTP {code})",
            model(fault("resolve", code, ending=name)),
        )
        for name in ("/config.json", "preprocessor_config.json", "model.safetensors")
        for code, why in ((403, "your token may not read"), (404, "the Hub does not find"))
    ),
    *(
        (
            f"{name} cut",
            MODEL,
            f"the connection was cut (at {name.strip('/')})",
            model(fault("resolve", cut="body", ending=name)),
        )
        for name in ("/config.json", "preprocessor_config.json", "model.safetensors")
    ),
    ("storage 403", MODEL, "your token may not read a file of it (HTTP 403)", model(fault("download", 403))),
    ("storage cut", MODEL, "the connection was cut (at a file of it)", model(fault("download", cut="body"))),
    ("photo 403", DATA, "may not read train/ant/0.png (HTTP 403)", photos(fault("resolve", 403, ending="0.png"))),
    ("photo 404", DATA, "does not find train/ant/0.png (HTTP 404)", photos(fault("resolve", 404, ending="0.png"))),
    ("photo cut", DATA, "was cut (at train/ant/0.png)", photos(fault("resolve", cut="body", ending="0.png"))),
    ("photos, list 403", DATA, "may not read its list of files (HTTP 403)", photos(fault("tree", 403))),
    # A stream, whose files are read one by one
    *(
        (f"stream {code}", STREAM, f"Dataset 'alice/photos' cannot be read: {why}", photos(fault(*of)))
        for code, why, of in (
            (404, "the Hub does not find train/ant/0.png (HTTP 404).", ("resolve", 404, None, "0.png")),
            (403, "your token may not read train/ant/0.png (HTTP 403).", ("resolve", 403, None, "0.png")),
            ("storage 403", "your token may not read train/ant/0.png (HTTP 403).", ("download", 403)),
            (503, "http://127.0.0.1", ("resolve", 503, None, "0.png")),
            ("hangs", "http://127.0.0.1", ("resolve", None, "hang", "0.png")),
        )
    ),
    *(
        (f"stream, {what}", STREAM, "is cut again and again while the dataset is streamed", photos(of))
        for what, of in (
            ("cut", fault("resolve", cut="body", ending="0.png")),
            ("half a file", fault("download", cut="file")),
        )
    ),
    (
        "stream, a worker's 404",
        f"{STREAM} --dataloader_num_workers 1",
        "Dataset 'alice/photos' cannot be read: the Hub does not find train/",
        photos(lambda hub: hub.inject("resolve", status=404, times=OFTEN, skip=24)),
    ),
    # It refuses
    *((f"{words[:10]}, nobody is logged in", words, "you are not logged in", token("")) for words in (PUSH, TRAIN)),
    *((f"{words[:10]}, unknown token", words, "does not know your token", token("hf_no")) for words in (PUSH, TRAIN)),
    *(
        (f"{words[:10]}, may only read", words, "may only read", token(ALICE_READS))
        for words in (PUSH, TRAIN, CALIBRATE)
    ),
    *(
        (f"{words[:10]}, another's", words, "bob may not write there", token(BOB))
        for words in (PUSH, TRAIN, CALIBRATE)
    ),
    ("a name with spaces", "!push run 'a b'", "'a b' cannot be pushed to", token(ALICE)),
    ("a name with three parts", "!push run a/b/c", "'a/b/c' cannot be pushed to", token(ALICE)),
    ("a name that climbs", "!push run alice/..", "cannot be pushed to", token(ALICE)),
    ("public, not private", PUSH + " --private", "it is there already and public", there("alice/x")),
    ("public, trained", TRAIN + " --hub_private_repo true", "it is there already and public", there("alice/x")),
    ("no such model", MODEL, "Model 'alice/model' is not at", token(ALICE)),
    (
        "a private model",
        MODEL,
        "it is private and your token may not read it",
        there("alice/model", private=True, as_user=BOB),
    ),
    (
        "a gated model",
        MODEL,
        "is gated, and your token's account has no access yet",
        there("alice/model", gated=True, as_user=BOB),
    ),
    ("an unknown token", MODEL, "cannot be read: the Hub does not know your token", token("hf_no")),
    ("no such branch", MODEL + " --model_revision v9", "has no branch, tag or commit 'v9'", model()),
    ("no such dataset", DATA, "Dataset 'alice/photos' is not at", token(ALICE)),
    ("a private dataset", DATA, "it is private and your", there("alice/photos", "dataset", private=True, as_user=BOB)),
    ("a gated dataset", DATA, "is gated, and your", there("alice/photos", "dataset", gated=True, as_user=BOB)),
    ("an empty dataset", DATA, "alice/photos", there("alice/photos", "dataset")),
    ("an empty model", MODEL, "alice/model", there("alice/model")),
    ("no checkpoint", "train --resume_from_checkpoint alice/model", "has no last-checkpoint/ to resume from", model()),
    ("no repository", "train --resume_from_checkpoint alice/no", "Checkpoint 'alice/no' is not at", token(ALICE)),
    # It holds something hostile
    ("code for a model", MODEL, "which is never run", model(code=HOSTILE_CODE.encode(), config=EVIL)),
    (
        "code for a processor",
        MODEL,
        "which is never run",
        model(code=HOSTILE_CODE.encode(), preprocessor_config=EVIL_PROCESSOR),
    ),
    ("a pickle", MODEL, "model.safetensors", model(weights=None, pickle=hostile_pickle())),
    ("damaged weights", MODEL, "the file is damaged or incomplete", model(weights=b"\x10")),
    ("a damaged config", MODEL, "cannot be loaded: its config.json is not a valid JSON file", model(config=b"{")),
    ("a loading script", DATA, "Dataset scripts are no longer supported", script),
]


@pytest.mark.parametrize(("words", "sentence", "prepare"), [row[1:] for row in HUB], ids=[row[0] for row in HUB])
def test_hub(
    words: str,
    sentence: str,
    prepare: Prepare,
    hub: HubServer,
    attack: Attack,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("SAY_AFTER", 0.1), ("GIVE_UP_AFTER", 0.5), ("ERRORS_FOR", 0.0)):
        monkeypatch.setattr(deadlines, name, seconds)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between repetitions
    monkeypatch.setattr("datasets.utils.file_utils.time.sleep", lambda seconds: None)
    monkeypatch.setattr("builtins.input", lambda *args: "y")  # whoever asks gets a yes
    prepare(hub)
    # A card says where the model is: that of another place is rendered again.
    printed = attack(words, sentence, rewritten=("README.md", "card.json") if words.startswith(PUSH) else ())
    if sentence == SILENT:
        assert f"Waiting for {hub.endpoint} to answer" in printed
    assert not list(place.rglob(EXECUTED))
    assert hub.key not in printed  # of addresses that are signed
    assert ALICE not in printed and BOB not in printed
    pushed = [files for repo in hub.store.repos.values() for commit in repo.commits.values() for files in commit.files]
    assert "evaluation.json" not in pushed or sentence == "the connection was cut"
