"""`macs-hf train` as people type it: every method, the same command twice, bad data, what is refused."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.conftest import Run
from PIL import Image
from transformers import AutoModelForImageClassification, pipeline

from macs_hf import METHODS


ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train.py"
QUICK = [
    *("--max_train_samples", "64", "--num_train_epochs", "1", "--per_device_train_batch_size", "32"),
    *("--corruptions", "none", "--disable_tqdm", "true", "--use_cpu", "true", "--dataloader_pin_memory", "false"),
]
COLOURS = {"green": (20, 180, 60), "red": (200, 30, 30)}


def paint(colour: tuple[int, int, int], seed: int) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-20, 20, (12, 12, 3))
    return Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8))


def image_folder(folder: Path, count: int = 20) -> Path:
    for split, size in (("train", count), ("test", 4)):
        for label, colour in COLOURS.items():
            (folder / split / label).mkdir(parents=True)
            for i in range(size):
                paint(colour, i).save(folder / split / label / f"{i:03d}.png")
    return folder


# ---- Runs ----


def test_a_run_on_digits_leaves_a_model_a_report_and_a_table(run: Run, capsys: pytest.CaptureFixture) -> None:
    trainer = run()
    assert trainer.state.global_step == 2
    folder = Path("runs", "digits-tiny-recommended")
    report = json.loads((folder / "evaluation.json").read_text())
    assert report["n"] == 450
    assert (folder / "samples.parquet").exists()
    assert report["command"].startswith("macs-hf train --max_train_samples 64 ")
    model = AutoModelForImageClassification.from_pretrained(folder)
    assert model.config.id2label == {i: str(i) for i in range(10)}
    served = pipeline("image-classification", model=str(folder), device="cpu")(Image.new("L", (8, 8)), top_k=10)
    assert sum(answer["score"] for answer in served) == pytest.approx(1, abs=1e-4)
    assert (
        'pipeline("image-classification", model="runs/digits-tiny-recommended")' in (folder / "README.md").read_text()
    )
    assert str(folder) in capsys.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, run: Run, tmp_path: Path) -> None:
    data = image_folder(tmp_path / "colours")
    trainer = run("--dataset", str(data), "--method", method, "--max_steps", "1", "--logging_steps", "1")
    assert trainer.state.global_step == 1
    logged = trainer.state.log_history[0]
    assert np.isfinite(logged["loss"]) and logged["grad_norm"] > 0
    assert ("consistency_loss" in logged and logged["consistency_loss"] > 0) == (
        METHODS[method].get("lambda_consistency", 0.5) > 0
    )


def test_the_same_command_again_trains_no_more(run: Run, tmp_path: Path) -> None:
    command = ["--dataset", str(image_folder(tmp_path / "colours")), "--output_dir", "out"]
    first = run(*command)
    weights = {key: tensor.clone() for key, tensor in first.model.state_dict().items()}
    again = run(*command)
    assert again.state.global_step == first.state.global_step == 1 + (len(first.train_dataset) > 32)
    assert all(torch.equal(weights[key], tensor) for key, tensor in again.model.state_dict().items())


def refused(run: Run, capsys: pytest.CaptureFixture, *command: str) -> str:
    """What a command that cannot be run leaves on the screen: one line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        run(*command)
    assert left.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("macs-hf train: ")]
    return line


@pytest.mark.slow
def test_another_recipe_goes_on_if_asked_but_never_another_dataset_model_or_objective(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    data, other = (str(image_folder(tmp_path / name)) for name in ("colours", "others"))
    command = ["--dataset", data, "--output_dir", "out", "--max_steps", "3", "--save_strategy", "steps"]
    run(*command, "--save_steps", "2")
    smaller = [*command, "--per_device_train_batch_size", "16", "--save_steps", "2"]
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert "per_device_train_batch_size: 32, now 16" in refused(run, capsys, *smaller)
    for change in (["--dataset", other], ["--model", "small"], ["--method", "focal"], ["--image_size", "48"]):
        refused(run, capsys, *smaller, "--allow_inexact_resume", *change)
    elsewhere = [*smaller, "--output_dir", "new", "--resume_from_checkpoint", "out/checkpoint-3"]
    assert "--allow_inexact_resume" in refused(run, capsys, *elsewhere)
    assert before == {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    trainer = run(*smaller, "--allow_inexact_resume", "--max_steps", "4")
    assert trainer.state.global_step == 4 and trainer.state.log_history[-1]["step"] == 4
    assert run(*smaller, "--max_steps", "4").state.global_step == 4  # it is that run from now on


def test_a_share_of_the_data(run: Run, tmp_path: Path) -> None:
    trainer = run("--dataset", str(image_folder(tmp_path / "colours")), "--data_fraction", "0.25")
    labels = [trainer.train_dataset[i]["labels"] for i in range(len(trainer.train_dataset))]
    assert len(labels) == 9 and sum(labels) in (4, 5)


def test_a_validation_split_that_is_the_training_set_is_found_before_training(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    data = image_folder(tmp_path / "colours")
    shutil.copytree(data / "train", data / "validation")
    assert "--calibration_split" in refused(run, capsys, "--dataset", str(data), "--output_dir", "out")
    assert not Path("out").exists()


# ---- Bad and odd images ----


def test_a_truncated_image_is_named_or_skipped(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data = image_folder(tmp_path / "colours")
    for name in ("train/green/003.png", "train/red/005.png", "train/red/006.png"):
        whole = (data / name).read_bytes()
        (data / name).write_bytes(whole[: len(whole) // 2])
    line = refused(run, capsys, "--dataset", str(data))
    assert re.search(r"Image \d+ of split '(train|validation).*skip_bad_images", line)
    trainer = run("--dataset", str(data), "--skip_bad_images", "--output_dir", "clean")
    assert trainer.state.global_step > 0
    assert len(trainer.train_dataset) + len(trainer.eval_dataset) == 37
