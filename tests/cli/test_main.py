"""`macs-hf` itself: its commands and their help, how little it takes to print it, freed memory, and the demo."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import macs_hf
from macs_hf.cli.main import COMMANDS, main
from macs_hf.cli.process import keep_freed_memory


ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "datasets", "timm")
LIGHT = ("--help", "--version", "train --help", "evaluate --help", "calibrate --help", "compare --help", "push --help")
LIGHT += ("export --help", "verify --help")


def left(code: int, argv: list[str]) -> None:
    """Runs a command that ends the process by itself."""
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == code


def test_help_lists_the_commands(capsys: pytest.CaptureFixture) -> None:
    left(0, ["--help"])
    text = capsys.readouterr().out
    for name, purpose in COMMANDS.items():
        assert f"  {name:<10} {purpose}\n" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture) -> None:
    if command == "train":
        assert main([command, "--help"]) == 0
    else:
        left(0, [command, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: macs-hf {command} ")
    assert "%%" not in text


def test_version(capsys: pytest.CaptureFixture) -> None:
    left(0, ["--version"])
    assert capsys.readouterr().out == f"macs-hf {macs_hf.__version__}\n"


def test_without_a_command_there_is_the_help(capsys: pytest.CaptureFixture) -> None:
    assert main([]) == 2
    assert "\ncommands:\n  train " in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
from macs_hf.cli.main import main
for words in {LIGHT!r}:
    try:
        main(words.split())
    except SystemExit as left:
        assert left.code == 0
    assert not [name for name in {HEAVY!r} if name in sys.modules], words
"""
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "macs_hf.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"macs-hf {macs_hf.__version__}\n"


# ---- Memory ----

PAGES = """
import resource
from macs_hf.cli.process import keep_freed_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        b"x" * 2**26
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = new_pages()
assert keep_freed_memory()
new_pages()
assert new_pages() < usual / 10
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_freed_memory_makes_room_for_the_next_but_where_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    subprocess.run([sys.executable, "-c", PAGES], env=kept, check=True)
    monkeypatch.setenv("MALLOC_TOP_PAD_", "0")
    assert not keep_freed_memory()


# ---- The demo: two methods on few digits, compared ----

QUICK = ("--num_train_epochs", "1", "--corruption_samples", "10", "--quiet")


@pytest.mark.slow
def test_the_demo_says_which_is_better_or_that_it_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    made = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    *trainings, comparison = re.findall(r"^\S+/macs-hf (train .*|compare .*)$", made, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    for words in trainings:
        assert main([*shlex.split(words), *QUICK]) == 0
    assert main(shlex.split(comparison)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("few_digits, test (n = 1097)\na = few_digits-tiny-recommended, ")
    verdicts = re.findall(r"(a is better|b is better|undecided|equal)$", shown, re.MULTILINE)
    assert len(verdicts) == 13
    assert max(map(len, shown.splitlines())) <= 80
