"""The help of every command, and how little it takes to print it."""

import subprocess
import sys

import pytest

import macs_hf
from macs_hf.cli.main import COMMANDS, main


HEAVY = ("torch", "transformers", "datasets", "timm")
LIGHT = ("--help", "--version", "evaluate --help", "calibrate --help", "compare --help", "push --help")
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


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"train"}))
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture) -> None:
    left(0, [command, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: macs-hf {command} ")
    assert "%%" not in text


def test_the_help_of_train(capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: macs-hf train ")


def test_version(capsys: pytest.CaptureFixture) -> None:
    left(0, ["--version"])
    assert capsys.readouterr().out == f"macs-hf {macs_hf.__version__}\n"


def test_without_a_command_there_is_the_help(capsys: pytest.CaptureFixture) -> None:
    assert main([]) == 2
    assert "\ncommands:\n  train " in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["trian"], ["evaluate"], ["compare", "one"], ["push", "folder"]])
def test_incomplete_commands(argv: list[str], capsys: pytest.CaptureFixture) -> None:
    left(2, argv)
    assert capsys.readouterr().err.startswith("usage: macs-hf ")


@pytest.mark.parametrize("option", ["--batch_size", "--image_size", "--corruption_samples"])
@pytest.mark.parametrize("value", ["0", "-4", "2.5", "many"])
def test_sizes_that_cannot_be(option: str, value: str, capsys: pytest.CaptureFixture) -> None:
    left(2, ["evaluate", "model", "--dataset", "digits", f"{option}={value}"])
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == "usage: macs-hf evaluate MODEL --dataset DATASET [OPTIONS]"
    assert error == f"macs-hf evaluate: error: argument {option}: {value!r} is not a whole number of at least 1"


@pytest.mark.parametrize("words", LIGHT)
def test_help_imports_nothing_heavy(words: str) -> None:
    code = f"""
import sys
from macs_hf.cli.main import main
try:
    main({words.split()!r})
except SystemExit as left:
    assert left.code == 0
print("imported:", *[name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("imported:\n")


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "macs_hf.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"macs-hf {macs_hf.__version__}\n"
