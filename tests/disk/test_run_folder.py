"""A folder belongs to one run, and one command at a time writes into it."""

import json
from fnmatch import fnmatch
from pathlib import Path

import pytest

from macs_hf.disk.run_folder import RESULTS, claim_folder, locked_folder
from macs_hf.publishing.card_settings import SETTINGS_FILE
from macs_hf.publishing.folder import CARD_FILE
from macs_hf.report.run import GALLERY, PAGE_FILE, PICTURES, REPORT_FILE, ROWS_FILE


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
    with pytest.raises(FileExistsError, match=rf"holds {name} of another run \(it has no record of what made it\)"):
        claim_folder(tmp_path, RUN)
    for record in ("", "[]", "[" * 100_000, "{"):
        (tmp_path / "run.json").write_text(record)
        with pytest.raises(FileExistsError, match="no record"):
            claim_folder(tmp_path, RUN)
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    claim_folder(tmp_path, RUN)
    with pytest.raises(FileExistsError, match=r"\(split: 'test', now 'train'\). Choose another output_dir"):
        claim_folder(tmp_path, RUN | {"split": "train"})
    with pytest.raises(FileExistsError, match="made by another command, evaluate"):
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
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["result"]
    with pytest.raises(ValueError, match="inside"), locked_folder(tmp_path / "a" / "b"):
        raise ValueError("inside")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["result"]


def test_the_second_is_refused(tmp_path: Path) -> None:
    with locked_folder(tmp_path), pytest.raises(FileExistsError, match="is in use"), locked_folder(tmp_path):
        pass
    with locked_folder(tmp_path):
        pass
