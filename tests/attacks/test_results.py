"""What results say: nothing of the machine they were made on, and no markup or control characters from elsewhere."""

import json
import re
import shlex
import shutil
from pathlib import Path

import datasets
import pytest
from attacks.changes import edit
from attacks.conftest import QUICK, Attack
from datasets import ClassLabel, DatasetDict
from huggingface_hub import ModelCard

from macs_hf.cli.main import main
from macs_hf.publishing.push import files_to_push


# ---- Private ----


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
    assert "model_place" in capsys.readouterr().err
    assert main(shlex.split(f"evaluate {home / 'model'} {words}")) == 0  # the same again replaces its own results
    assert Path("runs", "model-data-evaluate", "evaluation.json").read_bytes() == before


# ---- Text ----

HOSTILE = ["<script>alert(1)</script>", "bee\n# A heading\n```\n[x](https://evil.example) | `a`"]


@pytest.fixture
def card(place: Path, own_process: None) -> str:
    """Of a model whose classes, and of data whose name and split, are hostile."""
    names = {str(number): name for number, name in enumerate(HOSTILE)}
    edit("model/config.json", id2label=names, label2id={name: int(number) for number, name in names.items()})(place)
    splits = datasets.load_from_disk(str(place / "data")).cast_column("label", ClassLabel(names=HOSTILE))
    DatasetDict({"<b>test": splits["test"], "train": splits["train"]}).save_to_disk(str(place / "# data [x](y)"))
    words = "calibrate model --dataset '# data [x](y)' --split '<b>test' --cpu --output_dir 'out`# x'"
    assert main(shlex.split(words)) == 0
    return (place / "out`# x" / "README.md").read_text()


def test_a_card_has_its_own_headings_and_no_markup_from_elsewhere(card: str) -> None:
    body = card.split("\n---\n", 1)[1]
    text = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", body)  # blocks of code show what they hold
    headings = re.findall(r"(?m)^#.*$", text)
    assert "alert(1)" in text  # the class is there
    assert "# A heading" not in text.splitlines()
    assert len(headings) == len(set(headings)) and all(re.match(r"#{1,3} \S", line) for line in headings)
    shown = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # and so does code in a line
    assert "<script" not in shown and "<b>" not in shown
    assert not re.search(r"(?<!\\)\]\((?!https://(?:huggingface|arxiv)|[a-z_]+\.png|#)", shown)


def test_its_metadata_are_read_as_text(card: str, place: Path) -> None:
    (result,) = {each.dataset_split for each in ModelCard(card).data.eval_results}
    assert result == "<b>test"
    assert json.loads((place / "out`# x" / "evaluation.json").read_text())["dataset"] == "# data [x](y)"


def test_a_comparison_writes_no_control_characters(place: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("run", "other"):
        edit(f"{name}/evaluation.json", dataset="\x1b[2J\u202edata", split="\ud800")(place)
    assert main(["compare", "run", "other"]) == 0
    assert capsys.readouterr().out.startswith("\\x1b[2J\\u202edata, ? (n = 8)\n")


def test_classes_of_a_model_do_not_write_lines(attack: Attack) -> None:
    names = {"0": "\x9b2J", "1": "x\nmacs-hf: done"}
    change = edit("model/config.json", id2label=names, label2id={name: int(number) for number, name in names.items()})
    printed = attack("evaluate --dataset digits", "x macs-hf: done", change)
    assert "\x9b" not in printed
