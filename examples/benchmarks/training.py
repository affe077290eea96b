"""What training with each method costs, as ratios to plain `Trainer` with cross-entropy, printed as JSON.

    python examples/benchmarks/training.py --threads 1 --cpu_time --output training.json

Each model and batch size is written as soon as it is measured, beside those that the file has already. Ctrl-C ends the
one that is being measured with the rounds that it has.

All contestants train the same model and take turns step by step. A second plain `Trainer` runs along as control: how
far its ratio is from 1 is what this run cannot resolve. A step is `training_step`, gradient clipping, optimizer step
and `zero_grad`, on a batch that is in memory. AugMix views are in the batch too: making them is work of the loader.

Memory, by torch's profiler, is the same in every run: the most that one step holds at once of the tensors it
allocates, plus weights, buffers and optimizer state. Scratch memory inside oneDNN's kernels is not seen.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
import yaml
from harness import arguments, ends, medians, over, publish, take_turns
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import TimmWrapperConfig, TimmWrapperForImageClassification, Trainer, TrainingArguments

from macs_hf import MaCSTrainer, MaCSTrainingArguments, PixelStats
from macs_hf.training.averaging import WeightAverage


MODELS = ("tf_efficientnet_lite0", "resnet18", "convnext_atto", "vit_tiny_patch16_224", "mobilenetv3_small_100")
# Settings as tables of results label them: a method, and arguments that it changes.
CONTESTANTS = (
    "ce",
    "macs",
    "recommended",
    "consistency_only, consistency_fraction=0.25, perturbation_space=pixel",
    "two_view_ce, consistency_fraction=0.25, perturbation_space=pixel",
    "perturb_augment, augment_fraction=0.5, perturbation_space=pixel",
    "focal",
    "label_smoothing",
    "mixup",
    "augmix",
    "ce, ema_decay=0.99",
)
CONTROL = "Trainer_again"
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


def build_trainers(model: nn.Module, output_dir: str, labels: list[str]) -> dict[str, Trainer]:
    """One trainer per contestant around the same model and optimizer, so that they differ in the objective alone."""
    common = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "learning_rate": 1e-4}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shared = {"model": model, "optimizers": (optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0))}
    stats = PixelStats((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    trainers = {name: Trainer(args=TrainingArguments(output_dir, **common), **shared) for name in ("Trainer", CONTROL)}
    for label in labels:
        method, *changes = label.split(", ")
        changes = {name: yaml.safe_load(value) for name, value in (change.split("=") for change in changes)}
        args = MaCSTrainingArguments(output_dir, method=method, **changes, **common)
        trainers[label] = MaCSTrainer(args=args, pixel_stats=stats, **shared)
        if args.ema_decay is not None:
            average = WeightAverage()
            average.on_train_begin(args, trainers[label].state, trainers[label].control, model=model)
            trainers[label].add_callback(average)
    return trainers


def stepper(label: str, trainer: Trainer, batch: dict[str, Tensor]) -> Callable[[], None]:
    """One optimizer step as Trainer's own loop takes it."""
    inputs = {key: value for key, value in batch.items() if key != "augmix_pixel_values" or label == "augmix"}
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
    events = (event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]")
    changes = (change for _, change in sorted((event.start_ns(), event.nbytes()) for event in events))
    return max(itertools.accumulate(changes))


def resident_bytes(trainer: Trainer) -> int:
    state = (value for group in trainer.optimizer.state.values() for value in group.values())
    tensors = [*trainer.model.parameters(), *trainer.model.buffers(), *(v for v in state if isinstance(v, Tensor))]
    if getattr(trainer.args, "ema_decay", None) is not None:
        tensors += trainer.model.state_dict().values()  # the average is as large
    return sum(tensor.nbytes for tensor in tensors)


def benchmark(name: str, batch_size: int, args: Any) -> dict[str, Any]:
    model = build_model(name, args.image_size, args.num_labels)
    batch = build_batch(batch_size, args.image_size, args.num_labels)
    with tempfile.TemporaryDirectory() as output_dir:
        trainers = build_trainers(model, output_dir, args.methods)
        steps = {label: stepper(label, trainer, batch) for label, trainer in trainers.items()}
        seconds = take_turns(
            steps, args.rounds, args.warmup, time.process_time if args.cpu_time else time.perf_counter
        )
        memory = {label: resident_bytes(trainers[label]) + peak_bytes(steps[label]) for label in trainers}
    return {
        "rounds": len(seconds["Trainer"]),
        "step_milliseconds": {label: 1e3 * value for label, value in medians(seconds, 5).items()},
        "time_ratio": over(seconds, "Trainer"),
        "time_ratio_interval": ends(seconds, "Trainer"),
        "memory_ratio": {label: round(memory[label] / memory["Trainer"], 4) for label in over(seconds, "Trainer")},
    }


def main() -> None:
    parser = arguments(__doc__, rounds=100)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=(16, 32, 64))
    parser.add_argument("--methods", nargs="+", default=CONTESTANTS, help='Such as "macs, consistency_fraction=0.25".')
    parser.add_argument("--image_size", type=int, default=64)
    parser.add_argument("--num_labels", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=3, help="Steps of each contestant that do not count.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu_time", action="store_true", help="Steadier on a busy machine, with --threads 1.")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    report = {"baseline": "transformers.Trainer, cross-entropy", "models": {}}
    report["settings"] = {key: getattr(args, key) for key in SETTINGS}
    if args.output and args.output.exists():
        before = json.loads(args.output.read_text())
        if before["settings"] != report["settings"]:
            raise ValueError(f"{args.output} has settings {before['settings']}, and this run {report['settings']}.")
        report["models"] = before["models"]
    for name, size in itertools.product(args.models, args.batch_sizes):
        report["models"][f"{name}, batch {size}"] = benchmark(name, size, args)
        publish(report, args.output, "transformers", "timm")


if __name__ == "__main__":
    main()
