"""Attacks by text: names of classes, datasets, splits and commands stay text in cards."""

import json
import re
import shlex
from pathlib import Path

import datasets
import pytest
from attacks.changes import edit
from attacks.conftest import Attack
from datasets import ClassLabel, DatasetDict

from macs_hf.cli.main import main
from macs_hf.training.screen import Screen


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
    assert not re.search(r"(?<!\\)\]\((?!https://huggingface|[a-z_]+\.png|#)", shown)


def test_its_metadata_are_read_as_text(card: str, place: Path) -> None:
    from huggingface_hub import ModelCard

    (result,) = {each.dataset_split for each in ModelCard(card).data.eval_results}
    assert result == "<b>test"
    assert json.loads((place / "out`# x" / "evaluation.json").read_text())["dataset"] == "# data [x](y)"


def test_a_comparison_writes_no_control_characters(place: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("run", "other"):
        edit(f"{name}/evaluation.json", dataset="\x1b[2J\u202edata", split="\ud800")(place)
    assert main(["compare", "run", "other"]) == 0
    assert capsys.readouterr().out.startswith("\\x1b[2J\\u202edata, \\ud800 (n = 8)\n")


def test_a_screen_writes_no_control_characters(capsys: pytest.CaptureFixture) -> None:
    Screen().line("data \x1b]0;title\x07")
    assert capsys.readouterr().out == "data \\x1b]0;title\\x07\n"


def test_classes_of_a_model_do_not_write_lines(attack: Attack) -> None:
    names = {"0": "\x9b2J", "1": "x\nmacs-hf: done"}
    change = edit("model/config.json", id2label=names, label2id={name: int(number) for number, name in names.items()})
    printed = attack("evaluate --dataset digits", "classes are \\x9b2j, x macs-hf: done, ...", change)
    assert "\x9b" not in printed
