"""`examples/reproduce.py`: grids and their cells, cost, and a tiny grid from nothing to tables and figures."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml


sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import reproduce
from reproduction import runner
from reproduction.cost import clock, passes, seconds
from reproduction.grid import Cell, cells_of, expand, load_grid, setting, shard_of

from macs_hf.metrics import measure
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.rows import SampleRows
from macs_hf.report.run import save_run


EXAMPLES = Path(__file__).parents[2] / "examples"
PAPER, STUDY = EXAMPLES / "reproduction" / "grid.yaml", EXAMPLES / "configs" / "few_images.yaml"
TINY = {
    "name": "little",
    "settings": {
        "max_train_samples": 64,
        "max_steps": 2,
        "per_device_train_batch_size": 32,
        "eval_strategy": "no",
        "corruptions": "none",
        "disable_tqdm": True,
    },
    "datasets": {"digits": {"dataset": "digits"}},
    "models": {"tiny": {"model": "tiny"}},
    "seeds": [0, 1],
    "tables": {
        "both": {
            "title": "Both",
            "columns": ["accuracy", "ece", "nll_after", "margin", "overhead"],
            "versus": "macs",
            "cells": [{"dataset": "digits", "model": "tiny", "method": ["ce", "macs"]}],
        },
    },
    "figures": {
        "profiles": {"kind": "profiles", "table": "both", "metric": "accuracy"},
        "dumbbell": {"kind": "dumbbell", "table": "both", "metric": "nll", "baseline": "ce", "method": "macs"},
        "bars": {"kind": "bars", "table": "both", "metric": "ece"},
    },
    "claims": [{"claim": "MaCS improves accuracy", "metric": "accuracy", "method": "macs", "range": [0, None]}],
    "cost": {
        "device": "CPU core",
        "images_per_second": {"tiny": 100},
        "launch": 0,
        "corrupted_per_second": 1000,
        "start": 10,
        "images": {"digits": {"train": 1000, "test": 450, "loader": 500}},
    },
}

ROWS = SampleRows.from_logits(5 * torch.eye(3), torch.arange(3))
REPORT = EvaluationReport("tiny", "digits", "test", 3, measure(ROWS, n_resamples=20))


def grid_file(folder: Path, **changes: object) -> Path:
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(TINY | changes))
    return path


def start(grid: Path, root: Path, *argv: str) -> subprocess.Popen:
    words = [sys.executable, str(EXAMPLES / "reproduce.py"), "--study", str(grid), "--output_dir", str(root), *argv]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=root.parent)


def finish(grid: Path, root: Path, *argv: str) -> tuple[int, str]:
    process = start(grid, root, *argv)
    output = process.communicate(timeout=600)[0]
    return process.returncode, output


def test_tables_of_the_paper_have_the_cells_they_need() -> None:
    grid = load_grid(PAPER)
    counts = {name: len(cells_of(grid, [name], [0])) for name in grid.selections}
    assert counts == {
        "main": 10, "models": 210, "perturbation": 6, "calibration": 10, "temperature": 6, "robustness": 40,
        "logits": 5, "families": 4, "data_efficiency": 8, "overhead": 36, "ablation": 8, "ratio": 2,
        "margin_sensitivity": 12, "weights": 9, "dign": 5, "method_profiles": 210, "dumbbell": 210,
        "robustness_bars": 10, "nll": 10, "ablation_bars": 8,
    }  # fmt: skip
    everything = cells_of(grid)
    assert len({cell.name for cell in everything}) == len(everything) == 3 * 297
    assert {cell.name for cell in cells_of(grid, ["main"])} <= {cell.name for cell in cells_of(grid, ["models"])}


def test_equal_runs_are_one_cell() -> None:
    assert setting("cifar10", "tiny", "macs", margin=1.0, data_fraction=1.0) == setting("cifar10", "tiny", "macs")
    assert setting("cifar10", "tiny", "macs_pixel", perturbation_space="pixel").changes == ()
    study = load_grid(STUDY)
    whole = {cell.setting for cell in cells_of(study, ["core"])}
    few = {cell.setting for cell in cells_of(study, ["data_efficiency"])}
    assert len(few) == 4
    assert len(few - whole) == 2  # 2,000 images is what the model's flags say anyway


def test_flags_reach_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACS_HF_ASSETS", str(tmp_path / "data"))
    cell = next(
        cell
        for cell in cells_of(load_grid(STUDY), ["core"])
        if dict(cell.setting.changes) == {"consistency_fraction": 0.25}
    )
    words = runner.command(cell, tmp_path, processes=1)
    told = dict(zip(words[2::2], words[3::2], strict=True))
    assert words[1].endswith("train.py")
    assert told["--dataset"] == "assets/cifar10"  # no path of this machine
    assert told["--output_dir"] == cell.name == "cifar10-small-macs_pixel-consistency_fraction_0.25-seed0"
    assert told["--consistency_fraction"] == "0.25"
    assert (told["--method"], told["--seed"], told["--disable_tqdm"]) == ("macs_pixel", "0", "true")
    launched = runner.command(cell, tmp_path, processes=2)
    assert launched[2:5] == ["accelerate.commands.launch", "--num_processes", "2"]


def test_unset_environment_and_unknown_names_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MACS_HF_ASSETS", raising=False)
    with pytest.raises(ValueError, match="environment variable MACS_HF_ASSETS"):
        expand("${MACS_HF_ASSETS}/cifar10")
    with pytest.raises(ValueError, match="no table 'mian'"):
        cells_of(load_grid(PAPER), ["mian"])
    with pytest.raises(ValueError, match=r"seeds=\[99\]: none of these is a seed .* the grid's are \[0, 1\]"):
        cells_of(load_grid(grid_file(tmp_path)), seeds=[99])
    wrong = TINY["tables"]["both"] | {"cells": [{"dataset": "digits", "model": "tiny", "method": "sgd"}]}
    with pytest.raises(ValueError, match="method 'sgd' is not one of ce,"):
        cells_of(load_grid(grid_file(tmp_path, tables={"both": wrong}, figures={})))
    with pytest.raises(ValueError, match=r"unknown keys \['colour'\]"):
        load_grid(grid_file(tmp_path, colour="red"))


def test_shards_are_a_partition() -> None:
    cells = cells_of(load_grid(PAPER), ["main"])
    parts = [shard_of(cells, f"{i}/4") for i in range(1, 5)]
    assert sorted(cell.name for part in parts for cell in part) == sorted(cell.name for cell in cells)
    for wrong in ("0/4", "5/4", "1", "a/b"):
        with pytest.raises(ValueError, match="must be i/n"):
            shard_of(cells, wrong)


def test_cost_follows_from_the_assumptions() -> None:
    flags = {"num_train_epochs": 10, "per_device_train_batch_size": 50, "corruptions": "none", "image_size": 112}
    cost = TINY["cost"]
    plain = Cell(setting("digits", "tiny", "ce"), 0, flags)
    # 200 steps of 50 images at 4 x 100 per second, 450 + 256 * 11 forwards at three times that, and the start.
    assert seconds(plain, cost) == pytest.approx(200 * 50 / 400 + (450 + 2816) / 1200 + 10)
    macs = dataclasses.replace(plain, setting=setting("digits", "tiny", "macs"))
    assert (passes(plain), passes(macs)) == (1, 2)
    assert passes(dataclasses.replace(plain, setting=setting("d", "m", "macs", consistency_fraction=0.25))) == 1.25
    assert passes(dataclasses.replace(plain, setting=setting("d", "m", "macs_augmix"))) == 4
    assert seconds(macs, cost) - seconds(plain, cost) == pytest.approx(25)
    assert clock(3725) == "1 h 02 min"
    assert clock(65) == "1 min 05 s"


def test_the_image_size_is_passed_on_to_every_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACS_HF_ASSETS", str(tmp_path / "data"))

    def told(cell: Cell) -> dict[str, str]:
        words = runner.command(cell, tmp_path, processes=1)[2:]
        return dict(zip(words[::2], words[1::2], strict=True))

    small = told(cells_of(load_grid(STUDY), ["core"])[0])
    assert (small["--model"], small["--image_size"]) == ("small", "32")
    pretrained = told(cells_of(load_grid(STUDY), ["pretrained"])[0])
    assert (pretrained["--model"], pretrained["--image_size"]) == ("assets/tf_efficientnet_lite0", "64")
    paper = told(cells_of(load_grid(PAPER), ["main"])[0])
    assert (paper["--model"], paper["--image_size"]) == ("resnet50", "32")
    pets = next(cell for cell in cells_of(load_grid(PAPER), ["models"]) if cell.setting.dataset == "oxford_pets")
    assert "--image_size" not in told(pets)  # the backbone's own
    assert list(tmp_path.iterdir()) == []  # a command is only words


def test_only_cells_of_the_grid_with_its_flags_are_rendered(tmp_path: Path) -> None:
    cells = cells_of(load_grid(grid_file(tmp_path)))
    for cell in cells[:2]:
        folder = tmp_path / "runs" / cell.name
        save_run(REPORT, [ROWS], folder)
        record = {"setting": cell.setting._asdict() | {"changes": {}}, "seed": cell.seed, "flags": cell.flags}
        (folder / "cell.json").write_text(json.dumps(record))
    groups = reproduce._groups(tmp_path / "runs", cells[:1])
    assert {key: [run.seed for run in runs] for key, runs in groups.items()} == {cells[0].setting: [cells[0].seed]}
    (folder / "cell.json").write_text(json.dumps(record | {"flags": cell.flags | {"max_steps": 3}}))
    with pytest.raises(ValueError, match="max_steps: 3, now 2"):
        reproduce._groups(tmp_path / "runs", cells)
    (folder / "evaluation.json").unlink()
    with pytest.warns(UserWarning, match="no report beside it"):
        assert sum(map(len, reproduce._groups(tmp_path / "runs", cells).values())) == 1


@pytest.mark.slow
def test_a_grid_stopped_continued_and_rendered(tmp_path: Path) -> None:
    """From nothing to tables and figures; killed in the middle, it repeats no finished cell."""
    grid, root = grid_file(tmp_path), tmp_path / "runs"
    code, plan = finish(grid, root, "--dry_run")
    assert code == 0
    assert "4 cells, 4 to run" in plan
    assert not root.exists()

    process = start(grid, root)
    cells = cells_of(load_grid(grid))
    first = root / cells[0].name / "cell.json"
    deadline = time.monotonic() + 300
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode != 0, output
    done = [cell for cell in cells if runner.is_finished(cell, root)]
    assert 1 <= len(done) < len(cells)
    before = {cell.name: os.stat(root / cell.name / "evaluation.json").st_mtime_ns for cell in done}

    code, output = finish(grid, root)
    assert code == 0, output
    assert f"4 cells: {len(done)} finished, {4 - len(done)} to run" in output
    assert "left" in output
    assert all(runner.is_finished(cell, root) for cell in cells)
    assert before == {name: os.stat(root / name / "evaluation.json").st_mtime_ns for name in before}
    assert not list(root.rglob("checkpoint-*"))

    results, kept = tmp_path / "results", tmp_path / "kept"
    code, output = finish(grid, root, "--collect", str(kept), "--render", "--results", str(results))
    assert code == 0, output
    assert len(list(kept.iterdir())) == 4
    for folder in kept.iterdir():
        assert {path.name for path in folder.iterdir()} == {"evaluation.json", "samples.parquet", "cell.json"}
    text = (results / "tables.md").read_text()
    assert "4 runs of 2 settings" in text
    assert "macs minus ce" in text
    assert "(2)" in text
    assert "MaCS improves accuracy" in text
    for name in ("profiles", "dumbbell", "bars"):
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    report = EvaluationReport.load(kept / cells[0].name / "evaluation.json")
    assert str(tmp_path) not in report.to_json()

    # What was collected is left as it is.
    (kept / cells[0].name / "evaluation.json").write_text("kept")
    assert finish(grid, root, "--collect", str(kept))[0] == 0
    assert (kept / cells[0].name / "evaluation.json").read_text() == "kept"

    # Rows of one of the two settings are kept, and what was collected counts as finished.
    text = grid.read_text() + f"\nkeep_rows: [{cells[0].setting.name}]\n"
    grid.write_text(text)
    code, output = finish(grid, root, "--collect", str(tmp_path / "few"))
    assert code == 0, output
    with_rows = {path.parent.name for path in (tmp_path / "few").rglob("samples.parquet")}
    assert with_rows == {cell.name for cell in cells if cell.setting == cells[0].setting}
    assert all(runner.is_finished(cell, tmp_path / "few") for cell in cells)
    grid.write_text(text.replace(cells[0].setting.name, "digits-tiny-nothing"))
    with pytest.raises(ValueError, match="keep_rows has 'digits-tiny-nothing'"):
        load_grid(grid)


@pytest.mark.slow
def test_a_crashing_cell_leaves_the_others_going(tmp_path: Path) -> None:
    datasets = {"missing": {"dataset": "./no_such_folder"}, "digits": {"dataset": "digits"}}
    table = TINY["tables"]["both"] | {"cells": [{"dataset": ["missing", "digits"], "model": "tiny", "method": "ce"}]}
    images = dict.fromkeys(datasets, TINY["cost"]["images"]["digits"])
    changes = {"datasets": datasets, "tables": {"both": table}, "cost": TINY["cost"] | {"images": images}}
    grid, root = grid_file(tmp_path, figures={}, seeds=[0], **changes), tmp_path / "runs"
    code, output = finish(grid, root)
    assert code == 1
    log = root / "missing-tiny-ce-seed0" / "log.txt"
    assert "1 cells failed" in output
    assert re.search(rf"missing-tiny-ce-seed0: exit code [1-9]\d*, log: {re.escape(str(log))}", output)
    assert "no_such_folder" in log.read_text()
    good, bad = cells_of(load_grid(grid))[::-1]
    assert runner.is_finished(good, root)
    assert not runner.is_finished(bad, root)
    code, output = finish(grid, root)
    assert code == 1
    assert "2 cells: 1 finished, 1 to run" in output  # the failed one is tried again, the finished one is not
