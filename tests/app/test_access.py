"""The owner of a machine may name anything; on a page for others, only what was given and what is public."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi
from loopback_hub.server import HubServer

from macs_hf.app.access import Access


OPEN = Access(given=("runs/mine", "digits"), is_private=False)


def test_the_owner_may_name_folders_and_ids(tmp_path: Path) -> None:
    for name in (str(tmp_path), "owner/model"):
        assert Access().check_model(f" {name} ") == Access().check_dataset(name) == name
    assert Access().check_folder(str(tmp_path)) == tmp_path


def test_an_empty_name_is_asked_for() -> None:
    for access in (Access(), OPEN):
        with pytest.raises(ValueError, match="Name a model"):
            access.check_model("  ")
        with pytest.raises(ValueError, match="Name a dataset"):
            access.check_dataset("")


def test_visitors_may_name_what_was_given_and_benchmarks() -> None:
    assert OPEN.check_model("runs/mine") == "runs/mine"
    assert OPEN.check_dataset("digits") == "digits"
    assert OPEN.check_dataset("cifar10") == "cifar10"


def test_visitors_never_reach_the_servers_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: HubServer
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    refusals = set()
    for name in (
        str(tmp_path),
        "owner/model",
        ".",
        "../..",
        "/etc",
        "runs/mine/..",
        "runs/mine/../../owner",
        "missing/x",
    ):
        for check in (OPEN.check_model, OPEN.check_dataset, OPEN.check_folder):
            with pytest.raises(ValueError, match="is no public") as caught:
                check(name)
            refusals.add(str(caught.value).replace(repr(name), "").replace("dataset", "model"))
    assert len(refusals) == 1  # what exists and what does not get the same answer
    assert OPEN.check_folder("runs/mine") == Path("runs/mine")


def test_visitors_do_not_borrow_the_servers_token(hub: HubServer) -> None:
    api = HfApi()  # alice's token is in the environment
    for kind, check in (("model", OPEN.check_model), ("dataset", OPEN.check_dataset)):
        api.create_repo("alice/open", repo_type=kind)
        api.create_repo("alice/hidden", repo_type=kind, private=True)
        assert check("alice/open") == "alice/open"
        with pytest.raises(ValueError, match="no public"):
            check("alice/hidden")


def test_offline_nothing_can_be_looked_up() -> None:
    with pytest.raises(ValueError, match="cannot be reached"):
        OPEN.check_model("owner/model")
