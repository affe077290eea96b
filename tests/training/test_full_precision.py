"""Runs in 16 bits: what is fitted, measured and folded is the model that is saved."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import Images, build, trainer
from transformers import AutoModelForImageClassification

from macs_hf import MaCSTrainer, PixelStats
from macs_hf.calibration import calibrate_logits


HELD_OUT, TEST = Images(400, seed=2), Images(40, seed=3)


def bf16_run(folder: Path, name: str = "vit") -> MaCSTrainer:
    run = trainer(
        folder, build(name), Images(64), max_steps=4, bf16=True, pixel_stats=PixelStats((0.5,) * 3, (0.5,) * 3)
    )
    return run


def logits_in_float32(folder: Path, data: Images) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForImageClassification.from_pretrained(folder).eval()(data.images).logits


@pytest.mark.parametrize("name", ["vit", "resnet"])
def test_a_run_in_16_bits_is_calibrated_as_it_is_loaded(name: str, tmp_path: Path) -> None:
    run = bf16_run(tmp_path / "run", name)
    run.train()
    run.save_model(str(tmp_path / "before"))
    before = logits_in_float32(tmp_path / "before", HELD_OUT)
    found, _ = run.predict_logits(HELD_OUT)
    np.testing.assert_allclose(found, before, atol=1e-5)
    fit = run.calibrate(HELD_OUT)
    expected, _ = calibrate_logits(before, HELD_OUT.labels)
    assert fit.value == pytest.approx(expected.value, rel=1e-4)
    run.save_model(str(tmp_path / "after"))
    after = logits_in_float32(tmp_path / "after", HELD_OUT)
    torch.testing.assert_close(after, before / fit.value, atol=1e-5, rtol=1e-5)


def test_measuring_does_not_change_the_precision_of_training(tmp_path: Path) -> None:
    run = bf16_run(tmp_path / "run")
    with torch.no_grad():
        expected = run.model.eval()(TEST.images).logits
    exact, _ = run.predict_logits(TEST)  # before training, where the model is prepared for evaluation only
    np.testing.assert_allclose(exact, expected, atol=1e-5)
    run.train()
    exact, _ = run.predict_logits(TEST)
    rounded = run.predict(TEST).predictions  # Trainer's own still runs in 16 bits
    difference = np.abs(exact - rounded).max()
    assert 1e-5 < difference < 0.1
