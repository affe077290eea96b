"""What training with each method costs, as ratios to plain `Trainer` cross-entropy, printed as JSON.

    python examples/benchmarks/training.py --output training.json

Each model and batch size is written as soon as it is measured; with `--append`, into what the file has already. Ctrl-C
ends the one that is being measured with the rounds that it has.

All contestants train the same model in one process and take turns step by step, so that whatever else the machine does
hits them alike; each ratio is the median over rounds of (step of the method / step of `Trainer` in the same round),
with an interval that holds the true median in about 95 of 100 runs. A second plain `Trainer` runs along as control. A
step is `training_step`, gradient clipping, optimizer step and `zero_grad`, on a batch that is in memory. AugMix views
are in the batch too: making them is work of the data loader. Ratios depend on the batch size, so there is a result for
each model and batch size. `perturbation_share` is the time of noise and blur alone over that of the `macs` step it is
part of. `macs_over_doubled_batch` is the `macs` step over a step of plain `Trainer` on twice as many images: what it
costs beyond the forward and backward pass of the second view. `ce_ema` is `ce` with averaged weights.

Memory is counted by torch's profiler, so it is the same in every run: the most that one step holds at once of the
tensors it allocates (activations, gradients, temporaries), plus weights, buffers and optimizer state, which are there
all along. Scratch memory inside oneDNN's kernels is not seen.
"""

import argparse
import itertools
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from side_by_side import median_ratio, ratios, take_turns
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import TimmWrapperConfig, TimmWrapperForImageClassification, Trainer, TrainingArguments

from macs_hf import METHODS, MaCSTrainer, MaCSTrainingArguments, Objective, PixelStats, perturb
from macs_hf.training.averaging import WeightAverage


MODELS = ("tf_efficientnet_lite0", "resnet18", "convnext_atto", "vit_tiny_patch16_224", "mobilenetv3_small_100")
QUARTER = {"consistency_fraction": 0.25}
CONTESTANTS = {name: METHODS[name] for name in ("ce", "macs", "focal", "label_smoothing", "mixup", "augmix")}
CONTESTANTS |= {
    "macs_quarter": METHODS["macs"] | QUARTER,
    "recommended": METHODS["recommended"],
    "two_view_ce_pixel_quarter": METHODS["two_view_ce"] | QUARTER | {"perturbation_space": "pixel"},
    "ce_ema": METHODS["ce"] | {"ema_decay": 0.99},
}
USUAL = tuple(CONTESTANTS)
# The other methods of examples/configs/study.yaml, for `--methods`.
CONTESTANTS |= {
    "two_view_ce": METHODS["two_view_ce"],
    "two_view_ce_quarter": METHODS["two_view_ce"] | QUARTER,
    "consistency_only": METHODS["consistency_only"],
    "macs_pixel_quarter": METHODS["macs_pixel"] | QUARTER,
}
PIXEL_STATS = PixelStats((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

# Plain Trainer once more: how far its ratio is from 1 is what this run cannot resolve.
CONTROL = "Trainer_again"
DOUBLED = "Trainer_on_a_doubled_batch"
PERTURBATION = "perturbation"

# The most each ratio may be, in every model.
TARGETS = {
    "ce": 1.02,
    "macs": 2.1,
    "macs_quarter": 1.35,
    "focal": 1.05,
    "label_smoothing": 1.05,
    "mixup": 1.05,
    "recommended": 1.3,
    "ce_ema": 1.03,
    "perturbation_share": 0.05,
}
MEAN_TARGETS = {"macs": 2.0}
SETTINGS = ("image_size", "num_labels", "warmup", "threads", "cpu_time")


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


def build_trainers(model: nn.Module, output_dir: str, contestants: dict[str, dict]) -> dict[str, Trainer]:
    """One trainer per contestant around the same model and optimizer, so that they differ in the objective alone."""
    common = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "learning_rate": 1e-4}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    shared = {"model": model, "optimizers": (optimizer, constant)}
    plain = TrainingArguments(output_dir, **common)
    plain_ones = ("Trainer", CONTROL, DOUBLED) if "macs" in contestants else ("Trainer", CONTROL)
    trainers = {name: Trainer(args=plain, **shared) for name in plain_ones}
    for name, method in contestants.items():
        args = MaCSTrainingArguments(output_dir, **method, **common)
        trainers[name] = MaCSTrainer(args=args, pixel_stats=PIXEL_STATS, **shared)
        if args.ema_decay is not None:
            average = WeightAverage()
            average.on_train_begin(args, trainers[name].state, trainers[name].control, model=model)
            trainers[name].add_callback(average)
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
        trainer.callback_handler.on_optimizer_step(trainer.args, trainer.state, trainer.control)
        model.zero_grad()
        trainer.state.global_step += 1

    return step


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
    if getattr(trainer.args, "ema_decay", None) is not None:
        tensors += trainer.model.state_dict().values()  # the average is as large
    return sum(tensor.nbytes for tensor in tensors)


def benchmark(name: str, batch_size: int, args: argparse.Namespace) -> dict[str, Any]:
    model = build_model(name, args.image_size, args.num_labels)
    batch = build_batch(batch_size, args.image_size, args.num_labels)
    doubled = build_batch(2 * batch_size, args.image_size, args.num_labels)
    clock = time.process_time if args.cpu_time else time.perf_counter
    contestants = {name: CONTESTANTS[name] for name in args.methods}
    compared = (CONTROL, *contestants)
    with tempfile.TemporaryDirectory() as output_dir:
        trainers = build_trainers(model, output_dir, contestants)
        steps = {key: stepper(key, trainer, doubled if key == DOUBLED else batch) for key, trainer in trainers.items()}
        objective, generator = Objective(), torch.Generator().manual_seed(0)
        steps[PERTURBATION] = lambda: perturb(batch["pixel_values"], objective, generator=generator)
        seconds = take_turns(steps, args.rounds, args.warmup, clock)
        memory = {key: resident_bytes(trainers[key]) + peak_bytes(steps[key]) for key in ("Trainer", *compared)}

    over_trainer = {key: sorted(ratios(seconds[key], seconds["Trainer"])) for key in compared}
    report = {
        "rounds": len(seconds["Trainer"]),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "step_milliseconds": {key: round(1e3 * statistics.median(seconds[key]), 2) for key in steps},
        "time_ratio": {key: round(statistics.median(found), 4) for key, found in over_trainer.items()},
        "time_ratio_interval": {key: median_interval(found) for key, found in over_trainer.items()},
        "memory_ratio": {key: round(memory[key] / memory["Trainer"], 4) for key in compared},
    }
    if "macs" in contestants:
        for key, mine, base in (
            ("perturbation_share", PERTURBATION, "macs"),
            ("macs_over_doubled_batch", "macs", DOUBLED),
        ):
            report[key] = median_ratio(seconds[mine], seconds[base])
    return report


def median_interval(ordered: list[float]) -> tuple[float, float]:
    """About 95 % for the median, from the order of the values alone: the rank of the median is binomial."""
    reach = 0.98 * len(ordered) ** 0.5
    low, high = math.floor(len(ordered) / 2 - reach), math.ceil(len(ordered) / 2 + reach)
    return round(ordered[max(low, 0)], 4), round(ordered[min(high, len(ordered) - 1)], 4)


def compare_with_targets(models: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The worst result against each bound, and the mean of all results where there is a bound on it."""
    columns: dict[str, list[float]] = {}
    for model in models.values():
        shares = {key: model[key] for key in ("perturbation_share",) if key in model}
        for key, value in (model["time_ratio"] | shares).items():
            columns.setdefault(key, []).append(value)
    checks = {f"{key}_worst": (max(columns[key]), bound) for key, bound in TARGETS.items() if key in columns}
    checks |= {
        f"{key}_mean": (round(statistics.mean(columns[key]), 4), bound)
        for key, bound in MEAN_TARGETS.items()
        if key in columns
    }
    return {key: {"value": value, "at_most": bound, "met": value <= bound} for key, (value, bound) in checks.items()}


def begin(args: argparse.Namespace) -> dict[str, Any]:
    """A report without models, or the one that `--append` goes on with, which must have the same settings."""
    report = {
        "baseline": "transformers.Trainer, cross-entropy",
        "settings": {key: getattr(args, key) for key in SETTINGS},
        "models": {},
    }
    if args.append and args.output.exists():
        before = json.loads(args.output.read_text())
        if before["settings"] != report["settings"]:
            raise ValueError(f"{args.output} has settings {before['settings']}, and this run {report['settings']}.")
        report["models"] = before["models"]
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Step time and memory of each method over plain Trainer, as JSON.")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=(16, 32, 64))
    parser.add_argument("--methods", nargs="+", choices=CONTESTANTS, default=USUAL)
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
    parser.add_argument("--append", action="store_true", help="Keep the models that --output has already.")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    report = begin(args)
    for name, size in itertools.product(args.models, args.batch_sizes):
        report["models"][f"{name}, batch {size}"] = benchmark(name, size, args)
        report["targets"] = compare_with_targets(report["models"])
        if args.output:
            args.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
