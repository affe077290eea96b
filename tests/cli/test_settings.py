"""A file of settings means what the same flags mean, or is refused with its name, the setting and the type wanted."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainingArguments

from macs_hf import MaCSTrainingArguments
from macs_hf.cli.settings import read_settings


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("learning_rate: 1e-3", 1e-3),  # text to YAML
        ("learning_rate: 0.5", 0.5),
        ("learning_rate: '2e-4'", 2e-4),
        ("num_train_epochs: 3", 3.0),
        ("max_steps: 10", 10),
        ("max_steps: '10'", 10),
        ("bf16: true", True),
        ("bf16: 'yes'", True),
        ("lr_scheduler_type: cosine", "cosine"),
        ("eval_strategy: 'no'", "no"),
        ("eval_strategy: no", "no"),  # false to PyYAML
        ("bf16: no", False),
        ("report_to: no", "no"),  # which the check of the arguments refuses, and names `none`
        ("max_steps: 010", 10),  # eight to PyYAML
        ("learning_rate: 010", 10.0),
        ("run_name: 010", "010"),
        ("run_name: 1:30", "1:30"),  # ninety to PyYAML
        ("run_name: 1.10", "1.10"),
        ("run_name: 12e5", "12e5"),
        ("run_name: 2026-01-01", "2026-01-01"),
        ("run_name: on", "on"),
        ("run_name: ''", ""),
        ("adam_epsilon: .5e-7", 0.5e-7),
        ("adam_epsilon: 1.", 1.0),
        ("run_name: 7", "7"),
        ("run_name: -7", "-7"),
        ("data_seed: null", None),
        ("label_names: [labels, more]", ["labels", "more"]),
        ("report_to: [tensorboard]", ["tensorboard"]),
        ("lr_scheduler_kwargs: {min_lr: 1e-3, cycles: 2}", {"min_lr": 1e-3, "cycles": 2}),
        ("lr_scheduler_kwargs: {last: null, warm: true}", {"last": None, "warm": True}),
        ("perturbation: jpeg", "jpeg"),
    ],
)
def test_values_get_the_type_of_the_flag(text: str, value: Any, tmp_path: Path) -> None:
    (found,) = read_settings(written(tmp_path, text), MaCSTrainingArguments).values()
    assert found == value and type(found) is type(value)


def test_json_and_nothing(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"learning_rate": 1e-5, "seed": 3}, indent=2))
    assert read_settings(path, TrainingArguments) == {"learning_rate": 1e-5, "seed": 3}
    path.write_text('{"seed": 1, "seed": 2}')
    with pytest.raises(ValueError, match=r"settings.json sets 'seed' 2 times"):
        read_settings(path, TrainingArguments)
    assert read_settings(written(tmp_path, "# only a comment\n"), TrainingArguments) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate: fast", r"`learning_rate: 'fast'` must be of type float \(invalid float value: 'fast'\)"),
        ("learning_rate: null", r"`learning_rate: None` must be of type float \(got NoneType\)"),
        ("learning_rate: true", r"`learning_rate: True` must be of type float"),
        ("num_train_epochs: [3]", r"`num_train_epochs: \[3\]` must be of type float \(got list\)"),
        ("max_steps: 1.5", r"`max_steps: 1.5` must be of type int \(invalid int value: '1.5'\)"),
        ("seed: {a: 1}", r"`seed: \{'a': 1\}` must be of type int \(got dict\)"),
        ("bf16: maybe", r"`bf16: 'maybe'` must be of type bool .*maybe"),
        ("eval_strategy: off", r"`eval_strategy: 'off'` must be of type .*invalid choice: 'off'.*'steps'"),
        ("seed: 1\nbf16: true\nseed: 2", r"sets 'seed' 2 times"),
        ("lr_scheduler_kwargs: {a: 1, a: 2}", r"sets 'a' 2 times"),
        ("seed: " + "[" * 5000, "can be read neither as YAML nor as JSON"),
        ("lr_scheduler_type: cosin", r"`lr_scheduler_type: 'cosin'` .*invalid choice: 'cosin'.*'cosine'"),
        ("learning_rte: 1", r"Unknown settings \['learning_rte'\] in .*--help-all"),
        ("_n_gpu: 1", r"Unknown settings \['_n_gpu'\]"),
        ("1: 1", r"Unknown settings \['1'\]"),
        ("- learning_rate: 1\n- seed: 2", "holds a list in place of named settings.*`name: value`"),
        ("just text", "holds a str in place of named settings"),
        ("learning_rate: [1", "can be read neither as YAML nor as JSON"),
    ],
)
def test_mistakes_name_file_setting_value_and_type(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_settings(written(tmp_path, text), MaCSTrainingArguments)
    assert "settings.yaml" in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="can be read neither as YAML nor as JSON"):
        read_settings(path, TrainingArguments)
    with pytest.raises(OSError, match=r"missing\.yaml"):
        read_settings(tmp_path / "missing.yaml", TrainingArguments)
