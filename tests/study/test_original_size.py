"""Cells that are measured again on images corrupted at their own size: what they are, and what is measured."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from macs_hf.corruptions import corrupt
from macs_hf.data.images import EvalTransform
from macs_hf.models.loading import load_pretrained
from macs_hf.report.run import load_run, save_run

from .test_reproduce import EXAMPLES, REPORT, ROWS, TINY, grid_file


sys.path.insert(0, str(EXAMPLES))

import reproduce
from reproduction import runner
from reproduction.cost import seconds
from reproduction.grid import cells_of, load_grid


BLOCKS = [
    {"dataset": "digits", "model": "tiny", "method": "ce", "corrupted": "at_original_size", "seed": 0},
    {"dataset": "digits", "model": "tiny", "method": "ce", "seed": 0},
]
TABLE = {"title": "Again", "columns": ["mean15"], "cells": BLOCKS}


def test_a_cell_that_is_measured_again_follows_the_cell_that_is_trained(tmp_path: Path) -> None:
    trained, again = cells_of(load_grid(grid_file(tmp_path, tables={"again": TABLE}, figures={}, claims=[])))
    assert (trained.trained, again.trained) == (trained, trained)
    assert again.flags == trained.flags
    assert again.name == "digits-tiny-ce-corrupted_at_original_size-seed0"
    with pytest.raises(ValueError, match="digits-tiny-ce-seed0, which it measures again, is not finished"):
        runner.command(again, tmp_path, processes=1)
    save_run(REPORT, [ROWS], tmp_path / trained.name)
    (tmp_path / trained.name / "cell.json").write_text(json.dumps({"flags": trained.flags}))
    words = runner.command(again, tmp_path, processes=1)
    assert words[1:] == [str(runner.MEASURE), trained.name, "--dataset", "digits", "--output_dir", again.name]
    # 5 of 450 images at 400 trained images a second, three times as fast, nothing else but the start.
    corrupting = {"corruptions": "cifar", "corruption_design": "spread", "image_size": 112}
    cell = type(again)(again.setting, 0, corrupting)
    made = TINY["cost"]["corrupted_per_second"]
    assert seconds(cell, TINY["cost"]) == pytest.approx(5 * 450 * (1 / made + 1 / 1200) + TINY["cost"]["start"])


@pytest.mark.slow
def test_images_are_corrupted_before_they_are_resized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.load(Path(__file__).parents[1] / "fixtures" / "cifar10_corruptions.npz")["clean"]
    shifted = np.concatenate([np.roll(images, 3 * shift, axis=2) for shift in range(10)])
    for number, image in enumerate(shifted):
        folder = tmp_path / "data" / ("test" if number % 2 else "train") / "ab"[number // 2 % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    settings = {"image_size": 48, "max_steps": 3, "per_device_train_batch_size": 16, "eval_strategy": "no"}
    settings |= {"corruptions": "none", "disable_tqdm": True, "learning_rate": 0.01}
    grid = TINY | {"settings": settings, "tables": {"again": TABLE}, "figures": {}, "claims": []}
    grid |= {"datasets": {"digits": {"dataset": "${MACS_HF_ASSETS}/data"}}}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    monkeypatch.setenv("MACS_HF_ASSETS", str(tmp_path))
    assert reproduce.main(["--study", str(tmp_path / "grid.yaml"), "--output_dir", str(tmp_path / "runs")]) == 0
    monkeypatch.chdir(tmp_path / "runs")
    again = load_run("digits-tiny-ce-corrupted_at_original_size-seed0")
    assert again.report.corruptions.when == "before_resize"
    assert again.report.before == load_run("digits-tiny-ce-seed0").report.before

    # The same by hand, image by image, for the images that were seen under two corruptions.
    model, processor = load_pretrained("digits-tiny-ce-seed0")
    files = sorted((tmp_path / "data" / "test").rglob("*.png"))
    rows = again.report.corruptions.rows
    for name in ("gaussian_noise", "contrast"):
        column = rows.names.index(name)
        for place in np.flatnonzero(rows.hits[:, column] != 255):
            image = torch.from_numpy(np.array(Image.open(files[place]))).permute(2, 0, 1)[None]
            losses = []
            for severity in range(1, 6):
                corrupted = corrupt(image, name, severity, indices=[int(place)], params="cifar", seed=0)[0]
                pixels = EvalTransform(processor)(Image.fromarray(corrupted.permute(1, 2, 0).numpy()))["pixel_values"]
                with torch.no_grad():
                    logits = model.eval()(pixels[None]).logits[0]
                losses.append(-logits.log_softmax(0)[again.rows.label[place]].item())
            assert rows.nll[place, column] == pytest.approx(np.mean(losses), abs=2e-4)
