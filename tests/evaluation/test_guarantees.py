"""Guarantees in the report: made from held-out data, measured on test and corrupted images, saved with the model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import NUM_LABELS, Images, arguments, build, logits_of, overconfident, trainer
from transformers import AutoModelForImageClassification

from macs_hf import MaCSTrainer, PixelStats
from macs_hf.calibration import (
    calibrate_logits,
    fold_temperature,
    make_guarantees,
    measure_guarantees,
    prediction_sets,
    temperature_helped,
)
from macs_hf.evaluation import evaluate_checkpoint, evaluate_corruptions
from macs_hf.evaluation.corruption_benchmark import CLEAN, GuaranteeCounts
from macs_hf.metrics import risk_coverage
from macs_hf.report import EvaluationReport, SampleRows
from macs_hf.report.report import Cell, CorruptionTable, Guarantees, read_json, to_plain
from macs_hf.report.rows import CORRUPTIONS, SEVERITIES, STANDARD_15


HELD_OUT, TEST = Images(400, seed=2), Images(90, seed=3)


def confident(folder: Path, name: str = "vit") -> MaCSTrainer:
    """Hardly trained and overconfident: logits 20 times as large as they were learned."""
    run = trainer(folder, build(name), Images(64), max_steps=8, pixel_stats=PixelStats((0.5,) * 3, (0.5,) * 3))
    run.train()
    fold_temperature(run.model, 0.05, Images(4).images)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> MaCSTrainer:
    return confident(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def measured(run: MaCSTrainer) -> tuple[EvaluationReport, list[SampleRows]]:
    return evaluate_checkpoint(run, TEST, HELD_OUT, margin_samples=4)


def test_guarantees_of_a_report_are_those_of_the_logits(
    run: MaCSTrainer, measured: tuple[EvaluationReport, list[SampleRows]]
) -> None:
    report, rows = measured
    fit, made = calibrate_logits(logits_of(run, HELD_OUT), HELD_OUT.labels)
    expected = measure_guarantees(made, logits_of(run, TEST), TEST.labels)
    found = report.guarantees
    assert (found.num_temperature, found.num_guarantee, found.num_test) == (200, 200, 90)
    assert found.exact and found.class_names == tuple(f"LABEL_{i}" for i in range(NUM_LABELS))
    assert found.class_counts == expected.class_counts
    for guarantee, wanted in zip(found.prediction_sets, expected.prediction_sets, strict=True):
        assert guarantee.threshold == pytest.approx(wanted.threshold, abs=1e-6)
        assert (guarantee.test_coverage, guarantee.mean_size) == (
            wanted.test_coverage,
            pytest.approx(wanted.mean_size),
        )
        assert guarantee.class_covered == wanted.class_covered and guarantee.severity_coverage == {}
    assert [p.test_accuracy for p in found.abstentions] == [p.test_accuracy for p in expected.abstentions]
    # What else is new in a report.
    assert report.temperature.nll_gain == temperature_helped(*rows)
    assert report.temperature.standard_error == pytest.approx(fit.standard_error, rel=1e-4)
    assert report.risk_coverage == risk_coverage(rows[-1])
    assert EvaluationReport.from_json(report.to_json()) == report


def test_without_enough_held_out_images_the_report_says_why(run: MaCSTrainer) -> None:
    report, _ = evaluate_checkpoint(run, Images(20, seed=3), Images(399, seed=2), margin_samples=4)
    assert report.guarantees.prediction_sets == () and "take at least 400" in report.guarantees.reason


@pytest.mark.parametrize("name", ["vit", "timm"])
def test_one_call_stores_guarantees_that_are_saved_with_the_model(name: str, tmp_path: Path) -> None:
    """In the layout of timm as well, and through a second save."""
    run = confident(tmp_path, name)
    _, made = calibrate_logits(logits_of(run, HELD_OUT), HELD_OUT.labels)
    run.calibrate(HELD_OUT)
    run.save_model()
    AutoModelForImageClassification.from_pretrained(tmp_path).save_pretrained(tmp_path / "again")
    config = AutoModelForImageClassification.from_pretrained(tmp_path / "again").config
    for guarantee in made.prediction_sets:
        stored = config.prediction_set_thresholds[guarantee.method][str(guarantee.coverage)]
        assert stored == pytest.approx(guarantee.threshold, abs=1e-6)


def test_a_network_without_a_config_keeps_its_guarantees_itself(tmp_path: Path) -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = None
            self.classifier = torch.nn.Linear(3 * 32 * 32, NUM_LABELS)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.classifier(pixel_values.flatten(1))

    torch.manual_seed(0)
    run = MaCSTrainer(model=Own(), args=arguments(tmp_path))
    report, _ = evaluate_checkpoint(run, Images(20, seed=3), HELD_OUT, margin_samples=4)
    assert report.guarantees.class_names == ("0", "1", "2", "3")
    run.calibrate(HELD_OUT)
    stored = run.model.prediction_set_thresholds["lac"]["0.9"]
    assert stored == pytest.approx(report.guarantees.prediction_sets[1].threshold, abs=1e-6)


# ---- Under corruption ----


@pytest.fixture(scope="module")
def guarantees() -> Guarantees:
    return make_guarantees(*overconfident(600, 1), 2.0)


def table_of(names: tuple[str, ...], design: str) -> CorruptionTable:
    cell = Cell(50, 0.5, 1.0, 0.1)
    cells = {name: dict.fromkeys(SEVERITIES, cell) for name in names}
    return CorruptionTable("cifar", "generated", 50, cells, design=design)


@pytest.mark.parametrize(
    ("design", "names"), [("crossed", CORRUPTIONS), ("spread", CORRUPTIONS), ("crossed", ("fog",))]
)
def test_outcome_by_severity(guarantees: Guarantees, design: str, names: tuple[str, ...]) -> None:
    """Coverage falls with the noise; images that are seen under several corruptions are not counted several times."""
    tally, cells = GuaranteeCounts(guarantees), {}
    for severity in SEVERITIES:
        for place, name in enumerate(names):
            # Not of the standard 15: must not count if those are there.
            noise = 50.0 if name not in STANDARD_15 else 1.0 + severity
            cells[name, severity] = logits, labels = overconfident(50, 100 * place + severity, noise=noise)
            for part in (slice(0, 20), slice(20, 50)):
                tally.update((name, severity), logits[part], labels[part])
    tally.update(CLEAN, *overconfident(50, 0))
    found = tally.totals(table_of(names, design))
    counted = [name for name in names if name in STANDARD_15]
    for guarantee in found.prediction_sets:
        for severity, share in guarantee.severity_coverage.items():
            held = [
                prediction_sets(logits / 2, guarantee.threshold, guarantee.method)[torch.arange(50), labels].double()
                for logits, labels in (cells[name, severity] for name in counted)
            ]
            assert share.value == pytest.approx(torch.cat(held).mean().item())
            assert share.n == (50 if design == "crossed" else 50 * len(counted))
            assert share.low < share.value < share.high
    at_90 = next(p for p in found.prediction_sets if (p.method, p.coverage) == ("lac", 0.9))
    if len(names) > 1:
        assert at_90.severity_coverage[5].value < at_90.severity_coverage[1].value < 0.9
    assert found.abstentions[0].threshold is not None
    for guarantee in found.abstentions:
        for severity, share in guarantee.severity_accuracy.items():
            logits, labels = (torch.cat(part) for part in zip(*(cells[n, severity] for n in counted), strict=True))
            confidence, prediction = (logits / 2).softmax(1).max(1)
            right = (prediction == labels)[confidence >= guarantee.threshold]
            assert share.value == pytest.approx(right.double().mean().item())
            assert share.n == round(len(right) / (len(counted) if design == "crossed" else 1))


def test_the_benchmark_adds_the_outcome_by_severity(run: MaCSTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.args, "load_best_model_at_end", True)  # validation chose the checkpoint
    options = {"corruptions": "cifar", "corruption_samples": 20, "margin_samples": 4}
    report, _ = evaluate_checkpoint(run, Images(40, seed=3), HELD_OUT, **options)
    assert not report.guarantees.exact
    for guarantee in report.guarantees.prediction_sets:
        assert {s: share.n for s, share in guarantee.severity_coverage.items()} == dict.fromkeys(SEVERITIES, 20)
        assert guarantee.test_coverage.n == 40


@pytest.mark.parametrize("temperature", [None, 2.0])
@pytest.mark.parametrize("labels", [[0, 1, 0, 1], [0, 0, 0, 0]])
def test_confidence_gap_has_a_sign(temperature: float | None, labels: list[int]) -> None:
    """A model that always says class 0 with one confidence: the gap is that less the share of class 0, everywhere."""
    logits = torch.tensor([[3.0, 0.0]]).expand(4, 2)
    images = [(torch.full((3, 32, 32), 60 * i, dtype=torch.uint8), label) for i, label in enumerate(labels)]
    temperatures = [1.0] if temperature is None else [1.0, temperature]
    clean = [SampleRows.from_logits(logits / t, torch.tensor(labels)) for t in temperatures]
    for rows in (None, clean):
        table = evaluate_corruptions(
            lambda batch: logits[: len(batch)], images, temperature=temperature, clean_rows=rows, progress=False
        )
        gap = 1 / (1 + np.exp(-3 / (temperature or 1))) - labels.count(0) / 4
        assert table.confidence_gap.keys() == {"clean"} | table.standard_error.keys()
        for name in ("clean", "mean15", "severity_3"):
            found = table.confidence_gap[name]
            assert found.value == pytest.approx(gap, abs=1e-6)
            # Of four images, two of them right, the mean has a standard error of sqrt(1/3 / 4) = 0.2887.
            half = 1.96 * np.sqrt(1 / 12) if 1 in labels else 0.0
            assert found.high - found.value == pytest.approx(half, abs=1e-6)
        assert read_json(CorruptionTable, json.dumps(to_plain(table))) == table
