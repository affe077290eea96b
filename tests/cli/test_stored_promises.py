"""`calibrate` and `train` leave the thresholds of their promises in the saved model, those that the report has."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset, DatasetDict
from transformers import AutoModelForImageClassification, set_seed

from macs_hf.cli import train
from macs_hf.cli.main import main
from macs_hf.models.loading import load_classifier
from macs_hf.report.report import EvaluationReport

from .test_cli import CLASSES, split


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("promises")
    set_seed(0)
    model, processor = load_classifier("tiny", CLASSES)
    with torch.no_grad():
        model.classifier[-1].weight.mul_(30)
    model.config.prediction_set_thresholds = {"lac": {"0.9": 0.123}}  # of an earlier calibration
    model.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    parts: dict[str, Dataset] = {"train": split(40, 0, CLASSES), "validation": split(400, 1, CLASSES)}
    DatasetDict(parts | {"test": split(40, 2, CLASSES)}).save_to_disk(str(folder / "data"))
    return folder


def check_stored(folder: Path) -> EvaluationReport:
    report = EvaluationReport.load(folder / "evaluation.json")
    stored = json.loads((folder / "config.json").read_text())["prediction_set_thresholds"]
    for promise in report.guarantees.prediction_sets:
        assert stored[promise.method][str(promise.coverage)] == promise.threshold
    reloaded = AutoModelForImageClassification.from_pretrained(folder).config
    assert reloaded.prediction_set_thresholds == stored and report.guarantees.num_guarantee == 200
    assert '["lac"]["0.9"]' in (folder / "README.md").read_text()
    return report


def test_calibrate_stores_what_the_report_promises(folder: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["calibrate", str(folder / "model"), "--dataset", str(folder / "data"), "--cpu"]
    assert main([*words, "--output_dir", str(folder / "calibrated")]) == 0
    report = check_stored(folder / "calibrated")
    assert report.guarantees.class_names == tuple(CLASSES) and report.guarantees.exact
    shown = capsys.readouterr().out
    assert "Prediction sets with the right class, guaranteed 90 %" in shown
    assert report.above_chance is False and "The calibrated model is in" not in shown  # nobody trained it


def test_train_stores_what_the_report_promises(folder: Path, tmp_path: Path) -> None:
    options = "--max_steps 2 --corruptions none --disable_tqdm true --use_cpu true --dataloader_pin_memory false"
    best = "--load_best_model_at_end true --eval_strategy steps --save_strategy steps --eval_steps 2 --save_steps 2"
    data = ["--dataset", str(folder / "data"), "--model", "tiny", "--output_dir", str(tmp_path / "run")]
    assert train.main([*data, *options.split(), *best.split()]) == 0
    report = check_stored(tmp_path / "run")
    assert not report.guarantees.exact
    assert "it is approximate" in (tmp_path / "run" / "README.md").read_text()
