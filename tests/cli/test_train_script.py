"""`examples/train.py` as people type it: settings from anywhere, every method, the same command twice, bad data."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType
from PIL import Image
from transformers import AutoModelForImageClassification, pipeline

from macs_hf import METHODS, MaCSTrainer, objective_of
from macs_hf.evaluation.checkpoint import write_report


ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train.py"
QUICK = [
    *("--max_train_samples", "64", "--num_train_epochs", "1", "--per_device_train_batch_size", "32"),
    *("--corruptions", "none", "--disable_tqdm", "true", "--use_cpu", "true", "--dataloader_pin_memory", "false"),
]
COLOURS = {"green": (20, 180, 60), "red": (200, 30, 30)}


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("train_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_script"] = module  # dataclasses look their annotations up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["train_script"]


@pytest.fixture
def run(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MaCSTrainer]:
    """Runs the script in this process, in a folder of its own, and returns its trainer."""
    monkeypatch.chdir(tmp_path)
    made: list[MaCSTrainer] = []

    class Kept(MaCSTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(script, "MaCSTrainer", Kept)
    monkeypatch.setattr(script, "write_report", lambda *args, **kwargs: [])  # pictures take longer than the training

    def main(*argv: str) -> MaCSTrainer:
        script.main([*QUICK, *argv] if not argv or not argv[0].endswith((".yaml", ".json")) else [*argv, *QUICK])
        return made[-1]

    return main


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


# ---- Settings ----


def test_defaults_need_no_arguments(script: ModuleType) -> None:
    settings, args = script.parse([])
    assert (settings.dataset, settings.model, settings.method) == ("digits", "tiny", "macs")
    assert args.output_dir == str(Path("runs", "digits-tiny-macs"))
    assert (args.lr_scheduler_type, args.warmup_steps, args.seed) == ("cosine", 0.1, 0)
    assert vars(objective_of(args)) == vars(script.objective_of(object()))  # the paper's


@pytest.mark.parametrize("method", METHODS)
def test_a_method_sets_the_objective(method: str, script: ModuleType) -> None:
    args = script.parse(["--method", method])[1]
    for name, value in METHODS[method].items():
        assert getattr(args, name) == value, name
    assert args.output_dir.endswith(f"-{method}")


def test_flags_win_over_the_method(script: ModuleType) -> None:
    args = script.parse(["--method", "focal", "--focal_gamma", "3", "--lambda_margin", "0.2"])[1]
    assert (args.focal_gamma, args.lambda_margin, args.lambda_consistency) == (3.0, 0.2, 0.0)


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_settings_from_a_file_and_flags_that_win(suffix: str, script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / f"settings.{suffix}"
    if suffix == "json":
        settings = {
            "method": "mbls",
            "mbls_margin": 6.0,
            "learning_rate": 3e-4,
            "max_train_samples": 50,
            "bf16": False,
        }
        path.write_text(json.dumps(settings))
    else:
        path.write_text("method: mbls\nmbls_margin: 6\nlearning_rate: 3e-4\nmax_train_samples: 50\nbf16: false\n")
    settings, args = script.parse([str(path), "--learning_rate", "0.01", "--seed", "7"])
    assert (settings.method, settings.max_train_samples) == ("mbls", 50)
    assert (args.lambda_mbls, args.mbls_margin, args.lambda_margin) == (0.1, 6, 0.0)
    assert (args.learning_rate, args.seed) == (0.01, 7)
    assert script.parse([str(path)])[1].learning_rate == 3e-4
    assert script.parse([str(path), "--method", "focal"])[1].focal_gamma == 2.0


def test_mistyped_settings(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ValueError, match=r"method='mcas' is not one of ce, label_smoothing, .*macs_augmix"):
        script.parse(["--method", "mcas"])
    path = tmp_path / "settings.yaml"
    path.write_text("method: macs\nlambda_margn: 0.2\n")
    with pytest.raises(ValueError, match=r"Unknown settings \['lambda_margn'\]"):
        script.parse([str(path)])
    with pytest.raises((ValueError, SystemExit)) as caught:
        script.parse(["--lambda_margn", "0.2"])
    assert "--lambda_margn" in str(caught.value) + capsys.readouterr().err
    with pytest.raises(ValueError, match=r"lambda_margin=-1.0 must be a finite number >= 0"):
        script.parse(["--lambda_margin", "-1"])


def test_help_lists_every_setting(script: ModuleType, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as left:
        script.parse(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--dataset", "--method", "--lambda_consistency", "--skip_bad_images", "--learning_rate"):
        assert flag in text
    assert "Weight of the squared hinge on the logit margin." in " ".join(text.split())


# ---- Runs ----


def test_a_run_on_digits_leaves_a_model_a_report_and_a_table(
    run: Callable[..., MaCSTrainer],
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(script, "write_report", write_report)
    trainer = run()
    assert trainer.state.global_step == 2
    folder = Path("runs", "digits-tiny-macs")
    report = json.loads((folder / "digits-tiny-macs.json").read_text())
    assert report["n"] == 450
    assert (folder / "digits-tiny-macs.samples.npz").exists()
    model = AutoModelForImageClassification.from_pretrained(folder)
    assert model.config.id2label == {i: str(i) for i in range(10)}
    served = pipeline("image-classification", model=str(folder), device="cpu")(Image.new("L", (8, 8)), top_k=10)
    assert sum(answer["score"] for answer in served) == pytest.approx(1, abs=1e-4)
    assert str(folder) in capsys.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, run: Callable[..., MaCSTrainer], tmp_path: Path) -> None:
    data = image_folder(tmp_path / "colours")
    trainer = run("--dataset", str(data), "--method", method, "--max_steps", "1", "--logging_steps", "1")
    assert trainer.state.global_step == 1
    logged = trainer.state.log_history[0]
    assert np.isfinite(logged["loss"]) and logged["grad_norm"] > 0
    assert ("consistency_loss" in logged and logged["consistency_loss"] > 0) == (
        METHODS[method].get("lambda_consistency", 0.5) > 0
    )


def test_the_same_command_again_trains_no_more(run: Callable[..., MaCSTrainer], tmp_path: Path) -> None:
    command = ["--dataset", str(image_folder(tmp_path / "colours")), "--output_dir", "out"]
    first = run(*command)
    weights = {key: tensor.clone() for key, tensor in first.model.state_dict().items()}
    again = run(*command)
    assert again.state.global_step == first.state.global_step == 1 + (len(first.train_dataset) > 32)
    assert all(torch.equal(weights[key], tensor) for key, tensor in again.model.state_dict().items())


@pytest.mark.slow
def test_a_stopped_command_goes_on(run: Callable[..., MaCSTrainer], tmp_path: Path) -> None:
    data = str(image_folder(tmp_path / "colours"))
    whole = run("--dataset", data, "--output_dir", "whole", "--num_train_epochs", "2")
    part = run("--dataset", data, "--output_dir", "part", "--num_train_epochs", "2", "--save_total_limit", "5")
    last = f"checkpoint-{part.state.global_step}"
    (Path("part") / last / "trainer_state.json").unlink()  # cut off while it was written
    resumed = run("--dataset", data, "--output_dir", "part", "--num_train_epochs", "2", "--save_total_limit", "5")
    assert resumed.state.global_step == whole.state.global_step
    weights = whole.model.state_dict()
    assert all(torch.equal(weights[key], tensor) for key, tensor in resumed.model.state_dict().items())


def told(run: Callable[..., MaCSTrainer], capsys: pytest.CaptureFixture, *command: str) -> str:
    """What a command that cannot be run leaves on the screen: its mistake in a line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        run(*command)
    assert left.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("train.py: ")]
    return line


def test_another_run_in_the_same_folder_is_refused(
    run: Callable[..., MaCSTrainer], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = ["--dataset", str(image_folder(tmp_path / "colours")), "--output_dir", "out"]
    run(*command)
    line = told(run, capsys, *command, "--method", "focal")
    assert re.search(r"another run \(method: 'macs', now 'focal', .*focal_gamma: 0.0, now 2.0", line)


@pytest.mark.parametrize(("share", "size"), [("0.25", 9), ("1.0", 36)])
def test_a_share_of_the_data(share: str, size: int, run: Callable[..., MaCSTrainer], tmp_path: Path) -> None:
    trainer = run("--dataset", str(image_folder(tmp_path / "colours")), "--data_fraction", share)
    labels = [trainer.train_dataset[i]["labels"] for i in range(len(trainer.train_dataset))]
    assert len(labels) == size
    assert abs(2 * sum(labels) - size) <= 1


def test_shares_that_cannot_be(run: Callable[..., MaCSTrainer], capsys: pytest.CaptureFixture) -> None:
    for share in ("0.0", "1.5"):
        assert f"data_fraction={share} must lie in (0, 1]" in told(run, capsys, "--data_fraction", share)


def test_files_of_settings_that_cannot_be(
    run: Callable[..., MaCSTrainer], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert "No such file or directory: 'missing.yaml'" in told(run, capsys, "missing.yaml")
    path = tmp_path / "settings.yaml"
    path.write_text("learning_rate: fast\n")
    assert f"{path}: learning_rate='fast' must be of type float" in told(run, capsys, str(path))


def test_a_broken_test_image_is_found_before_training(
    run: Callable[..., MaCSTrainer], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    data = image_folder(tmp_path / "colours")
    (data / "test" / "red" / "002.png").write_bytes(b"not an image")
    line = told(run, capsys, "--dataset", str(data), "--output_dir", "out")
    assert re.search(r"Image 6 of split 'test' cannot be read \(file '.*test/red/002.png'\)", line)
    assert not Path("out").exists()


# ---- Bad and odd images ----


def test_a_truncated_image_is_named_or_skipped(run: Callable[..., MaCSTrainer], tmp_path: Path) -> None:
    data = image_folder(tmp_path / "colours")
    for name in ("train/green/003.png", "train/red/005.png", "train/red/006.png"):
        whole = (data / name).read_bytes()
        (data / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"Image \d+ of split '(train|validation)' cannot be read.*skip_bad_images"):
        run("--dataset", str(data))
    trainer = run("--dataset", str(data), "--skip_bad_images", "--output_dir", "clean")
    assert trainer.state.global_step > 0
    assert len(trainer.train_dataset) + len(trainer.eval_dataset) == 37


def test_grey_alpha_and_cmyk_images_train(run: Callable[..., MaCSTrainer], tmp_path: Path) -> None:
    data = image_folder(tmp_path / "colours")
    for label, colour in COLOURS.items():
        folder = data / "train" / label
        paint(colour, 50).convert("L").save(folder / "100.png")
        paint(colour, 51).convert("RGBA").save(folder / "101.png")
        paint(colour, 52).convert("CMYK").save(folder / "102.jpg")
        paint(colour, 53).convert("P").save(folder / "103.gif")
    trainer = run("--dataset", str(data))
    assert len(trainer.train_dataset) + len(trainer.eval_dataset) == 48
    assert trainer.state.global_step == 2


# ---- Launching ----

CONFIGS = ROOT / "examples" / "accelerate"


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "accelerate.commands.launch", "--main_process_port", "0"]
    command += ["--config_file", str(CONFIGS / "cpu.yaml"), str(SCRIPT)]
    command += [option for i, option in enumerate(QUICK) if "--use_cpu" not in QUICK[max(i - 1, 0) : i + 1]]
    done = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    folder = tmp_path / "runs" / "digits-tiny-macs"
    # 64 images, 2 processes of 32: one step.
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 1
    assert json.loads((folder / "digits-tiny-macs.json").read_text())["n"] == 450
    assert done.stdout.count("The calibrated model is in") == 1
    AutoModelForImageClassification.from_pretrained(folder)


# Only cpu.yaml can be run without GPUs: accelerate turns FSDP on for accelerators alone (on CPU it falls back to plain
# data parallel), and DeepSpeed is no dependency. The others are read by accelerate's own parser.
@pytest.mark.parametrize(
    ("name", "kind", "machines", "processes"),
    [
        ("cpu", DistributedType.MULTI_GPU, 1, 2),
        ("one_gpu", DistributedType.NO, 1, 1),
        ("ddp", DistributedType.MULTI_GPU, 1, 8),
        ("ddp_multi_node", DistributedType.MULTI_GPU, 2, 16),
        ("fsdp2", DistributedType.FSDP, 1, 8),
        ("deepspeed_zero2", DistributedType.DEEPSPEED, 1, 8),
    ],
)
def test_launch_configurations(name: str, kind: DistributedType, machines: int, processes: int) -> None:
    path = CONFIGS / f"{name}.yaml"
    config = load_config_from_file(str(path))  # refuses keys that it does not know
    assert config.distributed_type == kind
    assert (config.num_machines, config.num_processes) == (machines, processes)
    assert config.use_cpu == (name == "cpu")
    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert path.read_text().startswith("# ")
    assert any(f"accelerate launch --config_file examples/accelerate/{name}.yaml" in line for line in comments)


def test_settings_of_the_sharded_configurations_are_known_to_accelerate() -> None:
    known = vars(launch_command_parser().parse_args(["script.py"]))
    fsdp = load_config_from_file(str(CONFIGS / "fsdp2.yaml")).fsdp_config
    assert set(fsdp) <= set(known)
    assert (fsdp["fsdp_version"], fsdp["fsdp_state_dict_type"]) == (2, "FULL_STATE_DICT")
    deepspeed = load_config_from_file(str(CONFIGS / "deepspeed_zero2.yaml")).deepspeed_config
    assert set(deepspeed) <= set(known)
    assert deepspeed["zero_stage"] == 2


def test_every_configuration_is_tested_here() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == {
        *("cpu", "one_gpu", "ddp", "ddp_multi_node", "fsdp2", "deepspeed_zero2")
    }


def test_the_slurm_job_starts_each_machine_with_its_rank(tmp_path: Path) -> None:
    commands = {
        "scontrol": 'printf "node07\\nnode09\\n"',
        "srun": 'shift; for i in 0 1; do SLURM_NODEID=$i "$@"; done',
        "accelerate": 'printf "%s\\0" "$@"; printf "\\n"',
    }
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "81234", "SLURM_JOB_NODELIST": "node[07,09]", "SLURM_NNODES": "2"}
    done = subprocess.run(
        ["bash", str(CONFIGS / "multi_node.sbatch"), "--dataset", "my images"],
        env=os.environ | slurm | {"SLURM_GPUS_ON_NODE": "4", "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.rstrip("\0").split("\0") for line in done.stdout.splitlines()]
    assert len(lines) == 2
    for rank, line in enumerate(lines):
        args = launch_command_parser().parse_args(line[1:])
        assert (args.num_machines, args.num_processes, args.machine_rank) == (2, 8, rank)
        assert (args.main_process_ip, args.main_process_port) == ("node07", 29734)
        assert (ROOT / args.config_file).exists()
        assert (args.training_script, args.training_script_args) == (
            "examples/train.py",
            ["--dataset", "my images"],
        )
