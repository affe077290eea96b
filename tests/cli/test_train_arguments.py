"""The arguments of `macs-hf train`: defaults, methods, files of settings, help."""

import json
import re
from pathlib import Path

import pytest

from macs_hf import METHODS, Objective, objective_of
from macs_hf.cli import train
from macs_hf.cli.train_arguments import ARGUMENTS, FINE_TUNING_LEARNING_RATE, SCRATCH_LEARNING_RATE, parse
from macs_hf.cli.train_help import COMMON


def test_defaults_need_no_arguments() -> None:
    settings, args = parse([])
    assert (settings.dataset, settings.model, settings.method) == ("digits", "tiny", "macs")
    assert args.output_dir == str(Path("runs", "digits-tiny-macs"))
    assert (args.lr_scheduler_type, args.warmup_steps, args.seed) == ("cosine", 0.1, 0)
    assert objective_of(args) == Objective()  # the paper's


@pytest.mark.parametrize("method", METHODS)
def test_a_method_sets_the_objective(method: str) -> None:
    args = parse(["--method", method])[1]
    for name, value in METHODS[method].items():
        assert getattr(args, name) == value, name
    assert args.output_dir.endswith(f"-{method}")


def test_flags_win_over_the_method() -> None:
    args = parse(["--method", "focal", "--focal_gamma", "3", "--lambda_margin", "0.2"])[1]
    assert (args.focal_gamma, args.lambda_margin, args.lambda_consistency) == (3.0, 0.2, 0.0)


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_settings_from_a_file_and_flags_that_win(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"settings.{suffix}"
    if suffix == "json":
        settings = {
            "method": "mbls",
            "mbls_margin": 6.0,
            "learning_rate": 3e-4,
            "max_train_samples": 50,
            "bf16": False,
        }
        path.write_text(json.dumps(settings))
    else:
        path.write_text("method: mbls\nmbls_margin: 6\nlearning_rate: 3e-4\nmax_train_samples: 50\nbf16: false\n")
    settings, args = parse([str(path), "--learning_rate", "0.01", "--seed", "7"])
    assert (settings.method, settings.max_train_samples) == ("mbls", 50)
    assert (args.lambda_mbls, args.mbls_margin, args.lambda_margin) == (0.1, 6, 0.0)
    assert (args.learning_rate, args.seed) == (0.01, 7)
    assert parse([str(path)])[1].learning_rate == 3e-4
    assert parse([str(path), "--method", "focal"])[1].focal_gamma == 2.0


def test_mistyped_settings(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ValueError, match=r"method='mcas' is not one of ce, label_smoothing, .*macs_augmix"):
        parse(["--method", "mcas"])
    path = tmp_path / "settings.yaml"
    path.write_text("method: macs\nlambda_margn: 0.2\n")
    with pytest.raises(ValueError, match=r"Unknown settings \['lambda_margn'\]"):
        parse([str(path)])
    with pytest.raises(ValueError, match=r"Unknown arguments: --lambda_margn 0.2. Did you mean --lambda_margin\?"):
        parse(["--lambda_margn", "0.2"])
    with pytest.raises(ValueError, match=r"Unknown arguments: --resume. Did you mean --resume_from_checkpoint\?"):
        parse(["--resume"])
    with pytest.raises(SystemExit):
        parse(["--learning_rate", "fast"])
    assert len(capsys.readouterr().err.splitlines()) == 2  # the usage is a line, not hundreds
    with pytest.raises(ValueError, match=r"lambda_margin=-1.0 must be a finite number >= 0"):
        parse(["--lambda_margin", "-1"])


def test_help_has_the_common_arguments_and_the_defaults_of_the_command(capsys: pytest.CaptureFixture) -> None:
    assert train.main(["--model", "resnet50", "--help"]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    names = [name for group in COMMON.values() for name in group]
    assert 28 <= len(names) == len(set(names)) <= 36
    assert re.findall(r"^  --(\w+)", text, re.MULTILINE) == names
    assert "--lambda_margin Weight of the squared hinge on the logit margin (default: 0.1, set by the method)" in words
    by_model = "(default: 0.0001: 0.005 for tiny, small and medium, 0.0001 for other models)"
    assert f"--learning_rate The largest learning rate; it warms up and decays {by_model}" in words
    assert "(default: runs/DATASET-MODEL-METHOD, here runs/digits-resnet50-macs)" in words
    assert "--image_size Height and width of the input, in pixels (default: what the model was trained with;" in words


def test_help_states_the_learning_rates_that_are_used() -> None:
    for model, rate in (("small", SCRATCH_LEARNING_RATE), ("resnet50", FINE_TUNING_LEARNING_RATE)):
        assert parse(["--model", model])[1].learning_rate == rate


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert train.main(["--help"]) == 0
    assert 70 < max(map(len, capsys.readouterr().out.splitlines())) <= columns


def test_help_all_has_every_argument(capsys: pytest.CaptureFixture) -> None:
    assert train.main(["--help-all"]) == 0
    text = capsys.readouterr().out
    assert {f"--{name}" for name in ARGUMENTS} <= set(re.findall(r"--\w+", text))


@pytest.mark.parametrize(
    "resume",
    [
        ["--resume_from_checkpoint", "True"],
        ["--resume-from-checkpoint", "/home/me/run/checkpoint-3"],
        ["--resume_from_checkpoint=user/model"],
    ],
)
def test_the_recorded_command_makes_the_run_from_the_start(
    resume: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "prepare", lambda *_: None)
    monkeypatch.setattr(train, "train", lambda *_: None)
    commands: list[str] = []
    monkeypatch.setattr(train, "finish", lambda prepared, script, args, command, screen: commands.append(command))
    train.main(["--dataset", "digits", *resume, "--output_dir=runs/a", "--seed", "3"])
    assert commands == ["macs-hf train --dataset digits --output_dir=runs/a --seed 3"]
