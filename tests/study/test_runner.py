"""Running the cells of a grid: what counts as finished, who runs what, and what becomes of a run that is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import reproduce
import torch
from PIL import Image
from reproduction import runner
from reproduction.grid import cells_of, load_grid

from macs_hf.corruptions import corrupt
from macs_hf.data import EvalTransform
from macs_hf.metrics import SampleRows, measure
from macs_hf.models.loading import load_pretrained
from macs_hf.report import EvaluationReport
from macs_hf.report.report import load_run, save_run

from .test_grid import EXAMPLES, FEW_IMAGES, TINY, grid_file


ROWS = SampleRows.from_logits(5 * torch.eye(3), torch.arange(3))
REPORT = EvaluationReport("tiny", "digits", "test", 3, measure(ROWS, n_resamples=20))


def test_flags_reach_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACS_HF_ASSETS", str(tmp_path / "data"))
    cell = next(cell for cell in cells_of(load_grid(FEW_IMAGES), ["core"]) if cell.setting.method == "macs_pixel")
    words = runner.command(cell, tmp_path, processes=1)
    told = dict(zip(words[2::2], words[3::2], strict=True))
    assert told["--dataset"] == str(tmp_path / "data" / "cifar10")
    assert told["--output_dir"] == cell.name == "cifar10-small-macs_pixel-seed0"
    assert (told["--method"], told["--seed"], told["--image_size"]) == ("macs_pixel", "0", "32")
    assert runner.command(cell, tmp_path, processes=2)[2:5] == ["accelerate.commands.launch", "--num_processes", "2"]


def test_a_run_with_other_flags_or_damaged_rows_is_not_this_cell(tmp_path: Path) -> None:
    cell = cells_of(load_grid(grid_file(tmp_path)))[0]
    folder = tmp_path / cell.name
    assert not runner.is_finished(cell, tmp_path)
    save_run(REPORT, [ROWS], folder)
    (folder / "cell.json").write_text(json.dumps({"flags": cell.flags}))
    assert runner.is_finished(cell, tmp_path)
    (folder / "cell.json").write_text(json.dumps({"flags": cell.flags | {"max_steps": 3}}))
    with pytest.raises(ValueError, match="max_steps"):
        runner.is_finished(cell, tmp_path)
    (folder / "samples.parquet").write_bytes(b"PAR1")  # cut off while it was written
    assert not runner.is_finished(cell, tmp_path)


# In place of train.py: a report with its rows, and a line in a list of all runs.
FAKE_TRAIN = """
import shutil, sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--output_dir") + 1])
with open("runs.txt", "a") as file:
    file.write(folder.name + "\\n")
for name in ("evaluation.json", "samples.parquet"):
    shutil.copyfile(Path("done", name), folder / name)
"""


def test_two_processes_with_the_same_command_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While this one runs its first cell, another runs all the others, which this one then finds finished."""
    script, root = tmp_path / "train.py", tmp_path / "runs"
    script.write_text(FAKE_TRAIN)
    save_run(REPORT, [ROWS], root / "done")
    monkeypatch.setattr(runner, "TRAIN", script)
    cells = cells_of(load_grid(grid_file(tmp_path)))[:3]
    run = runner._run

    def run_while_another_works(*args: object) -> runner.Failure | None:
        monkeypatch.setattr(runner, "_run", run)
        assert runner.run_cells(cells, root, processes=1) == []
        return run(*args)

    monkeypatch.setattr(runner, "_run", run_while_another_works)
    assert runner.run_cells(cells, root, processes=1) == []
    first, *others = [cell.name for cell in cells]
    assert (root / "runs.txt").read_text().split() == [*others, first]  # each of them once
    assert all(runner.is_finished(cell, root) for cell in cells)


WAITING_TRAIN = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--output_dir") + 1])
(folder / "pid").write_text(str(os.getpid()))
(folder / "pid").rename(folder / "began")
time.sleep(120)
"""
RUN_ONE = """
import signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from reproduction import runner
from reproduction.grid import cells_of, load_grid
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
runner.TRAIN = Path(sys.argv[2])
runner.run_cells(cells_of(load_grid(Path(sys.argv[3])))[:1], Path(sys.argv[4]), processes=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_runner_stops_its_run_or_the_run_keeps_the_lock(tmp_path: Path, how: signal.Signals) -> None:
    script, root, grid = tmp_path / "train.py", tmp_path / "runs", grid_file(tmp_path)
    script.write_text(WAITING_TRAIN)
    (cell, *_) = cells_of(load_grid(grid))
    words = [sys.executable, "-c", RUN_ONE, str(EXAMPLES), str(script), str(grid), str(root)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (root / cell.name / "began").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(how)
        process.wait(60)
    pid = int((root / cell.name / "began").read_text())
    with runner._claimed(root / cell.name) as lock:
        assert (lock is None) == (how == signal.SIGKILL)
    if how == signal.SIGKILL:
        os.kill(pid, signal.SIGKILL)
    else:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
def test_a_grid_from_nothing_to_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell fails, the others go on; a cell is measured again, with images corrupted before they are resized."""
    images = np.load(Path(__file__).parents[1] / "fixtures" / "cifar10_corruptions.npz")["clean"]
    shifted = np.concatenate([np.roll(images, 3 * shift, axis=2) for shift in range(10)])
    for number, image in enumerate(shifted):
        folder = tmp_path / "data" / ("test" if number % 2 else "train") / "ab"[number // 2 % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    block = {"dataset": ["digits", "missing"], "model": "tiny", "method": "ce", "seed": 0}
    again = {"dataset": "digits", "model": "tiny", "method": "ce", "seed": 0, "corrupted": "at_original_size"}
    datasets = {"digits": {"dataset": "${MACS_HF_ASSETS}/data"}, "missing": {"dataset": "./nowhere"}}
    settings = TINY["settings"] | {"image_size": 48, "learning_rate": 0.01}
    tables = {"both": TINY["tables"]["both"] | {"cells": [again, block]}}
    grid = grid_file(tmp_path, tables=tables, datasets=datasets, settings=settings, claims=[])
    monkeypatch.setenv("MACS_HF_ASSETS", str(tmp_path))
    options = ["--study", str(grid), "--output_dir", str(tmp_path / "runs")]
    assert reproduce.main(options) == 1
    finished = {cell.name: runner.is_finished(cell, tmp_path / "runs") for cell in cells_of(load_grid(grid))}
    assert list(finished.values()) == [True, False, True]
    assert "nowhere" in (tmp_path / "runs" / "missing-tiny-ce-seed0" / "log.txt").read_text()
    assert reproduce.main([*options, "--render"]) == 0
    results = {path.name for path in (tmp_path / "runs" / "results").iterdir()}
    assert results == {"runs.parquet", "samples.parquet", "tables.md"}

    # The same by hand, image by image, for the images that were seen under two corruptions.
    monkeypatch.chdir(tmp_path / "runs")
    trained, measured = (load_run(name) for name, done in finished.items() if done)
    assert (measured.report.corruptions.when, measured.report.before) == ("before_resize", trained.report.before)
    model, processor = load_pretrained("digits-tiny-ce-seed0")
    files = sorted((tmp_path / "data" / "test").rglob("*.png"))
    rows = measured.report.corruptions.rows
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
                losses.append(-logits.log_softmax(0)[measured.rows.label[place]].item())
            assert rows.nll[place, column] == pytest.approx(np.mean(losses), abs=2e-4)
