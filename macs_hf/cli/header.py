"""What a command is about to do, in a few labelled lines."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from .. import __version__
from ..calibration.guarantees import MIN_HELD_OUT
from ..calibration.temperature import MIN_SAMPLES
from ..data.images import ImageDataset, input_size
from ..data.leakage import find_leakage, leakage_line
from ..disk.public_names import public_name
from ..evaluation.model_and_data import ModelAndData
from ..models.loading import FROM_SCRATCH
from ..objective import Objective, objective_of
from ..training.arguments import MaCSTrainingArguments
from ..training.screen import Screen
from ..training.trainer import MaCSTrainer
from .train_arguments import ScriptArguments


LABEL = 10
# What each part of an objective adds to it, with its weight, the perturbation, and the share of images that get it.
TERMS = {
    "label_smoothing_factor": "label smoothing {0:g}",
    "mixup_alpha": "MixUp with alpha {0:g}",
    "perturb_as_augmentation": "on images with {T}",
    "two_view_cross_entropy": "also on images with {T}{share}",
    "lambda_margin": "{0:g} x margin",
    "lambda_consistency": "{0:g} x consistency ({T}{share})",
    "lambda_jsd": "{0:g} x AugMix divergence",
    "lambda_mbls": "{0:g} x margin-based smoothing",
}


def show_header(screen: Screen, command: str, rows: Mapping[str, str]) -> None:
    """The command, and what it works with."""
    screen.line(f"macs-hf {command} {__version__}", style="bold")
    for label, text in rows.items():
        screen.line(f"{label:<{LABEL}}{text}", indent=LABEL)
    screen.line()


def header_of_training(
    trainer: MaCSTrainer, test: ImageDataset, script: ScriptArguments, args: MaCSTrainingArguments
) -> dict[str, str]:
    """The rows of `macs-hf train`."""
    splits = {"train": trainer.train_dataset, "validation": trainer.eval_dataset, "test": test}
    count = "streamed" if script.streaming else f"{len(trainer.train_dataset):,}"
    sizes = f"{count} train, {len(trainer.eval_dataset):,} validation, {len(test):,} test images"
    return {
        "data": f"{script.dataset}, {trainer.model.config.num_labels:,} classes: {sizes}",
        "copies": leakage_line(find_leakage(splits)).removeprefix("exact copies "),
        **_held_out(trainer.eval_dataset),
        "network": _network(script.model, trainer.model, trainer.processing_class),
        "method": f"{script.method}: {_terms(objective_of(args))}",
        "training": _schedule(args),
        "device": _device(args),
        "cache": _cache(list(splits.values())),
        "output": args.output_dir,
    }


def header_of_measuring(loaded: ModelAndData, model: str, dataset: str, folder: Path) -> dict[str, str]:
    """The rows of `macs-hf evaluate` and `macs-hf calibrate`."""
    trainer, test, held_out = loaded.trainer, loaded.test, loaded.calibration
    sizes = f"{len(test):,} {loaded.metadata['split']} images"
    if held_out is not None:
        sizes = f"{len(held_out):,} {held_out.split} images to calibrate, {sizes} to test"
    return {
        "data": f"{dataset}, {trainer.model.config.num_labels:,} classes: {sizes}",
        **({} if held_out is None else _held_out(held_out)),
        "network": _network(model, trainer.model, trainer.processing_class),
        "device": _device(trainer.args),
        "cache": _cache([test] if held_out is None else [held_out, test]),
        "output": str(folder),
    }


def header_of_exporting(
    model: PreTrainedModel, processor: Any, images: Mapping[str, ImageDataset], options: Namespace
) -> dict[str, str]:
    """The rows of `macs-hf export`; `images` by what they serve for."""
    sizes = [f"{len(part):,} {part.split} images" for part in images.values()]
    data = f"{options.dataset}, {model.config.num_labels:,} classes: {', '.join(sizes)}"
    return {
        **({"data": data} if images else {}),
        "network": _network(options.model, model, processor),
        "output": options.output_dir,
    }


def _held_out(dataset: ImageDataset) -> dict[str, str]:
    """A row that says before the work what so few held-out images will not give, and how to give more."""
    too_few_for = {"to fit a temperature": MIN_SAMPLES, "to promise anything": MIN_HELD_OUT}
    missed = [f"{purpose} ({least})" for purpose, least in too_few_for.items() if len(dataset) < least]
    if not missed:
        return {}
    more = "add more in a split `validation`, or name another with --calibration_split"
    return {"held out": f"{len(dataset):,} images are too few {' and '.join(missed)}: {more}"}


def _network(name: str, model: PreTrainedModel, processor: Any) -> str:
    height, width = input_size(processor)
    weights = sum(parameter.numel() for parameter in model.parameters())
    origin = ", from scratch" if name in FROM_SCRATCH else ""
    return f"{public_name(name)}{origin}, {height} x {width} pixels, {weights:,} weights"


def _terms(objective: Objective) -> str:
    """What is minimised."""
    first = f"focal loss with gamma {objective.focal_gamma:g}" if objective.focal_gamma else "cross-entropy"
    used = {name: text for name, text in TERMS.items() if getattr(objective, name)}
    space = " of pixels" if objective.perturbation_space == "pixel" else ""
    share = "" if objective.consistency_fraction == 1 else f", on {objective.consistency_fraction:.0%} of the images"
    names = {"T": f"{objective.perturbation}{space}", "share": share}
    others = [text.format(getattr(objective, name), **names) for name, text in used.items()]
    return " + ".join([first, *others])


def _schedule(args: MaCSTrainingArguments) -> str:
    count, unit = (args.max_steps, "step") if args.max_steps > 0 else (args.num_train_epochs, "epoch")
    length = f"{count:,.9g} {unit}{'' if count == 1 else 's'}"
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    schedule = str(args.lr_scheduler_type.value).replace("_", " ")
    return f"{length}, batches of {batch:,}, learning rate {args.learning_rate:g} ({schedule}), seed {args.seed}"


def _device(args: Any) -> str:
    kind = {(True, False): ", bfloat16", (False, True): ", float16"}.get((bool(args.bf16), bool(args.fp16)), "")
    device = "cpu" if args.device.type == "cpu" else args.device  # of several processes, each has a cpu:0
    return f"{device}{kind}, {args.world_size} process{'es' if args.world_size > 1 else ''}"


def _cache(datasets: Sequence[Any]) -> str:
    kept = [dataset for dataset in datasets if isinstance(dataset, ImageDataset) and dataset.is_cached]
    if len(kept) == len(datasets):
        return "decoded images stay in memory"
    if not kept:
        return "none, images are decoded each time they are read"
    return f"decoded images of {' and '.join(dataset.split for dataset in kept)} stay in memory"
