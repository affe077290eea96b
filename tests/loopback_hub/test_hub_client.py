"""The loopback Hub driven by `huggingface_hub`: a repository's life, cards, and who may do what."""

import hashlib
from collections.abc import Callable
from typing import Any

from loopback_hub.server import ALICE, ALICE_READS, BOB, HubServer


Client = Callable[..., Any]


def repository_life() -> dict[str, Any]:
    import os
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError

    api = HfApi()
    name = api.create_repo("life").repo_id
    assert api.create_repo(name, exist_ok=True).repo_id == name
    folder = Path("pushed")
    (folder / "sub folder").mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(os.urandom(3_000_000))
    (folder / "sub folder" / "é.txt").write_text("ünïcode")
    (folder / "empty.bin").touch()
    first = api.upload_folder(repo_id=name, folder_path=folder)
    unchanged = api.upload_folder(repo_id=name, folder_path=folder)
    local = Path(snapshot_download(name))
    same = all(
        (local / path.relative_to(folder)).read_bytes() == path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    )

    api.create_branch(name, branch="try/one")
    api.create_branch(name, branch="try/one", exist_ok=True)
    api.upload_file(repo_id=name, path_or_fileobj=b"branch", path_in_repo="note.txt", revision="try/one")
    api.create_tag(name, tag="v1", revision="try/one")
    api.delete_folder("sub folder", repo_id=name)
    try:
        hf_hub_download(name, "note.txt")
        on_main = "there"
    except EntryNotFoundError as error:
        on_main = type(error).__name__

    def upload(i: int) -> None:
        api.upload_file(repo_id=name, path_or_fileobj=b"%d" % i, path_in_repo=f"parallel/{i}.txt")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(upload, range(8)))
    files = {revision: sorted(api.list_repo_files(name, revision=revision)) for revision in ("main", "v1", first.oid)}
    entries = api.get_paths_info(name, ["empty.bin", "parallel", "no"])
    info = api.model_info(name, files_metadata=True)
    weights = next(file for file in info.siblings if file.rfilename == "weights.safetensors")
    return {
        "user": api.whoami()["name"],
        "role": api.whoami()["auth"]["accessToken"]["role"],
        "same": same,
        "unchanged": unchanged.oid == first.oid,
        "files": files | {"first": files.pop(first.oid)},
        "on_main": on_main,
        "tagged": Path(hf_hub_download(name, "note.txt", revision="v1")).read_text(),
        "weights": [weights.size, weights.lfs.sha256],
        "titles": [commit.title for commit in api.list_repo_commits(name)],
        "refs": [ref.name for ref in api.list_repo_refs(name).branches + api.list_repo_refs(name).tags],
        "listed": [model.id for model in api.list_models(author="alice")],
        "paths": [[entry.path, type(entry).__name__] for entry in entries],
    }


def test_repository_life(hub: HubServer, client: Client) -> None:
    result = client(repository_life)
    assert (result["user"], result["role"]) == ("alice", "write")
    assert result["same"] and result["unchanged"]
    assert result["on_main"] == "RemoteEntryNotFoundError" and result["tagged"] == "branch"
    first = [".gitattributes", "empty.bin", "sub folder/é.txt", "weights.safetensors"]
    parallel = [f"parallel/{i}.txt" for i in range(8)]
    assert result["files"]["first"] == first
    assert result["files"]["v1"] == sorted([*first, "note.txt"])
    assert result["files"]["main"] == [".gitattributes", "empty.bin", *parallel, "weights.safetensors"]
    assert len(result["titles"]) == 1 + 1 + 1 + 8 and result["titles"][-1] == "initial commit"
    assert sorted(result["refs"]) == ["main", "try/one", "v1"]
    assert result["listed"] == ["alice/life"]
    assert result["paths"] == [["empty.bin", "RepoFile"], ["parallel", "RepoFolder"]]
    weights = hub.files("alice/life")["weights.safetensors"]
    assert result["weights"] == [3_000_000, hashlib.sha256(weights).hexdigest()]
    assert hub.counts()["upload"] == 1  # the unchanged push sent nothing
    assert hub.counts()["unknown"] == 0

    with HubServer(hub.root) as restarted:
        assert restarted.files("alice/life") == hub.files("alice/life")
        assert restarted.repo("alice/life").commits == hub.repo("alice/life").commits


def cards() -> dict[str, Any]:
    from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData

    api = HfApi()
    api.create_repo("alice/card")
    results = [
        EvalResult(
            task_type="image-classification",
            dataset_type="alice/digits",
            dataset_name="Digits",
            metric_type=kind,
            metric_value=value,
            metric_args=args,
        )
        for kind, value, args in (("accuracy", 0.75, None), ("ece", 0.031, {"n_bins": 15}))
    ]
    data = ModelCardData(
        license="apache-2.0", library_name="transformers", base_model="timm/resnet34.a1_in1k", eval_results=results,
        model_name="card", pipeline_tag="image-classification", tags=["calibration"], datasets=["alice/digits"],
    )  # fmt: skip
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n# Card\n")
    # Not `card.push_to_hub`: older versions have its metadata checked by huggingface.co, whatever the endpoint.
    api.upload_file(repo_id="alice/card", path_or_fileobj=str(card).encode(), path_in_repo="README.md")
    info = api.model_info("alice/card")
    refused = []
    for line in ("license: beer", "tags: 3", "x: !!python/object:os.PathLike {}"):
        try:
            card = f"---\n{line}\n---\n".encode()
            api.upload_file(repo_id="alice/card", path_or_fileobj=card, path_in_repo="README.md")
        except ValueError as error:
            refused.append(str(error))
    return {
        "index": info.model_index,
        "tags": info.tags,
        "pipeline_tag": info.pipeline_tag,
        "refused": refused,
    }


def test_model_index_and_refused_cards(hub: HubServer, client: Client) -> None:
    result = client(cards)
    (model,) = result["index"]
    metrics = {metric["type"]: metric for entry in model["results"] for metric in entry["metrics"]}
    assert metrics["accuracy"]["value"] == 0.75
    assert metrics["ece"]["value"] == 0.031 and metrics["ece"]["args"] == {"n_bins": 15}
    assert result["pipeline_tag"] == "image-classification"
    assert {"calibration", "license:apache-2.0", "dataset:alice/digits"} <= set(result["tags"])
    complaints = ("must be one of the known ones, not 'beer'", "must be a list of strings, not 3", "YAML: ")
    assert all(word in message for word, message in zip(complaints, result["refused"], strict=True))
    assert len(list(hub.repo("alice/card").history())) == 2  # the refused ones were not committed


def prepare_permissions() -> None:
    from huggingface_hub import HfApi

    api = HfApi()
    for name, private in (("public", False), ("private", True), ("gated", False), ("granted", False)):
        api.create_repo(name, private=private)
        for path in ("config.json", "model.safetensors"):
            api.upload_file(repo_id=f"alice/{name}", path_or_fileobj=b"{}", path_in_repo=path)
    for name in ("gated", "granted"):
        api.update_repo_settings(f"alice/{name}", gated="manual")
    api.grant_access("alice/granted", "bob")
    api.create_repo("lab/shared")


def try_everything(tokens: dict[str, str]) -> dict[str, dict[str, str]]:
    from huggingface_hub import HfApi, hf_hub_download

    def outcome(action) -> str:
        try:
            action()
            return "ok"
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            return f"{type(error).__name__} {status}"

    outcomes = {}
    for who, token in tokens.items():
        api = HfApi(token=token or False)
        attempts = {"whoami": api.whoami, "create": lambda api=api: api.create_repo("new", exist_ok=False)}
        for name in ("public", "private", "gated", "granted", "missing"):
            repo = f"alice/{name}"
            attempts[f"info {name}"] = lambda api=api, repo=repo: api.model_info(repo)
            for path in ("config.json", "model.safetensors"):
                attempts[f"get {name} {path}"] = lambda api=api, repo=repo, path=path, who=who: hf_hub_download(
                    repo, path, token=api.token, cache_dir=f"cache {who}"
                )
            attempts[f"push {name}"] = lambda api=api, repo=repo: api.upload_file(
                repo_id=repo, path_or_fileobj=b"x", path_in_repo="x.txt"
            )
            attempts[f"check {name}"] = lambda api=api, repo=repo: api.auth_check(repo, write=True)
        attempts["push lab"] = lambda api=api: api.upload_file(
            repo_id="lab/shared", path_or_fileobj=b"x", path_in_repo="x.txt"
        )
        outcomes[who] = {name: outcome(action) for name, action in attempts.items()}
    return outcomes


def own_token() -> str | None:
    from huggingface_hub import get_token

    return get_token()


def test_environment_carries_the_token(client: Client) -> None:
    assert client(own_token, token=BOB) == BOB
    assert client(own_token, token=None) is None


def test_permissions(client: Client) -> None:
    client(prepare_permissions)
    tokens = {"read": ALICE_READS, "bob": BOB, "nobody": "", "wrong": "hf_unknown", "alice": ALICE}
    outcomes = client(try_everything, args=[tokens])
    weights = "model.safetensors"

    alice = outcomes["alice"]
    refused = {name for name, outcome in alice.items() if outcome != "ok"}
    assert refused == {name for name in alice if "missing" in name}
    assert alice["info missing"] == "RepositoryNotFoundError 404"

    read = outcomes["read"]
    for name in ("public", "private", "gated"):
        assert read[f"info {name}"] == read[f"get {name} {weights}"] == "ok"
        assert read[f"push {name}"] == read[f"check {name}"] == "HfHubHTTPError 403"
    assert read["create"] == "HfHubHTTPError 403"

    bob = outcomes["bob"]
    assert bob["info public"] == bob[f"get public {weights}"] == bob["create"] == "ok"
    assert bob["push public"] == bob["push lab"] == "HfHubHTTPError 403"
    assert bob["info private"] == bob["push private"] == "RepositoryNotFoundError 404"
    assert bob[f"get private {weights}"] == "RepositoryNotFoundError 404"
    assert bob["info gated"] == "ok"
    assert bob["get gated config.json"] == bob[f"get gated {weights}"] == "GatedRepoError 403"
    assert bob["get granted config.json"] == bob[f"get granted {weights}"] == "ok"

    nobody = outcomes["nobody"]
    assert nobody["info public"] == nobody[f"get public {weights}"] == "ok"
    assert nobody["info private"] == nobody["info missing"] == "RepositoryNotFoundError 401"
    assert nobody["get gated config.json"] == "GatedRepoError 401"
    assert nobody["create"] == "HfHubHTTPError 401"

    wrong = outcomes["wrong"]
    assert {outcome for name, outcome in wrong.items() if name != "whoami"} == {"HfHubHTTPError 401"}
    assert nobody["whoami"] != "ok" and wrong["whoami"] != "ok"


def leave_traces(secret: str) -> None:
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi()
    api.create_repo("traces")
    upload = {"repo_id": "alice/traces", "path_or_fileobj": f"key={secret}".encode()}
    api.upload_file(**upload, path_in_repo="removed.txt")
    api.delete_file("removed.txt", repo_id="alice/traces")
    addition = CommitOperationAdd("never.bin", f"lost={secret}".encode())
    api.preupload_lfs_files("alice/traces", [addition])
    api.upload_file(
        repo_id="alice/traces", path_or_fileobj=b"ok", path_in_repo="ok.txt", commit_message=f"by {secret}"
    )


def test_stored_bytes_hold_every_trace(hub: HubServer, client: Client) -> None:
    client(leave_traces, args=["SECRET"])
    found = {name for name, content in hub.stored_bytes("alice/traces") if b"SECRET" in content}
    uncommitted = hashlib.sha256(b"lost=SECRET").hexdigest()
    assert found == {"removed.txt", uncommitted, "repo.json"}
    assert set(hub.files("alice/traces")) == {".gitattributes", "ok.txt"}
