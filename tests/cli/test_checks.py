"""Arguments that would end a run at its first step or after its last one are refused before it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import arguments

from macs_hf.cli.checks import METRICS, check_training_arguments
from macs_hf.metrics import summarize
from macs_hf.report.rows import SampleRows


TRACKERS = {"tensorboard": True, "wandb": False}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_train_epochs", -1, "num_train_epochs=-1 must be a finite number above 0"),
        ("num_train_epochs", 0, "num_train_epochs=0 must be"),
        ("num_train_epochs", math.nan, "num_train_epochs=nan must be"),
        ("num_train_epochs", math.inf, "num_train_epochs=inf must be"),
        ("max_steps", 0, "max_steps=0 must be at least 1, or -1 to train for num_train_epochs"),
        ("max_steps", -5, "max_steps=-5 must be at least 1"),
        ("per_device_train_batch_size", 0, "per_device_train_batch_size=0 must be a finite number of at least 1"),
        ("per_device_train_batch_size", -4, "per_device_train_batch_size=-4 must be"),
        ("per_device_eval_batch_size", 0, "per_device_eval_batch_size=0 must be"),
        ("gradient_accumulation_steps", 0, "gradient_accumulation_steps=0 must be"),
        ("eval_accumulation_steps", 0, "eval_accumulation_steps=0 must be"),
        ("dataloader_num_workers", -1, "dataloader_num_workers=-1 must be a finite number of at least 0"),
        ("learning_rate", -1.0, "learning_rate=-1.0 must be a finite number of at least 0"),
        ("learning_rate", math.nan, "learning_rate=nan must be"),
        ("learning_rate", math.inf, "learning_rate=inf must be"),
        ("weight_decay", -0.1, "weight_decay=-0.1 must be"),
        ("max_grad_norm", -1.0, "max_grad_norm=-1.0 must be"),
        ("adam_epsilon", math.nan, "adam_epsilon=nan must be"),
        ("adam_beta1", 1.0, r"adam_beta1=1.0 must lie in \[0, 1\)"),
        ("adam_beta2", -0.5, r"adam_beta2=-0.5 must lie in"),
        ("logging_steps", -5, "logging_steps=-5 must be above 0"),
        ("eval_steps", -1, "eval_steps=-1 must be above 0"),
        ("save_steps", math.nan, "save_steps=nan must be above 0"),
        ("eval_delay", -2, "eval_delay=-2 must be"),
        ("seed", -1, r"seed=-1 must lie in \[0, 2\*\*32\)"),
        ("data_seed", 2**32, "data_seed=4294967296 must lie in"),
        ("metric_for_best_model", "eval_nope", "metric_for_best_model='eval_nope' is not measured; .*loss, accuracy"),
        ("metric_for_best_model", "", "metric_for_best_model='' is not measured"),
        ("report_to", ["no"], "report_to='no' is not a tracker: write 'none' for no tracker.*tensorboard"),
        ("report_to", ["False"], "report_to='False' is not a tracker"),
        ("report_to", ["tensorboard", "wandb"], "report_to='wandb' is not installed. Install it with pip"),
    ],
)
def test_values_that_cannot_be(name: str, value: Any, message: str, tmp_path: Path) -> None:
    args = arguments(tmp_path, max_steps=-1)
    setattr(args, name, value)
    with pytest.raises(ValueError, match=f"^{message}"):
        check_training_arguments(args, TRACKERS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_train_epochs", 0.5),
        ("learning_rate", 0.0),
        ("warmup_steps", 0.1),
        ("eval_steps", 0.1),
        ("eval_steps", None),
        ("max_steps", 1),
        ("data_seed", None),
        ("seed", 2**32 - 1),
        ("metric_for_best_model", "eval_ece"),
        ("metric_for_best_model", None),
        ("report_to", []),
        ("report_to", ["tensorboard"]),
    ],
)
def test_values_that_can_be(name: str, value: Any, tmp_path: Path) -> None:
    args = arguments(tmp_path, max_steps=-1)
    setattr(args, name, value)
    check_training_arguments(args, TRACKERS)


def test_steps_make_epochs_irrelevant(tmp_path: Path) -> None:
    check_training_arguments(arguments(tmp_path, max_steps=3, num_train_epochs=-1), TRACKERS)


def test_the_trackers_that_transformers_knows(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    args.report_to = ["nowhere"]
    with pytest.raises(ValueError, match=r"no tracker.*mlflow.*wandb"):
        check_training_arguments(args)
    args.report_to = ["clearml"]
    with pytest.raises(ValueError, match="report_to='clearml' is not installed"):
        check_training_arguments(args)


def test_the_metrics_are_those_that_are_measured() -> None:
    rows = SampleRows.from_array(np.array([[0, 0, 0.9, 0.1, 0.02, 2.0], [1, 0, 0.6, 0.9, 0.7, -0.4]]))
    assert set(METRICS) == {"loss", *summarize(rows)}
