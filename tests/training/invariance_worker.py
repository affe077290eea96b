"""Run by test_processes.py: trains and evaluates tiny models in 1, 2 and 4 processes, whole (DDP) and in shards
(FSDP2), and writes what was logged and measured as JSON.

All libraries are imported once, and the processes are forked from there: start-up would take longer than the runs.
With a second argument it also writes the trajectories that later runs are compared with:
`PYTHONPATH=.:tests python tests/training/invariance_worker.py results.json tests/fixtures/trajectories.json`.
"""

import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import fsdp_on_cpu  # noqa: F401  (makes accelerate run FSDP on CPUs)
import torch
from accelerate.commands.config.config_args import load_config_from_file
from tiny import Images, arguments, build, end_process, logged
from torch import multiprocessing, nn

from macs_hf import MaCSTrainer
from macs_hf.evaluation import evaluate_checkpoint
from macs_hf.pixels import PixelStats


CONFIG = Path(__file__).parents[2] / "examples" / "accelerate" / "fsdp2.yaml"
PROCESSES, SAMPLES_PER_STEP, STEPS = (1, 2, 4), 8, 4
LOGGED = ("loss", "cross_entropy_loss", "margin_loss", "consistency_loss", "logit_margin", "grad_norm")
# Without draws, the number of processes makes no difference.
PERTURBATIONS = {"fixed": {"perturbation": "blur", "blur_sigma_min": 1.0, "blur_sigma_max": 1.0}, "drawn": {}}
# BatchNorm sees the samples of one process, so a ResNet is compared between runs of as many processes only.
RUNS = [
    ("vit", "fixed", 1),
    ("vit", "fixed", 2),
    ("vit", "drawn", 1),
    ("vit", "drawn", 2),
    ("timm", "fixed", 1),
    ("resnet", "drawn", 1),
]


def main(results: str, trajectories: str | None = None) -> None:
    found: dict[str, Any] = {}
    for processes in PROCESSES:
        with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            multiprocessing.start_processes(
                work, args=(processes, port, folder), nprocs=processes, start_method="fork"
            )
            of_ranks = [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(processes)]
            assert all(part == of_ranks[0] for part in of_ranks)  # all processes log and return the same
            found |= of_ranks[0]
    Path(results).write_text(json.dumps(found))
    if trajectories is not None:
        runs: dict[str, Any] = {}
        for name, run in found.items():  # those of one process come first
            if name.endswith(" whole") and "trajectory" in run:
                runs.setdefault(run["trajectory"], {key: run[key] for key in LOGGED})
        lines = [f"{json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items()]
        Path(trajectories).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def trajectory_of(run: str) -> str:
    """The trajectory that a run follows: one for all without draws, else one for each number of processes."""
    model, perturbation, *how = run.split()
    return f"{model} {perturbation}" if perturbation == "fixed" else f"{model} {perturbation} {how[0]}"


def work(rank: int, processes: int, port: int, folder: str) -> None:
    """What each process does."""
    torch.set_num_threads(1)
    if processes > 1:
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        places |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in places.items()}
    found = {}
    for kind in ("whole", "sharded"):
        if kind == "sharded":
            if processes == 1:
                break  # accelerate shards over two processes or more
            settings = load_config_from_file(str(CONFIG)).fsdp_config
            os.environ |= {name.upper(): str(value) for name, value in settings.items()}
            os.environ["ACCELERATE_USE_FSDP"] = "true"
        for model, perturbation, accumulation in RUNS:
            run = trainer(model, Path(folder, "run"), processes, accumulation, **PERTURBATIONS[perturbation])
            run.train()
            log = {key: [float(f"{value:.8g}") for value in logged(run, key)] for key in LOGGED}
            name = f"{model} {perturbation} {processes}x{accumulation} {kind}"
            found[name] = log | {"trajectory": trajectory_of(name)}
        found[f"evaluation {processes} {kind}"] = evaluation(Path(folder, "run"), processes)
    end_process(folder, found)


def trainer(name: str, folder: Path, processes: int, accumulation: int = 1, **settings: Any) -> MaCSTrainer:
    model = build(name)
    draw_weights(model)
    args = arguments(
        folder,
        per_device_train_batch_size=SAMPLES_PER_STEP // processes // accumulation,
        gradient_accumulation_steps=accumulation,
        per_device_eval_batch_size=3,
        **{"learning_rate": 1e-3, "max_steps": STEPS} | settings,
    )
    return MaCSTrainer(
        model=model, args=args, train_dataset=Images(24), pixel_stats=PixelStats((0.5,) * 3, (0.5,) * 3)
    )


def draw_weights(model: nn.Module) -> None:
    """Not as the libraries draw them, which may change: trajectories are compared with committed ones."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.ndim > 1:
                parameter.normal_(std=0.2, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()


def evaluation(folder: Path, processes: int) -> dict[str, Any]:
    """Of the weights as they were drawn: a learning rate of 0 leaves them. FSDP2 divides a model in training only."""
    run = trainer("vit", folder, processes, learning_rate=0.0, max_steps=1)
    run.train()
    # 13 images: in four processes one has two batches of three, the others have one.
    report, (rows, scaled) = evaluate_checkpoint(
        run, Images(13, seed=2), Images(450, seed=3), corruptions="cifar", margin_samples=5
    )
    metrics = run.evaluate(Images(10, seed=1))
    return {
        "metrics": {name: metrics[f"eval_{name}"] for name in ("loss", "accuracy", "nll", "ece", "brier")},
        "prediction": rows.prediction.tolist(),
        "nll": rows.nll.tolist(),
        "scaled_nll": scaled.nll.tolist(),
        "temperature": report.temperature.value,
        "hits": report.corruptions.rows.hits.tolist(),
        "corrupted_nll": report.corruptions.rows.nll.tolist(),
        "margins": {name: value for name, value in vars(report.margins).items() if isinstance(value, float)},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
