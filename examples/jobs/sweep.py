# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["macs-hf>=0.2.0.dev0"]
#
# [tool.hf-jobs]
# flavor = "a100-large"
# timeout = "12h"
# secrets = ["HF_TOKEN"]
# ///
r"""Train several methods with several seeds on rented GPUs, push every model, and print a table.

hf jobs uv run examples/jobs/sweep.py --owner user --name cifar10 --methods macs ce --seeds 0 1 2 \
    --dataset cifar10 --model resnet50

Each run is `macs-hf train`, with all further arguments, and is pushed to OWNER/NAME-METHOD-seedN. Each GPU takes one
run at a time. A sweep that is started again trains only what is not in the repositories yet.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from statistics import mean, stdev

import torch
from huggingface_hub import HfApi, snapshot_download

from macs_hf import load_run
from macs_hf.metrics import compare


FILES = ("evaluation.json", "samples.parquet")
SHOWN = {"accuracy": 100, "nll": 1, "ece": 100}


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owner", required=True, help="user or organisation that the models go to")
    parser.add_argument("--name", required=True, help="start of their names")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["macs", "ce"],
        help="(default: macs ce) the first one is compared with the others",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="(default: 0 1 2)")
    return parser.parse_known_args(argv)


def train(repo_id: str, folder: Path, method: str, seed: int, others: list[str], gpus: SimpleQueue) -> None:
    """Train one model on the next GPU that is free, unless its repository has its results already."""
    api = HfApi()
    if api.repo_exists(repo_id) and all(api.file_exists(repo_id, name) for name in FILES):
        snapshot_download(repo_id, allow_patterns=list(FILES), local_dir=folder)
        return
    gpu = gpus.get()
    try:
        words = ["--method", method, "--seed", str(seed), "--output_dir", str(folder)]
        words += ["--push_to_hub", "--hub_model_id", repo_id, *others]
        environment = os.environ | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)})
        subprocess.run([sys.executable, "-m", "macs_hf.cli.train", *words], env=environment, check=True)
    finally:
        gpus.put(gpu)


def main(argv: list[str]) -> int:
    options, others = parse(argv)
    gpus: SimpleQueue = SimpleQueue()
    for gpu in range(torch.cuda.device_count()) or [None]:
        gpus.put(gpu)
    folders = {
        (method, seed): Path("sweep", f"{options.name}-{method}-seed{seed}")
        for method in options.methods
        for seed in options.seeds
    }
    with ThreadPoolExecutor(gpus.qsize()) as pool:
        jobs = {
            cell: pool.submit(train, f"{options.owner}/{folder.name}", folder, *cell, others, gpus)
            for cell, folder in folders.items()
        }
    failed = [f"{method}, seed {seed}: {job.exception()}" for (method, seed), job in jobs.items() if job.exception()]
    runs = {cell: load_run(folder) for cell, folder in folders.items() if jobs[cell].exception() is None}

    print("| method | seeds | " + " | ".join(SHOWN) + " |\n|:--|--:|" + "--:|" * len(SHOWN))
    rows = {}
    for method in options.methods:
        done = [runs[method, seed] for seed in options.seeds if (method, seed) in runs]
        rows[method] = [run.rows for run in done]
        cells = []
        for name, factor in SHOWN.items():
            values = [factor * run.report.published.metrics[name].value for run in done]
            spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.3f}{spread}" if values else "")
        print(f"| {method} | {len(done)} | " + " | ".join(cells) + " |")
    first, *rest = options.methods
    for other in rest:
        if rows[first] and rows[other]:
            found = compare(rows[first], rows[other], same_seeds=len(rows[first]) == len(rows[other]) > 1)
            for name, factor in SHOWN.items():
                part = found[name]
                low, high = factor * part.low, factor * part.high
                difference = f"{factor * part.difference:+.3f} [{low:+.3f}, {high:+.3f}]"
                print(f"{first} - {other}, {name}: {difference}, {part.verdict} ({part.covers})")
    print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
