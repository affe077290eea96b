"""EvaluationReport: a round trip, and files that are refused."""

import ast
import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import torch

from macs_hf.metrics import measure
from macs_hf.report import evaluation as report_module
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from macs_hf.report.rows import SampleRows


BINS = ReliabilityTable((0.0, 0.5), (0.5, 1.0), (0, 4), (0.0, 0.8), (0.0, 0.75))
METRICS = {"ece": Interval(0.05, 0.01, 0.09), "accuracy": Interval(0.75, 0.7, 0.8)}
REPORT = EvaluationReport(
    model="someone/model",
    dataset="someone/dataset",
    split="test",
    n=4,
    before=Measurement(METRICS, 0.02, BINS),
    after=Measurement(METRICS, 0.02, BINS),
    temperature=Temperature(1.5, None, "validation", 100),
    model_revision="abc",
    corruptions={"mean15": 0.4, "per_corruption": {"fog": 0.4}},
    margins={"mean": 1.0},
    training_arguments={"learning_rate": 0.1},
    command="macs-hf evaluate someone/model",
    seeds={"seed": 0},
    versions={"torch": "2"},
    samples="run.samples.npz",
)


@pytest.mark.parametrize("report", [REPORT, EvaluationReport("m", "d", "test", 4, REPORT.before)])
def test_round_trip(report: EvaluationReport, tmp_path: Path) -> None:
    report.save(tmp_path / "run.json")
    assert EvaluationReport.load(tmp_path / "run.json") == report
    assert json.loads(report.to_json())["schema_version"] == 1


def test_measured_values_are_plain_numbers() -> None:
    rows = SampleRows.from_logits(
        torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(50).long()
    )
    report = replace(REPORT, before=measure(rows, n_resamples=20), n=len(rows))
    assert EvaluationReport.from_json(report.to_json()) == report


def change(**changes: object) -> str:
    return json.dumps(json.loads(REPORT.to_json()) | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (change(colour="red"), "EvaluationReport has no field 'colour'"),
        (change(schema_version=2), "schema_version is 2, but this version of macs_hf reads 1"),
        ("[]", "schema_version is None"),
        (change(temperature={"value": 1.0, "unit": "K"}), "Temperature has no field 'unit'"),
        (change(before={"metrics": {}, "noise_floor": 0.0}), "Measurement lacks the field 'bins'"),
        (change(before=3), "Measurement must be an object, got 3"),
        (change(before={"metrics": {"ece": {"value": 1}}, "noise_floor": 0, "bins": {}}), "Interval lacks the field"),
    ],
)
def test_refused_files(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvaluationReport.from_json(text)


def test_missing_field() -> None:
    data = json.loads(REPORT.to_json())
    del data["model"]
    with pytest.raises(ValueError, match="EvaluationReport lacks the field 'model'"):
        EvaluationReport.from_json(json.dumps(data))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks(value: float) -> None:
    with pytest.raises(ValueError, match="someone/model holds a number that is not finite"):
        replace(REPORT, margins={"mean": value}).to_json()


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        REPORT.n = 5


def test_nothing_but_data() -> None:
    tree = ast.parse(Path(report_module.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= {"__future__", "collections.abc", "dataclasses", "json", "os", "pathlib", "typing"}
