"""The arguments of `macs-hf train`: defaults, methods, files of settings, checks before a run, help."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiny import arguments

from macs_hf import METHODS, Objective, objective_of
from macs_hf.cli import train
from macs_hf.cli.train_arguments import (
    COMMON,
    FINE_TUNING_LEARNING_RATE,
    METRICS,
    SCRATCH_LEARNING_RATE,
    USUAL,
    argument_names,
    check_training_arguments,
    parse,
    read_settings,
)
from macs_hf.exceptions import ArgumentError
from macs_hf.metrics import summarize
from macs_hf.report.rows import SampleRows


def test_defaults_need_no_arguments() -> None:
    settings, args = parse([])
    assert (settings.dataset, settings.model, args.method) == ("digits", "tiny", "recommended")
    assert args.output_dir == str(Path("runs", "digits-tiny-recommended"))
    assert (args.lr_scheduler_type, args.warmup_steps, args.seed) == ("cosine", 0.1, 0)
    assert objective_of(args) == Objective(**METHODS["recommended"])


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
        settings = {"method": "mbls", "mbls_margin": 6.0, "learning_rate": 3e-4, "max_train_samples": 50}
        path.write_text(json.dumps(settings | {"bf16": False}))
    else:
        path.write_text("method: mbls\nmbls_margin: 6\nlearning_rate: 3e-4\nmax_train_samples: 50\nbf16: false\n")
    settings, args = parse([str(path), "--learning_rate", "0.01", "--seed", "7"])
    assert (args.method, settings.max_train_samples) == ("mbls", 50)
    assert (args.lambda_mbls, args.mbls_margin, args.lambda_margin) == (0.1, 6, 0.0)
    assert (args.learning_rate, args.seed) == (0.01, 7)
    assert parse([str(path)])[1].learning_rate == 3e-4
    assert parse([str(path), "--method", "focal"])[1].focal_gamma == 2.0


def settings_file(folder: Path, text: str, suffix: str = "yaml") -> str:
    path = folder / f"settings.{suffix}"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("learning_rate: 1e-3", "learning_rate", 1e-3),  # text to YAML
        ("learning_rate: '2e-4'", "learning_rate", 2e-4),
        ("num_train_epochs: 3", "num_train_epochs", 3.0),
        ("max_steps: '10'", "max_steps", 10),
        ("gradient_checkpointing: 'yes'", "gradient_checkpointing", True),
        ("lr_scheduler_type: linear", "lr_scheduler_type", "linear"),
        ("eval_strategy: 'no'", "eval_strategy", "no"),
        ("run_name: -7", "run_name", "-7"),
        ("run_name: two words", "run_name", "two words"),
        ("data_seed: null", "data_seed", None),
        ("optim_target_modules: [head]", "optim_target_modules", ["head"]),
        ("lr_scheduler_kwargs: {min_lr: 0.1, cycles: 2}", "lr_scheduler_kwargs", {"min_lr": 0.1, "cycles": 2}),
        ("# only a comment", "seed", 0),
    ],
)
def test_settings_mean_what_the_flags_mean(text: str, name: str, value: Any, tmp_path: Path) -> None:
    found = getattr(parse([settings_file(tmp_path, text)])[1], name)
    assert found == value and isinstance(found, type(value))


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--method", "mcas"], "method='mcas'"),
        (["--lambda_margin", "-1"], "lambda_margin=-1.0"),
        (["--lambda_margn", "0.2"], "--lambda_margin"),
        (["--resume"], "--resume_from_checkpoint"),
        (["settings.yaml"], "--lambda_margin"),
        (["--do_train"], "do_train"),
        (["--batch-eval-metrics=true"], "batch_eval_metrics"),
        (["listed.yaml"], "label_names"),
    ],
)
def test_mistypes(argv: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings_file(tmp_path, "lambda_margn: 0.2\n")
    (tmp_path / "listed.yaml").write_text("label_names: [labels]\n")
    with pytest.raises(ValueError, match=re.escape(named)):
        parse(argv)


def test_the_usage_is_a_line(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        parse(["--learning_rate", "fast"])
    assert len(capsys.readouterr().err.splitlines()) == 2  # not hundreds


PIECES = [
    "seed",
    "method",
    ":",
    ": ",
    "\n",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!!int ",
    "!!python/name:os.system",
]
PIECES += ["'", '"', "|", ">", "#", "~", "1", "0x1", "1e3", ".inf", "true", "no", "\t", "---\n", "...\n", "<<", "? "]


@given(st.binary() | st.text() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("[" * 5000)
@example("a: &a [*a]")
@example("? [seed]\n: 1")
@example("seed: !!timestamp x")
@example("seed: !!int x")
@example("seed: !!binary x")
@example("!!map [1]")
@example("<<: [1]")
@example("seed: " + "9" * 5000)
@example("\x00")
def test_any_file_is_read_or_refused_by_its_name(folder: Path, content: str | bytes) -> None:
    path = folder / "settings.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    try:
        words, values = read_settings(path)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert all(word.startswith("--") for word in words) and isinstance(values, dict)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings")


# ---- Checks ----

IMPOSSIBLE = {
    "num_train_epochs": (0, math.nan, math.inf),
    "max_steps": (0, -5),
    "per_device_train_batch_size": (0,),
    "learning_rate": (-1.0, math.nan, math.inf),
    "save_steps": (0, math.nan),
    "metric_for_best_model": ("eval_nope", ""),
    "report_to": (["nowhere"], ["clearml"]),
    "output_dir": ("",),
    "hub_model_id": ("alice/x", " "),
}
POSSIBLE = {
    "num_train_epochs": (0.5,),
    "learning_rate": (0.0,),
    "eval_steps": (0.1, None),
    "max_steps": (1,),
    "metric_for_best_model": ("eval_ece", None),
    "report_to": ([], ["flyte"]),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in IMPOSSIBLE for value in IMPOSSIBLE[name]])
def test_values_that_cannot_be(name: str, value: Any, tmp_path: Path) -> None:
    args = arguments(tmp_path, max_steps=-1)
    setattr(args, name, value)
    with pytest.raises(ArgumentError, match=name):
        check_training_arguments(args)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in POSSIBLE for value in POSSIBLE[name]])
def test_values_that_can_be(name: str, value: Any, tmp_path: Path) -> None:
    args = arguments(tmp_path, max_steps=-1)
    setattr(args, name, value)
    check_training_arguments(args)


def test_steps_make_epochs_irrelevant(tmp_path: Path) -> None:
    check_training_arguments(arguments(tmp_path, max_steps=3, num_train_epochs=-1))


def test_the_metrics_are_those_that_are_measured() -> None:
    rows = SampleRows.from_array(np.array([[0, 0, 0.9, 0.1, 0.02, 2.0], [1, 0, 0.6, 0.9, 0.7, -0.4]]))
    assert set(METRICS) == {"loss", *summarize(rows)}


# ---- Help ----


def test_help_has_the_common_arguments_and_the_defaults_of_the_command(capsys: pytest.CaptureFixture) -> None:
    assert train.main(["--model", "resnet50", "--help"]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    names = [name for group in COMMON.values() for name in group]
    assert 28 <= len(names) == len(set(names)) <= 36
    assert re.findall(r"^  --(\w+)", text, re.MULTILINE) == names
    assert "--lambda_margin Weight of the squared hinge on the logit margin (default: 0.0, set by the method)" in words
    assert (
        f"(default: {SCRATCH_LEARNING_RATE:g} for tiny, small and medium, {FINE_TUNING_LEARNING_RATE:g} for" in words
    )
    assert all(f"`{name}`" in words for name in ("digits", "few_digits", "recommended", "macs", "ce"))
    assert all(name in words for name in METHODS)
    assert "--image_size Height and width of the input, in pixels (default: what the model was trained with)" in words


def test_help_states_the_defaults_that_are_used() -> None:
    args = parse([])[1]
    assert {name: getattr(args, name) for name in USUAL} == USUAL
    assert (args.gradient_accumulation_steps, args.report_to) == (1, [])
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
    assert {f"--{name}" for name in argument_names()} <= set(re.findall(r"--\w+", text))


@pytest.mark.parametrize(
    "resume",
    [
        ["--resume_from_checkpoint", "True"],
        ["--resume-from-checkpoint", "/home/me/run/checkpoint-3"],
        ["--resume_from_checkpoint=user/model"],
    ],
)
def test_the_recorded_command_makes_the_run_from_the_start(resume: list[str]) -> None:
    words = ["--dataset", "digits", *resume, "--output_dir=runs/a", "--seed", "3"]
    assert train.command_of(words, 1) == "macs-hf train --dataset digits --output_dir=runs/a --seed 3"
