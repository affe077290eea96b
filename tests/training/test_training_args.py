"""The arguments: both parents' fields, changed defaults, and every way in (flags, dict, JSON, YAML)."""

from dataclasses import fields
from pathlib import Path

import pytest
from transformers import HfArgumentParser, TrainingArguments

from macs_hf import METHODS, MaCSTrainingArguments, Objective
from macs_hf.objective.objective import objective_of


COMMON = {"report_to": "none", "use_cpu": True}


def test_fields_are_those_of_both_parents() -> None:
    names = {f.name for f in fields(MaCSTrainingArguments)}
    parents = {f.name for cls in (TrainingArguments, Objective) for f in fields(cls)}
    assert names == parents | {"method", "ema_decay", "stop_on_signals"}


def test_only_the_named_defaults_differ_from_training_arguments() -> None:
    ours, theirs = ({f.name: f.default for f in fields(c)} for c in (MaCSTrainingArguments, TrainingArguments))
    changed = {name for name in theirs if ours[name] != theirs[name]}
    by_method = {"label_smoothing_factor"}  # None, until the method has filled it
    assert changed == {"remove_unused_columns", "logging_nan_inf_filter", "ddp_find_unused_parameters"} | by_method


@pytest.mark.parametrize("method", METHODS)
def test_arguments_carry_each_method(method: str, tmp_path: Path) -> None:
    by_name = MaCSTrainingArguments(str(tmp_path), method=method, **COMMON)
    by_fields = MaCSTrainingArguments(str(tmp_path), **METHODS[method], **COMMON)
    assert objective_of(by_name) == objective_of(by_fields) == Objective(**METHODS[method])
    single = MaCSTrainingArguments(str(tmp_path), method=method, noise_std=0.05, **COMMON)
    assert objective_of(single) == Objective(**METHODS[method] | {"noise_std": 0.05})


def test_the_default_is_the_recommended_method_and_single_arguments_win(tmp_path: Path) -> None:
    assert objective_of(MaCSTrainingArguments(str(tmp_path), **COMMON)) == Objective(**METHODS["recommended"])
    assert MaCSTrainingArguments(str(tmp_path), lambda_margin=0.0, **COMMON).lambda_margin == 0.0
    with pytest.raises(ValueError, match=r"method='recomended' .*'recommended'"):
        MaCSTrainingArguments(str(tmp_path), method="recomended", **COMMON)


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.1, 999.0, float("nan")])
def test_decays_that_are_none_are_refused(decay: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"ema_decay={decay} must be above 0 and below 1"):
        MaCSTrainingArguments(str(tmp_path), ema_decay=decay, **COMMON)


@pytest.mark.parametrize(("metric", "greater"), [("ece", False), ("eval_nll", False), ("accuracy", True)])
def test_the_best_model_has_the_lowest_calibration_error(metric: str, greater: bool, tmp_path: Path) -> None:
    args = MaCSTrainingArguments(str(tmp_path), metric_for_best_model=metric, **COMMON)
    assert args.greater_is_better is greater


def test_flags(tmp_path: Path) -> None:
    parser = HfArgumentParser(MaCSTrainingArguments)
    assert all(each.metadata["help"] for each in fields(Objective))
    flags = f"--output_dir {tmp_path} --report_to none --use_cpu --perturbation jpeg --method macs --lambda_margin 0.3"
    flags += " --separate_views --jpeg_quality_min 60 --label_smoothing_factor 0.1 --ema_decay 0.99"
    (parsed,) = parser.parse_args_into_dataclasses(flags.split())
    assert parsed.ema_decay == 0.99
    assert objective_of(parsed) == Objective(
        perturbation="jpeg", lambda_margin=0.3, separate_views=True, jpeg_quality_min=60, label_smoothing_factor=0.1
    )
