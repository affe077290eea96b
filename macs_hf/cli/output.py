"""What commands print: what they are about to do, what was measured, where it is, and what to type next."""

import logging
import shlex
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.utils as hub
import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from .. import __version__
from ..calibration.guarantees import MIN_HELD_OUT
from ..calibration.temperature import MIN_SAMPLES
from ..data.images import ImageDataset, find_leakage
from ..data.transforms import input_size
from ..evaluation.evaluate import ModelAndData
from ..exceptions import ArgumentError
from ..models.loading import FROM_SCRATCH
from ..objective.objective import describe, objective_of
from ..report.report import EvaluationReport
from ..report.run_folder import GALLERY, PAGE_FILE, public_name
from ..report.sections import leakage_line
from ..training.arguments import MaCSTrainingArguments
from ..training.callbacks import Screen
from ..training.trainer import MaCSTrainer
from .process import is_main_process
from .train_arguments import ScriptArguments


# ---- The beginning ----
# What a command is about to do, in a few labelled lines.


HEADER_LABEL = 10


def show_header(screen: Screen, command: str, rows: Mapping[str, str]) -> None:
    """The command, and what it works with."""
    screen.line(f"macs-hf {command} {__version__}", style="bold")
    for label, text in rows.items():
        screen.line(f"{label:<{HEADER_LABEL}}{text}", indent=HEADER_LABEL)
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
        "method": f"{args.method}: {describe(objective_of(args))}",
        "training": _schedule(args),
        "device": _device(args.device, args.world_size, "bfloat16" if args.bf16 else "float16" if args.fp16 else None),
        "output": args.output_dir,
    }


def header_of_measuring(loaded: ModelAndData, model: str, dataset: str, folder: Path) -> dict[str, str]:
    """The rows of `macs-hf evaluate` and `macs-hf calibrate`."""
    measured, test, held_out = loaded.measured, loaded.test, loaded.calibration
    sizes = f"{len(test):,} {loaded.metadata['split']} images"
    if held_out is not None:
        sizes = f"{len(held_out):,} {held_out.split} images to calibrate, {sizes} to test"
    return {
        "data": f"{dataset}, {measured.model.config.num_labels:,} classes: {sizes}",
        **({} if held_out is None else _held_out(held_out)),
        "network": _network(model, measured.model, measured.processor),
        "device": _device(measured.accelerator.device, measured.accelerator.num_processes),
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
    too_few_for = {"to fit a temperature": MIN_SAMPLES, "for coverage guarantees": MIN_HELD_OUT}
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


def _schedule(args: MaCSTrainingArguments) -> str:
    count, unit = (args.max_steps, "step") if args.max_steps > 0 else (args.num_train_epochs, "epoch")
    length = f"{count:,.9g} {unit}{'' if count == 1 else 's'}"
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    schedule = str(args.lr_scheduler_type.value).replace("_", " ")
    return f"{length}, batches of {batch:,}, learning rate {args.learning_rate:g} ({schedule}), seed {args.seed}"


def _device(device: torch.device, processes: int, kind: str | None = None) -> str:
    name = "cpu" if device.type == "cpu" else str(device)  # of several processes, each has a cpu:0
    return ", ".join(filter(None, [name, kind, f"{processes} process{'es' if processes > 1 else ''}"]))


# ---- The end ----
# The end of a command: what was measured, where it is, and what to type next.


def show_summary(screen: Screen, text: str) -> None:
    """Lines, of which the first is a title."""
    first, *others = text.splitlines()
    screen.line()
    screen.line(first, style="bold")
    for line in others:
        screen.line(line, indent=4 if line.startswith("  ") else 2)


def show_files(screen: Screen, what: str, folder: str | Path, names: Iterable[str]) -> None:
    """Where the results are, and what to open first."""
    pages = [name for name in names if name in (PAGE_FILE, GALLERY)] or list(names)
    screen.line(f"The {what} in {folder}:", wrap=False)
    screen.line(f"  {', '.join(str(Path(folder, name)) for name in pages)}", wrap=False)


def model_of(report: EvaluationReport) -> str:
    """The beginning of a sentence about a model: calibrated only if the temperature helped."""
    if report.above_chance is False:
        return "model, whose accuracy is not above chance, is"
    if report.is_calibrated:
        return "calibrated model is"
    if report.has_temperature:
        return "model, whose temperature did not help beyond chance, is"
    return "model, which got no temperature, is"


def after_saving(report: EvaluationReport, folder: str | Path, pushed: bool) -> dict[str, str]:
    """What to type when a model is saved: to push it only if it is above chance, without a temperature that harms."""
    following = {"see it in the browser": shlex.join(["macs-hf", "app", str(folder)])}
    is_worth_it = report.above_chance is not False and (report.is_calibrated or not report.has_temperature)
    if is_worth_it and not pushed:
        following["push it to the Hub"] = shlex.join(["macs-hf", "push", str(folder), "USER/NAME"])
    return following


def show_next(screen: Screen, commands: Mapping[str, str]) -> None:
    """Commands to type, by what they do."""
    screen.line("Next:")
    width = max(map(len, commands.values()))
    lines = [f"  {command:<{width}}  {purpose}" for purpose, command in commands.items()]
    if screen.is_terminal and max(map(len, lines)) > screen.width:
        lines = [line for purpose, command in commands.items() for line in (f"  {purpose}:", f"    {command}")]
    for line in lines:
        screen.line(line, wrap=False)


# ---- Other libraries ----
# What other libraries print: nothing but errors, unless `--verbose` asks for it.


# Loggers that speak of what this package checks by itself, or of what a user cannot change.
LIBRARIES = (
    "transformers",
    "datasets",
    "accelerate",
    "huggingface_hub",
    "timm",
    "torch",
    "httpx",
    "filelock",
    "fsspec",
)


@contextmanager
def quiet_libraries(downloads: bool = False) -> Iterator[None]:
    """Inside, warnings, log lines and bars of other libraries are not shown, but for bars of what is read if asked."""
    with warnings.catch_warnings(), ExitStack() as afterwards:
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", category)
        for logger in map(logging.getLogger, LIBRARIES):
            afterwards.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        shown = [(bars, not bars.are_progress_bars_disabled()) for bars in (hub, datasets.utils)]
        for bars, is_shown in shown:
            afterwards.callback(_switch, bars, is_shown)
        if transformers_logging.is_progress_bar_enabled():
            afterwards.callback(transformers_logging.enable_progress_bar)
        transformers_logging.disable_progress_bar()  # those of the Hub too
        for bars, is_shown in shown:
            _switch(bars, is_shown and downloads)
        yield


def _switch(bars: Any, on: bool) -> None:
    (bars.enable_progress_bars if on else bars.disable_progress_bars)()


@contextmanager
def screen_of(quiet: bool, verbose: bool, *, bars: bool = True) -> Iterator[Screen]:
    """Where a command writes to; inside, other libraries write only if it is `verbose`."""
    if quiet and verbose:
        raise ArgumentError("quiet", "and --verbose contradict each other: leave one of them out.", True)
    screen = Screen(enabled=is_main_process() and not quiet, bars=bars and not verbose)
    with nullcontext() if verbose else quiet_libraries(downloads=screen.draws), closing(screen):
        yield screen
