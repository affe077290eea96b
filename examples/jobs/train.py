# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["macs-hf>=0.2.0.dev0"]
#
# [tool.hf-jobs]
# flavor = "a100-large"
# timeout = "4h"
# secrets = ["HF_TOKEN"]
# ///
"""Train, calibrate, measure and push a classifier on rented GPUs.

hf jobs uv run examples/jobs/train.py --hub_model_id user/my-model --dataset cifar10 --model resnet50
hf jobs uv run --flavor a100x4 --timeout 12h examples/jobs/train.py --hub_model_id user/my-model --dataset food101 ...

The disk of a job is lost when it ends, so each checkpoint is pushed, and a job with the same arguments continues from
there. With several GPUs, there is one process per GPU. The arguments are those of `macs-hf train`.
"""

import argparse
import os
import sys

import torch
from huggingface_hub import HfApi


def resumed(argv: list[str]) -> list[str]:
    """Flags to continue from the checkpoint that an earlier job pushed, if there is one."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--hub_model_id")
    repo_id = parser.parse_known_args(argv)[0].hub_model_id
    if repo_id is None:
        sys.exit(
            "Pass --hub_model_id user/name: a job's disk is gone when it ends, so the model has to go to the Hub."
        )
    if not HfApi().repo_exists(repo_id) or not HfApi().file_exists(repo_id, "last-checkpoint/trainer_state.json"):
        return []
    return ["--resume_from_checkpoint", repo_id]


def main(argv: list[str]) -> None:
    command = [sys.executable, "-m", "macs_hf.cli.train"]
    if {"-h", "--help", "--help-all"} & set(argv):
        print(f"{__doc__}\nThese are:\n", flush=True)
        os.execv(sys.executable, [*command, *argv])
    workers = str(min(8, os.cpu_count() or 1))
    defaults = ["--push_to_hub", "--hub_strategy", "checkpoint", "--dataloader_num_workers", workers]
    gpus = torch.cuda.device_count()
    if gpus > 1:
        command[1:1] = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(gpus)]
    # execv replaces this process, so that signals to the job reach the training.
    os.execv(sys.executable, [*command, *defaults, *resumed(argv), *argv])


if __name__ == "__main__":
    main(sys.argv[1:])
