"""`make demo`: two methods on few digits, compared."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from macs_hf.cli.main import main
from macs_hf.cli.train_arguments import parse


ROOT = Path(__file__).parents[2]
QUICK = ("--num_train_epochs", "1", "--corruption_samples", "10", "--quiet")


@pytest.fixture(scope="module")
def commands() -> list[list[str]]:
    """The commands of the demo, without the program."""
    shown = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [shlex.split(words) for words in re.findall(r"^\S+/macs-hf (.*)$", shown, re.MULTILINE)]


def test_the_demo_trains_both_methods_and_compares_them(commands: list[list[str]]) -> None:
    *trainings, comparison = commands[:3]
    assert [words[0] for words in commands[:3]] == ["train", "train", "compare"]
    runs = [parse(words[1:]) for words in trainings]
    assert [(script.dataset, script.method) for script, _ in runs] == [("few_digits", "ce"), ("few_digits", "macs")]
    assert [args.output_dir for _, args in reversed(runs)] == comparison[1:]
    # Everything but the method is the same.
    assert len({(args.num_train_epochs, args.learning_rate, args.seed) for _, args in runs}) == 1
    makefile = (ROOT / "Makefile").read_text()
    assert "macs-hf app runs/$(DEMO)-macs" in makefile


@pytest.mark.slow
def test_the_demo_says_which_is_better_or_that_it_is_undecided(
    commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands[:2]:
        assert main([*words, *QUICK]) == 0
    assert main(commands[2]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("few_digits, test (n = 1097)\na = few_digits-tiny-macs, ")
    verdicts = re.findall(r"(a is better|b is better|undecided|equal)$", shown, re.MULTILINE)
    assert len(verdicts) == 13
    assert max(map(len, shown.splitlines())) <= 80
