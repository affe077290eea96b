"""What is measured of an int8 file against the float32 one."""

from pathlib import Path

import numpy as np
import pytest

from macs_hf.calibration import prediction_set_threshold, prediction_sets, split_held_out
from macs_hf.exporting.card import write_card
from macs_hf.exporting.measuring import Predictions, compared, drift_of, rows_of
from macs_hf.exporting.report import Agreement, Drift, ExportReport
from macs_hf.metrics import compare, measure


Real = tuple[np.ndarray, np.ndarray]
QUANTIZED = {"range_images": 100, "float_layers": ("head",)}


def predictions(real: Real, part: slice, scale: float, noise: float = 0.0) -> Predictions:
    logits, labels = (values[part] for values in real)
    draws = np.random.default_rng(part.start or 0).normal(size=logits.shape).astype(np.float32)
    return Predictions(logits, scale * logits + noise * draws, labels)


def test_a_drift_is_folded_and_gives_the_float32_model_back(real_logits: Real) -> None:
    held_out, test = (predictions(real_logits, part, 1.3) for part in (slice(0, 1000), slice(1000, 3000)))
    drift = drift_of(held_out)
    assert drift.folded == drift.ratio == pytest.approx(1.3)
    assert drift.n == len(split_held_out(1000)[0])
    part = compared(test, held_out, drift, None, **QUANTIZED)
    float32 = measure(rows_of(test.float32, test.labels))
    assert part.before.metrics["nll"].value > 1.1 * float32.metrics["nll"].value
    for name in ("accuracy", "nll", "ece", "brier"):
        assert part.published.metrics[name].value == pytest.approx(float32.metrics[name].value, rel=1e-4)
    assert part.differences["accuracy"].verdict == "equal"
    assert all(found.float32 == found.int8 and found.difference.value == 0 for found in part.sets)


def test_without_drift_nothing_is_folded(real_logits: Real) -> None:
    held_out, test = (predictions(real_logits, part, 1.0, 0.2) for part in (slice(0, 1000), slice(1000, 3000)))
    drift = drift_of(held_out)
    assert drift.low < 1 < drift.high and drift.folded == 1.0
    part = compared(test, held_out, drift, None, **QUANTIZED)
    assert part.after is None and part.published is part.before
    expected = compare(rows_of(test.int8, test.labels), rows_of(test.float32, test.labels))["nll"]
    found = part.differences["nll"]
    assert (found.value, found.low, found.high) == (expected.difference, expected.low, expected.high)


def test_sets_take_the_thresholds_of_the_config(real_logits: Real) -> None:
    held_out, test = (predictions(real_logits, part, 1.0, 1.0) for part in (slice(0, 1000), slice(1000, 3000)))
    thresholds = {"lac": {"0.9": 0.7}, "raps": {"0.95": 0.8, "lambda": 0.01, "k_reg": 5}}
    part = compared(test, held_out, drift_of(held_out), thresholds, **QUANTIZED)
    assert part.thresholds_from == "the model's config"
    assert [(found.method, found.coverage, found.threshold) for found in part.sets] == [
        ("lac", 0.9, 0.7),
        ("raps", 0.95, 0.8),
    ]
    for found in part.sets:
        sets = prediction_sets(test.int8 / part.drift.folded, found.threshold, found.method).numpy()
        assert found.int8.value == pytest.approx(sets[np.arange(2000), test.labels].mean())
        assert found.int8_size == pytest.approx(sets.sum(1).mean())
        assert found.difference.value == pytest.approx(found.int8.value - found.float32.value)


def test_thresholds_come_from_images_that_fit_no_temperature(real_logits: Real) -> None:
    held_out, test = (predictions(real_logits, part, 1.0, 0.5) for part in (slice(0, 1000), slice(1000, 3000)))
    part = compared(test, held_out, drift_of(held_out), None, **QUANTIZED)
    _, promising = split_held_out(1000)
    expected = prediction_set_threshold(held_out.float32[promising], held_out.labels[promising], 0.9)
    assert {found.coverage: found.threshold for found in part.sets}[0.9] == pytest.approx(expected)
    few = Predictions(*(values[:300] for values in held_out))
    part = compared(test, few, drift_of(few), None, **QUANTIZED)
    assert part.sets == () and part.thresholds_from is None


def test_too_few_held_out_images_give_a_reason(real_logits: Real) -> None:
    drift = drift_of(predictions(real_logits, slice(0, 40), 2.0))
    assert drift.folded == 1.0 and "40 samples" in drift.reason


def report_of(real: Real, scale: float) -> ExportReport:
    held_out, test = (predictions(real, part, scale, 0.5) for part in (slice(0, 1000), slice(1000, 3000)))
    return ExportReport(
        model="user/resnet",
        image_size=(32, 32),
        num_labels=10,
        opset=20,
        files={"onnx/model.onnx": 1_150_000, "onnx/model_quantized.onnx": 350_000},
        agreement=Agreement("test images", 256, 2.3e-5, 46.0, 256),
        dataset="user/photos",
        split="test",
        n=2000,
        float32=measure(rows_of(test.float32, test.labels)),
        int8=compared(test, held_out, drift_of(held_out), None, **QUANTIZED),
    )


def test_a_report_comes_back_from_disk(real_logits: Real, tmp_path: Path) -> None:
    report = report_of(real_logits, 1.3)
    report.save(tmp_path)
    assert ExportReport.load(tmp_path) == report
    (tmp_path / "export.json").write_text('{"schema_version": 1, "model": 3}')
    with pytest.raises(ValueError, match=r"export\.json cannot be used"):
        ExportReport.load(tmp_path)


def test_the_card_shows_both_files(real_logits: Real, tmp_path: Path) -> None:
    report = report_of(real_logits, 1.3)
    write_card(report, tmp_path, name="exported", license="mit")
    card = (tmp_path / "README.md").read_text()
    assert "license: mit" in card and "base_model: user/resnet" in card
    assert "| | float32 | int8, before its temperature | int8, as published | int8 - float32 |" in card
    for part in (report.float32, report.int8.before, report.int8.after):
        assert f"{100 * part.metrics['accuracy'].value:.2f} %" in card
        assert f"{part.metrics['nll'].value:.4f}" in card
    assert f"divides its logits by {report.int8.drift.folded:.4f}" in card
    assert f"| 90 %, LAC | {100 * report.int8.sets[1].float32.value:.2f} %" in card


def test_the_card_says_that_nothing_changed(real_logits: Real, tmp_path: Path) -> None:
    report = report_of(real_logits, 1.0)
    assert report.int8.drift.folded == 1.0
    write_card(report, tmp_path, name="exported")
    card = (tmp_path / "README.md").read_text()
    assert "| | float32 | int8 | int8 - float32 |" in card
    assert "no change beyond chance" in card


def test_a_drift_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="folded must be within"):
        Drift(1.0, 1.0, 1.0, 200, folded=1e6)
