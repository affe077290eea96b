"""Secrets are refused and redacted; local paths become names."""

import os
from pathlib import Path

import pytest

from macs_hf.disk.free_space import check_free_space, readable_size
from macs_hf.disk.public_names import path_fingerprint, public_name, public_words
from macs_hf.disk.secrets import redact, refuse_secrets


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
        with pytest.raises(ValueError, match=r"^run_name=\.\.\. holds (a token|the value of .* MY_SECRET)") as caught:
            refuse_secrets({"seed": 1, "run_name": value})
        assert text not in str(caught.value)
    assert "REDACTED" in redact(f"a {text} b") and text not in redact(f"a {text} b")


@pytest.mark.parametrize(
    "text",
    [
        "hf_model",
        "hf-internal-testing/tiny",
        "shelf_0123456789abcdef01",
        "user/hf_photos",
        "sk-learn",
        "false",
        "digits",
    ],
)
def test_names_are_not_taken_for_tokens(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("KEY_FOLDER", os.getcwd())
    refuse_secrets({"a": text, "b": os.getcwd(), "c": None, "d": 3.5})
    assert redact(text) == text


def test_local_paths_become_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "photos").mkdir(parents=True)
    for name in (
        "data/photos",
        "data/photos/",
        "./data/photos",
        str(tmp_path / "data" / "photos"),
        "/not/there/photos",
    ):
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
    words = [
        "/home/me/settings.yaml",
        "--dataset",
        "/data/photos",
        "--output_dir=../../out",
        "--model",
        "~/m",
        "--lr=3",
    ]
    assert public_words(words) == [
        "settings.yaml",
        "--dataset",
        "photos",
        "--output_dir=out",
        "--model",
        "m",
        "--lr=3",
    ]
    kept = ["--model", "runs/first", "user/model", "--split", "test", "", "--flag=", "a=b"]
    assert public_words(kept) == kept


def test_room(tmp_path: Path) -> None:
    check_free_space(tmp_path / "not" / "there", 1000, "a model")
    with pytest.raises(
        OSError, match=r"will write about 1e\+03 TB to output_dir='.*new', but the disk has .*: a model"
    ):
        check_free_space(tmp_path / "new", 10**15, "a model")
    assert [readable_size(size) for size in (0, 999, 1500, 2_500_000, 4.2e9)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "2.5 MB",
        "4.2 GB",
    ]
