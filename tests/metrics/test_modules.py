"""The `evaluate` modules: loading, adding, cards, doctests, and copies of their folders."""

import doctest
import importlib
import shutil
import tracemalloc
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch

from macs_hf import metrics


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate.config, "HF_METRICS_CACHE", tmp_path / "cache")


def random_logits(n: int = 200, classes: int = 7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return 3 * rng.standard_normal((n, classes), dtype=np.float32), rng.integers(0, classes, n)


def plain(name: str, logits: np.ndarray, labels: np.ndarray) -> float:
    functions = {
        "ece": metrics.expected_calibration_error,
        "nll": metrics.negative_log_likelihood,
        "brier": metrics.brier_score,
    }
    return functions[name](logits, labels)


@pytest.mark.parametrize("name", ["ece", "nll", "brier"])
@pytest.mark.parametrize("keep_in_memory", [True, False])
def test_compute_add_batch_and_add_agree_with_the_function(name: str, keep_in_memory: bool) -> None:
    logits, labels = random_logits()
    metric = evaluate.load(metrics.path(name), keep_in_memory=keep_in_memory)
    expected = plain(name, logits, labels)
    assert metric.compute(predictions=logits, references=labels)[name] == expected
    assert metric.compute(predictions=torch.from_numpy(logits), references=labels.tolist())[name] == expected
    metric.add_batch(predictions=logits[:150], references=labels[:150])
    metric.add_batch(predictions=torch.from_numpy(logits[150:180]), references=torch.from_numpy(labels[150:180]))
    for row, label in zip(logits[180:190], labels[180:190], strict=True):
        metric.add(prediction=row, reference=label)
    metric.add_batch(predictions=logits[190:195].tolist(), references=labels[190:195].tolist())
    # What is given to compute joins what was added before.
    assert metric.compute(predictions=logits[195:], references=labels[195:])[name] == pytest.approx(expected, abs=1e-9)
    assert len(metric) == 0
    metric.add_batch(predictions=logits[:10], references=labels[:10])  # and the module can be used again
    assert metric.compute()[name] == pytest.approx(plain(name, logits[:10], labels[:10]), abs=1e-9)


def test_module_errors() -> None:
    metric = evaluate.load(metrics.path("nll"))
    with pytest.raises(ValueError, match="Mismatch"):
        metric.add_batch(predictions=[[0.0, 1.0]], references=[0, 1])
    with pytest.raises(ValueError, match="weights"):
        metric.add_batch(predictions=[[0.0, 1.0]], references=[0], weights=[1])
    with pytest.raises(ValueError, match="'mce'"):
        metrics.path("mce")


def test_rows_do_not_become_python_objects() -> None:
    logits, labels = random_logits(2000, 500)  # 4 MB; as Python floats at least 32 MB
    metric = evaluate.load(metrics.path("ece"))
    tracemalloc.start()
    metric.add_batch(predictions=logits, references=labels)
    metric.compute(n_resamples=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 * 2**20


def test_corruption_accuracy_module() -> None:
    metric = evaluate.load(metrics.path("corruption_accuracy"))
    for severity in (1, 2):
        metric.add_batch(
            predictions=[0, severity], references=[0, 1], corruption=["fog", "snow"], severity=[severity, severity]
        )
    result = metric.compute()
    assert result["corruption_accuracy"] == 0.75
    assert result["per_corruption"] == {"snow": 0.5, "fog": 1.0}


def test_a_copy_of_the_folder_loads_by_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Space is loaded: one script, and the installed package."""
    monkeypatch.chdir(tmp_path)
    for name in metrics.NAMES:
        shutil.copy(Path(metrics.path(name)) / f"{name}.py", tmp_path)
        columns = {"predictions": [0], "references": [0], "corruption": ["fog"], "severity": [1]}
        metric = evaluate.load(f"{name}.py")
        if len(metric.features) == 2:
            columns = {"predictions": [[0.5, 0.25]], "references": [0]}
        assert metric.compute(**columns)[name] >= 0


@pytest.mark.parametrize("name", metrics.NAMES)
def test_examples_of_module_and_card(name: str) -> None:
    module = importlib.import_module(f"macs_hf.metrics.modules.{name}.{name}")
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for text in (module._KWARGS_DESCRIPTION, (Path(metrics.path(name)) / "README.md").read_text()):
        test = parser.get_doctest(text, {}, name, None, 0)
        assert test.examples
        assert runner.run(test).failed == 0
