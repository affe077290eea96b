"""A folder belongs to one run, one command at a time writes into it, and nothing in it is a secret or a local path."""

import json
import os
from fnmatch import fnmatch
from pathlib import Path

import pytest

from macs_hf.exceptions import ArgumentError
from macs_hf.publishing.card import CARD_FILE, SETTINGS_FILE
from macs_hf.report.run_folder import (
    GALLERY,
    PAGE_FILE,
    PICTURES,
    REPORT_FILE,
    RESULTS,
    ROWS_FILE,
    claim_folder,
    locked_folder,
    path_fingerprint,
    public_name,
    public_words,
    redact,
    refuse_secrets,
)


RUN = {"command": "evaluate", "model": "tiny", "split": "test", "revision": None}


def test_a_new_folder_is_claimed_and_the_same_run_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    claim_folder(folder, RUN)
    recorded = {"command": "evaluate", "model": "tiny", "split": "test"}
    assert json.loads((folder / "run.json").read_text()) == recorded
    (folder / "evaluation.json").write_text("{}")
    claim_folder(folder, RUN)
    claim_folder(folder, recorded)  # an argument that was left out says nothing


@pytest.mark.parametrize("name", ["checkpoint-5", "model.safetensors", "README.md", "evaluation.json", "config.json"])
def test_results_of_another_run_are_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    for record in (None, "", "[]", "[" * 100_000, "{"):
        if record is not None:
            (tmp_path / "run.json").write_text(record)
        with pytest.raises(FileExistsError, match=rf"{name} .*no record"):
            claim_folder(tmp_path, RUN)
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    claim_folder(tmp_path, RUN)
    with pytest.raises(FileExistsError, match=r"\(split: 'test', now 'train'\)"):
        claim_folder(tmp_path, RUN | {"split": "train"})
    with pytest.raises(FileExistsError, match=r"\(command: 'evaluate', now 'calibrate'\)"):
        claim_folder(tmp_path, RUN | {"command": "calibrate", "model": "other"})


def test_all_that_is_written_counts() -> None:
    names = {REPORT_FILE, ROWS_FILE, PAGE_FILE, *PICTURES, GALLERY, CARD_FILE, SETTINGS_FILE, "config.json"}
    names.add("model.safetensors")
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in RESULTS)] == []


def test_other_files_are_nobodys_results(tmp_path: Path) -> None:
    for name in ("notes.txt", "log.txt", "cell.json", "checkpoint-best"):
        (tmp_path / name).touch()
    claim_folder(tmp_path, RUN)


def test_a_run_goes_on_from_its_own_checkpoint_for_longer(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    run = {"method": "macs", "max_steps": 5}
    claim_folder(own, run)
    (own / "checkpoint-5").mkdir()
    (other / "checkpoint-5").mkdir(parents=True)
    longer, changed = run | {"max_steps": 9}, run | {"method": "ce"}
    for identity, checkpoint in ((longer, other), (changed, own), (changed, other)):
        with pytest.raises(FileExistsError, match="another run"):
            claim_folder(own, identity, continues=str(checkpoint / "checkpoint-5"), changeable=("max_steps",))
    assert json.loads((own / "run.json").read_text()) == run
    claim_folder(own, longer, continues=str(own / "checkpoint-5"), changeable=("max_steps",))
    assert json.loads((own / "run.json").read_text()) == longer
    claim_folder(other, run, continues=str(other / "checkpoint-5"))  # what the checkpoint says decides


def test_the_record_holds_no_secret(tmp_path: Path) -> None:
    claim_folder(tmp_path, RUN | {"split": "hf_aliceWrites4kTq9ZpLx2"})
    assert json.loads((tmp_path / "run.json").read_text())["split"] == "REDACTED"


def test_a_folder_in_which_nothing_was_written_is_removed_again(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "a" / "b"):
        claim_folder(tmp_path / "a" / "b", RUN)
    assert list(tmp_path.iterdir()) == []
    with locked_folder(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "result").touch()
    with pytest.raises(ValueError, match="inside"), locked_folder(tmp_path / "a" / "b"):
        raise ValueError("inside")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["result"]


def test_the_second_is_refused(tmp_path: Path) -> None:
    with locked_folder(tmp_path), pytest.raises(FileExistsError, match="is in use"), locked_folder(tmp_path):
        pass
    with locked_folder(tmp_path):
        pass


# ---- Secrets, and names without paths ----

HUB = "hf_aliceWrites4kTq9ZpLx2"


@pytest.mark.parametrize(
    "text",
    [
        HUB,
        f"https://alice:{HUB}@huggingface.co",
        "api_org_aliceWrites4kTq9ZpLx2",
        "ghp_0123456789abcdef0123456789abcdef0123",
        "sk-abcdefghijklmnopqrstuvwxyz",
        "AKIA0123456789ABCDEF",
        "my secret value",
    ],
)
def test_tokens_are_found_anywhere(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "secret value")
    for value in (text, [text], {"a": [text]}, {text: 1}, (1, {"b": {text}})):
        with pytest.raises(ArgumentError) as caught:
            refuse_secrets({"seed": 1, "run_name": value})
        assert caught.value.argument == "run_name" and text not in str(caught.value)
    assert "REDACTED" in redact(f"a {text} b") and text not in redact(f"a {text} b")


@pytest.mark.parametrize(
    "text",
    ["hf_model", "hf-internal-testing/tiny", "shelf_0123456789abcdef01", "user/hf_photos", "sk-learn", "false"],
)
def test_names_are_not_taken_for_tokens(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("KEY_FOLDER", os.getcwd())
    refuse_secrets({"a": text, "b": os.getcwd(), "c": None, "d": 3.5})
    assert redact(text) == text


def test_local_paths_become_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "photos").mkdir(parents=True)
    for name in ("data/photos", "data/photos/", "./data/photos", f"{tmp_path}/data/photos", "/not/there/photos"):
        assert public_name(name) == "photos"
    assert public_name(".") == tmp_path.name
    for name in ("owner/photos", "resnet50", "tiny", ""):
        assert public_name(name) == name


def test_places_differ_where_names_do_not_and_move_together(tmp_path: Path) -> None:
    for folder in ("a/photos", "b/photos", "a/runs", "moved"):
        (tmp_path / folder).mkdir(parents=True)
    first = path_fingerprint(str(tmp_path / "a" / "photos"), tmp_path / "a" / "runs")
    assert first != path_fingerprint(str(tmp_path / "b" / "photos"), tmp_path / "a" / "runs")
    (tmp_path / "a").rename(tmp_path / "moved" / "a")
    assert path_fingerprint(str(tmp_path / "moved" / "a" / "photos"), tmp_path / "moved" / "a" / "runs") == first
    assert path_fingerprint("owner/photos", tmp_path) is None


def test_commands_keep_no_machine_paths() -> None:
    words = ["/home/me/settings.yaml", "--dataset", "/data/photos", "--output_dir=../../out", "--model", "~/m"]
    assert public_words(words) == ["settings.yaml", "--dataset", "photos", "--output_dir=out", "--model", "m"]
    kept = ["--model", "runs/first", "user/model", "--split", "test", "", "--flag=", "a=b"]
    assert public_words(kept) == kept
