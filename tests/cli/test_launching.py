"""Training on several processes and machines: configurations of accelerate, the Slurm job, two processes at work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType
from transformers import AutoModelForImageClassification

from macs_hf.cli.process import plain_errors
from macs_hf.cli.train import main


ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train.py"
QUICK = [
    *("--max_train_samples", "64", "--num_train_epochs", "1", "--per_device_train_batch_size", "32"),
    *("--corruptions", "none", "--disable_tqdm", "true", "--dataloader_pin_memory", "false"),
]
CONFIGS = ROOT / "examples" / "accelerate"


def test_fsdp_that_takes_no_temperature_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "1")
    with pytest.raises(SystemExit) as left:
        main(QUICK)
    assert left.value.code == 2
    assert "FSDP version 1 spreads the weights" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_command_that_is_done_leaves_the_process_group() -> None:
    """Else threads of gloo's may abort a process that has done all its work, while Python ends."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(SystemExit), plain_errors("macs-hf"):
        raise ValueError("others may still wait for this process")
    assert dist.is_initialized()
    with plain_errors("macs-hf"):
        pass
    assert not dist.is_initialized()


@pytest.mark.slow
@pytest.mark.parametrize("program", [[str(SCRIPT)], ["-m", "macs_hf.cli.train"]], ids=["script", "module"])
def test_two_processes(program: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "accelerate.commands.launch", "--main_process_port", "0"]
    command += ["--config_file", str(CONFIGS / "cpu.yaml"), *program, *QUICK]
    done = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    folder = tmp_path / "runs" / "digits-tiny-recommended"
    # 64 images, 2 processes of 32: one step.
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 1
    report = json.loads((folder / "evaluation.json").read_text())
    assert report["n"] == 450 and report["training_arguments"]["processes"] == 2
    assert report["command"].startswith("accelerate launch --num_processes 2 -m macs_hf.cli.train --")
    assert done.stdout.count(" is in runs/digits-tiny-recommended") == 1
    AutoModelForImageClassification.from_pretrained(folder)


# Only cpu.yaml runs without GPUs and without help: accelerate turns FSDP and DeepSpeed on for accelerators alone, and
# tests/training/test_sharding.py runs them in a harness. Here, accelerate's own parser reads all of them.
@pytest.mark.parametrize(
    ("name", "kind", "machines", "processes"),
    [
        ("cpu", DistributedType.MULTI_GPU, 1, 2),
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
    assert len(list(CONFIGS.glob("*.yaml"))) == 5  # all of them are here
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
