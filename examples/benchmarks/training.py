"""What training with each method costs, as ratios to plain `Trainer` cross-entropy, printed as JSON.

    python examples/benchmarks/training.py --output training.json

All contestants train the same model in one process and take turns step by step, so that whatever else the machine does
hits them alike; each ratio is the median over rounds of (step of the method / step of `Trainer` in the same round),
with an interval that holds the true median in about 95 of 100 runs. A second plain `Trainer` runs along as control. A
step is `training_step`, gradient clipping, optimizer step and `zero_grad`, on a batch that is in memory. AugMix views
are in the batch too: making them is work of the data loader. Ratios depend on the batch size, so there is a result for
each model and batch size. `perturbation_share` is the time of noise and blur alone over that of the `macs` step it is
part of. `macs_over_doubled_batch` is the `macs` step over a step of plain `Trainer` on twice as many images: what it
costs beyond the forward and backward pass of the second view.

Memory is counted by torch's profiler, so it is the same in every run: the most that one step holds at once of the
tensors it allocates (activations, gradients, temporaries), plus weights, buffers and optimizer state, which are there
all along. Scratch memory inside oneDNN's kernels is not seen.
"""

import argparse
import json
import math
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import TimmWrapperConfig, TimmWrapperForImageClassification, Trainer, TrainingArguments

from macs_hf import METHODS, MaCSTrainer, MaCSTrainingArguments, Objective, perturb


MODELS = ("resnet18", "mobilenetv3_small_100", "vit_tiny_patch16_224", "convnext_atto")
CONTESTANTS = {name: METHODS[name] for name in ("ce", "macs", "focal", "label_smoothing", "mixup", "augmix")}
CONTESTANTS["macs_quarter"] = METHODS["macs"] | {"consistency_fraction": 0.25}

# Plain Trainer once more: how far its ratio is from 1 is what this run cannot resolve.
CONTROL = "Trainer_again"
DOUBLED = "Trainer_on_a_doubled_batch"
RATIOS = (CONTROL, *CONTESTANTS)

# The most each ratio may be, in every model.
TARGETS = {
    "ce": 1.02,
    "macs": 2.1,
    "macs_quarter": 1.35,
    "focal": 1.05,
    "label_smoothing": 1.05,
    "mixup": 1.05,
    "perturbation_share": 0.05,
}
MEAN_TARGETS = {"macs": 2.0}


def build_model(name: str, image_size: int, num_labels: int) -> nn.Module:
    torch.manual_seed(0)
    model_args = {"img_size": image_size} if name.startswith("vit") else {}
    config = TimmWrapperConfig(architecture=name, num_labels=num_labels, model_args=model_args)
    return TimmWrapperForImageClassification(config)


def build_batch(batch_size: int, image_size: int, num_labels: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "pixel_values": torch.randn(batch_size, 3, image_size, image_size, generator=generator),
        "labels": torch.randint(num_labels, (batch_size,), generator=generator),
        "augmix_pixel_values": torch.randn(batch_size, 2, 3, image_size, image_size, generator=generator),
    }


def build_trainers(model: nn.Module, output_dir: str) -> dict[str, Trainer]:
    """One trainer per contestant around the same model and optimizer, so that they differ in the objective alone."""
    common = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "learning_rate": 1e-4}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    shared = {"model": model, "optimizers": (optimizer, constant)}
    plain = TrainingArguments(output_dir, **common)
    trainers = {name: Trainer(args=plain, **shared) for name in ("Trainer", CONTROL, DOUBLED)}
    for name, method in CONTESTANTS.items():
        trainers[name] = MaCSTrainer(args=MaCSTrainingArguments(output_dir, **method, **common), **shared)
    return trainers


def stepper(name: str, trainer: Trainer, batch: dict[str, Tensor]) -> Callable[[], None]:
    """One optimizer step as Trainer's own loop takes it."""
    inputs = {key: value for key, value in batch.items() if key != "augmix_pixel_values" or name == "augmix"}
    trainer.current_gradient_accumulation_steps = 1
    model, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)

    def step() -> None:
        trainer.training_step(model, dict(inputs))
        trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        model.zero_grad()
        trainer.state.global_step += 1

    return step


def measure_times(
    steps: dict[str, Callable[[], None]], rounds: int, warmup: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, in shuffled order: a step inherits the last one's caches and heap."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order = random.Random(0)
    for round_ in range(-warmup, rounds):
        for name in order.sample(list(steps), len(steps)):
            start = clock()
            steps[name]()
            if round_ >= 0:
                seconds[name].append(clock() - start)
    return seconds


def peak_bytes(step: Callable[[], None]) -> int:
    """The most that one step holds at once of the CPU memory it allocates."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    changes = sorted(
        (e.start_ns(), e.nbytes()) for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"
    )
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak


def resident_bytes(trainer: Trainer) -> int:
    state = (value for group in trainer.optimizer.state.values() for value in group.values())
    tensors = [*trainer.model.parameters(), *trainer.model.buffers(), *(v for v in state if isinstance(v, Tensor))]
    return sum(tensor.nbytes for tensor in tensors)


def benchmark(name: str, batch_size: int, args: argparse.Namespace) -> dict[str, Any]:
    model = build_model(name, args.image_size, args.num_labels)
    batch = build_batch(batch_size, args.image_size, args.num_labels)
    doubled = build_batch(2 * batch_size, args.image_size, args.num_labels)
    clock = time.process_time if args.cpu_time else time.perf_counter
    with tempfile.TemporaryDirectory() as output_dir:
        trainers = build_trainers(model, output_dir)
        steps = {key: stepper(key, trainer, doubled if key == DOUBLED else batch) for key, trainer in trainers.items()}
        objective, generator = Objective(), torch.Generator().manual_seed(0)
        steps["perturbation"] = lambda: perturb(batch["pixel_values"], objective, generator=generator)
        seconds = measure_times(steps, args.rounds, args.warmup, clock)
        resident = resident_bytes(trainers["Trainer"])
        memory = {key: resident + peak_bytes(steps[key]) for key in ("Trainer", *RATIOS)}

    ratios = {key: paired_ratios(seconds[key], seconds["Trainer"]) for key in RATIOS}
    return {
        "step_milliseconds": {key: round(1e3 * statistics.median(seconds[key]), 2) for key in steps},
        "time_ratio": {key: round(statistics.median(ratios[key]), 4) for key in RATIOS},
        "time_ratio_interval": {key: median_interval(ratios[key]) for key in RATIOS},
        "memory_ratio": {key: round(memory[key] / memory["Trainer"], 4) for key in RATIOS},
        "perturbation_share": round(statistics.median(paired_ratios(seconds["perturbation"], seconds["macs"])), 4),
        "macs_over_doubled_batch": round(statistics.median(paired_ratios(seconds["macs"], seconds[DOUBLED])), 4),
    }


def paired_ratios(seconds: list[float], base: list[float]) -> list[float]:
    return sorted(mine / theirs for mine, theirs in zip(seconds, base, strict=True))


def median_interval(ordered: list[float]) -> tuple[float, float]:
    """About 95 % for the median, from the order of the values alone: the rank of the median is binomial."""
    reach = 0.98 * len(ordered) ** 0.5
    low, high = math.floor(len(ordered) / 2 - reach), math.ceil(len(ordered) / 2 + reach)
    return round(ordered[max(low, 0)], 4), round(ordered[min(high, len(ordered) - 1)], 4)


def compare_with_targets(models: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The worst result against each bound, and the mean of all results where there is a bound on it."""
    columns = {key: [model["time_ratio"][key] for model in models.values()] for key in CONTESTANTS}
    columns["perturbation_share"] = [model["perturbation_share"] for model in models.values()]
    checks = {f"{key}_worst": (max(columns[key]), bound) for key, bound in TARGETS.items()}
    checks |= {f"{key}_mean": (round(statistics.mean(columns[key]), 4), bound) for key, bound in MEAN_TARGETS.items()}
    return {key: {"value": value, "at_most": bound, "met": value <= bound} for key, (value, bound) in checks.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Step time and memory of each method over plain Trainer, as JSON.")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=(16, 32, 64))
    parser.add_argument("--image_size", type=int, default=64)
    parser.add_argument("--num_labels", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=100, help="Steps of each contestant that count.")
    parser.add_argument("--warmup", type=int, default=3, help="Steps of each contestant before that.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--cpu_time",
        action="store_true",
        help="Count CPU time, not wall time: steadier on a busy machine, with --threads 1.",
    )
    parser.add_argument("--output", type=Path, help="Also write the JSON here.")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    models = {
        f"{name}, batch {size}": benchmark(name, size, args) for name in args.models for size in args.batch_sizes
    }
    report = {
        "baseline": "transformers.Trainer, cross-entropy",
        "settings": {key: value for key, value in vars(args).items() if key not in ("models", "output")},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "models": models,
        "targets": compare_with_targets(models),
    }
    text = json.dumps(report, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
