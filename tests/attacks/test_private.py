"""What results say of the machine they were made on: nothing. And the Hub is asked once whether one may push."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from attacks.conftest import QUICK
from loopback_hub.server import HubServer

from macs_hf.cli.main import main
from macs_hf.publishing.folder import files_to_push


def texts(folder: Path) -> dict[str, str]:
    """All that could be published, and the record of the run."""
    paths = [*files_to_push(folder).values(), folder / "run.json"]
    return {path.name: path.read_bytes().decode(errors="replace") for path in paths}


@pytest.fixture
def home(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data", "model"):
        shutil.copytree(world / name, tmp_path / "home" / "somebody" / name)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home" / "somebody"


def test_local_paths_are_in_no_file(home: Path) -> None:
    where = {name: home / name for name in ("data", "model", "trained", "measured", "calibrated")}
    for words in (
        f"train --dataset {where['data']} --model ../home/somebody/model --output_dir {where['trained']} {QUICK}",
        f"evaluate {where['trained']} --dataset {where['data']} --output_dir={where['measured']} --cpu",
        f"calibrate {where['trained']} --dataset {where['data']} --output_dir ../home/somebody/calibrated --cpu",
    ):
        assert main(shlex.split(words)) == 0
    for name in ("trained", "measured", "calibrated"):
        for file, text in texts(where[name]).items():
            assert "somebody" not in text, f"{name}/{file}"
    report = json.loads((where["trained"] / "evaluation.json").read_text())
    assert (report["model"], report["dataset"]) == ("model", "data")
    assert report["command"].startswith("macs-hf train --dataset data --model model --output_dir trained --num_train")
    assert {name: report["training_arguments"][name] for name in ("model", "dataset")} == {
        "model": "model",
        "dataset": "data",
    }
    report = json.loads((where["calibrated"] / "evaluation.json").read_text())
    assert report["command"] == "macs-hf calibrate trained --dataset data --output_dir calibrated --cpu"
    card = json.loads((where["calibrated"] / "card.json").read_text())
    assert (card["base_model"], card["datasets"]) == (None, [])


def test_two_local_models_of_one_name_do_not_share_a_folder(home: Path, capsys: pytest.CaptureFixture) -> None:
    shutil.copytree(home / "model", home / "second" / "model")
    words = f"--dataset {home / 'data'} --cpu"
    assert main(shlex.split(f"evaluate {home / 'model'} {words}")) == 0
    before = Path("runs", "model-data-evaluate", "evaluation.json").read_bytes()
    with pytest.raises(SystemExit):
        main(shlex.split(f"evaluate {home / 'second' / 'model'} {words}"))
    assert "of another run (model_place: " in capsys.readouterr().err
    assert main(shlex.split(f"evaluate {home / 'model'} {words}")) == 0  # the same again replaces its own results
    assert Path("runs", "model-data-evaluate", "evaluation.json").read_bytes() == before


def test_access_is_checked_once(home: Path, hub: HubServer) -> None:
    words = f"train --dataset {home / 'data'} --output_dir out {QUICK} --push_to_hub --hub_model_id once"
    words += " --hub_strategy end"
    assert main(shlex.split(words)) == 0
    assert "evaluation.json" in hub.files("alice/once")
    asked = hub.counts()
    assert {route: asked[route] for route in ("whoami", "create", "auth_check", "info", "commit")} == {
        **{"whoami": 1, "create": 1, "auth_check": 1, "info": 1},
        "commit": 1,
    }
    assert [commit.title for commit in hub.repo("alice/once").history()] == ["End of training", "initial commit"]


@pytest.mark.parametrize(
    "words",
    [
        "train --dataset digits --run_name {token}",
        "evaluate model --dataset digits --model_revision {token}",
        "calibrate model --dataset digits --model_revision {token}",
        "export model --output_dir out --model_revision {token}",
        "verify model --model_revision {token}",
        "push out user/name --revision {token}",
    ],
    ids=lambda words: words.split()[0],
)
def test_no_command_takes_a_secret(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    token = "hf_" + "a1" * 17
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(words.format(token=token)))
    error = capsys.readouterr().err
    assert caught.value.code == 2 and "token" in error and token not in error
    assert list(tmp_path.iterdir()) == []
