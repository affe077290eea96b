"""The arguments of `macs-hf train`: what to train on what, beside those of `MaCSTrainingArguments`.

Its help is printed without torch and transformers, so they are imported where arguments are parsed and checked.
"""

import argparse
import difflib
import functools
import json
import math
import re
import shutil
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from rich.filesize import decimal

from ..exceptions import ArgumentError
from ..objective.objective import DEFAULT_METHOD, METHODS, Objective, settings_of
from ..report.run_folder import refuse_secrets
from ..report.text import WIDEST, wrapped
from .options import COUNTS, TEXTS
from .process import folder_name, refuse_empty


# ---- Checks ----
# Training arguments that transformers accepts, and that would end a run at its first step or after its last one.


# What `eval_` is put in front of when a model is evaluated during training.
METRICS = ("loss", "accuracy", "nll", "ece", "brier", "logit_margin")
# The least that numbers may be, if they are given.
LEAST = {
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"), 1),
    **dict.fromkeys(("eval_accumulation_steps", "save_total_limit"), 1),
    **dict.fromkeys(("learning_rate", "weight_decay", "max_grad_norm", "eval_delay", "dataloader_num_workers"), 0),
}
# What this command always does, or what has no meaning for images.
NOT_HERE = ("do_train", "do_eval", "do_predict", "label_names", "train_sampling_strategy", "ignore_data_skip")
NOT_HERE += ("prediction_loss_only", "batch_eval_metrics", "eval_do_concat_batches", "include_for_metrics")
# What says how to push.
PUSHING = ("hub_model_id", "hub_private_repo", "hub_revision")


def check_gallery(gallery: int | None, publish_gallery: bool) -> None:
    if publish_gallery and gallery is None:
        raise ArgumentError("gallery", "--publish_gallery shows a gallery in the card. Say how many images, with")


def check_training_arguments(args: Any) -> None:
    """
    Refuse values that can be known to be wrong before training.

    Args:
        args ([`~transformers.TrainingArguments`]): As parsed.

    Raises:
        `ArgumentError`: With the argument, its value and what it may be.
    """
    from transformers.integrations import get_available_reporting_integrations

    for name, least in LEAST.items():
        if (value := getattr(args, name)) is not None and not least <= value < math.inf:
            raise ArgumentError(name, f"must be a finite number of at least {least}.", value)
    for name in ("logging_steps", "eval_steps", "save_steps"):
        if (value := getattr(args, name)) is not None and not 0 < value < math.inf:
            raise ArgumentError(name, "must be above 0: a number of steps, or a share of all steps below 1.", value)
    if args.max_steps != -1 and args.max_steps < 1:
        raise ArgumentError("max_steps", "must be at least 1, or -1 for --num_train_epochs.", args.max_steps)
    if args.max_steps == -1 and not 0 < args.num_train_epochs < math.inf:
        raise ArgumentError("num_train_epochs", "must be a finite number above 0.", args.num_train_epochs)
    best = args.metric_for_best_model
    if best is not None and best.removeprefix("eval_") not in METRICS:
        raise ArgumentError("metric_for_best_model", f"is not measured; choose one of {', '.join(METRICS)}.", best)
    refuse_empty({name: getattr(args, name) for name in ("output_dir", *PUSHING)})
    for name in PUSHING:
        if getattr(args, name) is not None and not args.push_to_hub:
            raise ArgumentError("push_to_hub", f"--{name} is given, but nothing would be pushed. Add")
    installed = get_available_reporting_integrations()
    for tracker in args.report_to:
        if tracker not in (*installed, "flyte"):  # whether that is there, transformers does not say beforehand
            found = ", ".join(installed) or "none is"
            raise ArgumentError(
                "report_to", f"is no tracker that is installed ({found}). Install or leave it.", tracker
            )


def check_disk(args: Any, model: Any) -> None:
    """
    Refuse a run whose checkpoints and final model do not fit on the disk, as far as their sizes are known.

    Args:
        args ([`~transformers.TrainingArguments`]): As parsed.
        model (`torch.nn.Module`): What will be saved.
    """
    from ..training.checkpoints import sharding_of

    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    # The average, or what FSDP continues from, lies beside the model.
    copies = 1 + (args.ema_decay is not None) + (sharding_of(args) == "FSDP")
    if not args.save_only_model and "adam" in str(args.optim.value) and "8bit" not in str(args.optim.value):
        copies += 2  # moments of the gradient
    count = _checkpoints(args)
    # The final model is written beside the one that it replaces.
    needed = weights * (copies * count + 2)
    there = sum(path.stat().st_size for path in Path(args.output_dir).glob("checkpoint-*/*") if path.is_file())
    folder = Path(args.output_dir).absolute()
    free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
    if free < needed - there:
        raise OSError(
            f"The run will write about {decimal(needed - there)} to output_dir={str(args.output_dir)!r}, but the disk "
            f"has {decimal(free)} free: {count} checkpoints of {decimal(weights * copies)} and the final model of "
            f"{decimal(weights)}. Free some space, choose another output_dir, or need less by save_total_limit=1 and "
            "save_only_model=True."
        )


def _checkpoints(args: Any) -> int:
    """How many checkpoints lie on the disk at one time."""
    if args.save_strategy == "no":
        return 0
    if args.save_total_limit is not None:
        # One is written before another is removed; the best one stays.
        return args.save_total_limit + 1 + args.load_best_model_at_end
    if args.save_strategy == "epoch" and args.max_steps == -1:
        return math.ceil(args.num_train_epochs)
    if args.save_strategy == "steps" and args.save_steps < 1:
        return math.ceil(1 / args.save_steps)
    return max(1, int(args.max_steps / args.save_steps)) if args.save_strategy == "steps" else 1


# ---- Arguments ----


PROGRAM = "macs-hf train"
USAGE = f"{PROGRAM} [SETTINGS.yaml] [--ARGUMENT VALUE ...]"


SCRATCH_LEARNING_RATE, FINE_TUNING_LEARNING_RATE = 5e-3, 1e-4


@dataclass
class ScriptArguments:
    """What to train, on what. The texts are those of `options.py`."""

    dataset: str = "digits"
    dataset_config: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    train_split: str | None = None
    calibration_split: str | None = None
    split: str | None = None
    group_column: str | None = None
    ood_dataset: str | None = None
    ood_split: str | None = None
    model: str = "tiny"
    model_revision: str | None = None
    image_size: int | None = None
    channels_last: bool = False
    data_fraction: float = 1.0
    max_train_samples: int | None = None
    skip_bad_images: bool = False
    streaming: bool = False
    cache_bytes: int = 2_000_000_000
    shuffle_buffer: int = 2000
    max_eval_samples: int | None = None
    max_calibration_samples: int | None = None
    force_temperature: bool = False
    horizontal_flip: bool | None = None
    corruptions: Literal["auto", "cifar", "imagenet", "none"] = "auto"
    corruption_samples: int | None = None
    corruption_design: Literal["auto", "crossed", "spread"] = "auto"
    gallery: int | None = None
    publish_gallery: bool = False
    license: str | None = None
    allow_inexact_resume: bool = False
    quiet: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in COUNTS and value is not None and value < 1:
                raise ArgumentError(name, "must be at least 1.", value)
        if self.license is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.license):
            raise ArgumentError(
                "license",
                "is not a licence name of the Hub, such as apache-2.0: see "
                "https://huggingface.co/docs/hub/repositories-licenses.",
                self.license,
            )
        if not 0 < self.data_fraction <= 1:
            raise ArgumentError("data_fraction", "must lie in (0, 1].", self.data_fraction)
        check_gallery(self.gallery, self.publish_gallery)


for each in fields(ScriptArguments):
    each.metadata = {"help": TEXTS[each.name][0].upper() + TEXTS[each.name][1:]}


# What this command sets differently from `TrainingArguments`, whatever it trains on what; flags and files win.
USUAL = {
    "num_train_epochs": 20,
    "per_device_train_batch_size": 64,
    "per_device_eval_batch_size": 256,
    "weight_decay": 0.05,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.1,
    "logging_steps": 10,
    "save_total_limit": 1,
    "seed": 0,
    "stop_on_signals": True,
}


def classes() -> tuple[type, type]:
    """The dataclasses of all arguments."""
    from ..training.arguments import MaCSTrainingArguments

    return ScriptArguments, MaCSTrainingArguments


@functools.cache  # a parser replaces the types of the fields
def several_valued() -> frozenset[str]:
    """Arguments that may hold several values."""
    types = {each.name: str(each.type) for cls in classes() for each in fields(cls)}
    return frozenset(name for name, kind in types.items() if "list" in kind or "dict" in kind)


def argument_names() -> list[str]:
    """The names of all flags."""
    return [each.name for cls in classes() for each in fields(cls) if each.init]


def script_defaults(script: ScriptArguments, method: str) -> dict[str, Any]:
    """`USUAL`, and what depends on the machine, the data and the model."""
    import torch

    from ..models.loading import FROM_SCRATCH

    on_gpu = torch.cuda.is_available()
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported()
    # A stream has no epochs: ten times during training.
    when = {"eval_steps": 0.1, "save_steps": 0.1} if script.streaming else {}
    names = (folder_name(script.dataset), folder_name(script.model), method)
    return USUAL | {
        "output_dir": str(Path("runs", "-".join(names))),
        "learning_rate": SCRATCH_LEARNING_RATE if script.model in FROM_SCRATCH else FINE_TUNING_LEARNING_RATE,
        "use_cpu": not torch.accelerator.is_available(),  # else processes without a GPU would not find each other
        "bf16": has_bf16,
        "fp16": on_gpu and not has_bf16,
        "eval_strategy": "steps" if script.streaming else "epoch",
        "save_strategy": "steps" if script.streaming else "epoch",
        "dataloader_pin_memory": on_gpu,
        "log_level": "warning" if script.verbose else "error",
        **when,
    }


def parse(argv: list[str]) -> tuple[ScriptArguments, Any]:
    """The arguments of a command line, whose first word may be a file of settings, checked, for script and trainer."""
    parser, argv = make_parser(argv)
    script, args, unknown = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if unknown:
        word = unknown[0].partition("=")[0]
        word = {"--lr": "--learning_rate"}.get(word, word)
        known = [f"--{name}" for part in COMMON.values() for name in part] + [f"--{name}" for name in argument_names()]
        longer = [name for name in known if word.startswith("--") and word[2:] in name]
        longer.sort(key=lambda name: not name.startswith(word))
        similar = longer or difflib.get_close_matches(word, known, n=1, cutoff=0.7)
        meant = f" Did you mean {similar[0]}?" if similar else ""
        raise ValueError(f"Unknown arguments: {' '.join(unknown)}.{meant} --help-all lists all arguments.")
    refuse_secrets({name: value for name, value in {**vars(script), **vars(args)}.items() if name != "hub_token"})
    check_training_arguments(args)
    return script, args


def make_parser(argv: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """A parser with the defaults that the dataset, the model and the method ask for, and the flags it is for."""
    from transformers import HfArgumentParser

    values = {}
    several_valued()
    if argv and argv[0].endswith((".json", ".yaml", ".yml")):
        words, values = read_settings(argv[0])
        argv = [*words, *argv[1:]]
    flags = [word.partition("=")[0].replace("-", "_").removeprefix("__") for word in argv if word.startswith("--")]
    for name in NOT_HERE:
        if name in flags or name in values:
            raise ArgumentError(name, "has no use in this command: leave it out.", True)
    usual = {"allow_abbrev": False, "add_help": False, "prog": PROGRAM, "usage": USAGE, "formatter_class": Formatter}
    first = HfArgumentParser(ScriptArguments, **usual)
    first.add_argument("--method", default=DEFAULT_METHOD)
    script, chosen, *_ = first.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    settings_of(chosen.method)  # refuses a name that no method has
    parser = HfArgumentParser(classes(), **usual)
    parser.set_defaults(**script_defaults(script, chosen.method) | values)
    return parser, argv


def read_settings(path: str | PathLike) -> tuple[list[str], dict[str, Any]]:
    """The settings of a JSON or YAML file: those that a flag can hold as flags, and the others by name."""
    import yaml

    with open(path, encoding="utf-8") as file:
        try:
            settings = json.load(file) if str(path).endswith(".json") else yaml.safe_load(file) or {}
        except Exception as error:  # PyYAML raises errors of all kinds for a tag that does not fit its value
            raise ValueError(f"{path} cannot be read as settings: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise ValueError(f"{path} holds something else than named settings: write one `name: value` a line.")
    values = {
        name: value for name, value in settings.items() if isinstance(value, list | dict) and name in several_valued()
    }
    given = {name: value for name, value in settings.items() if value is not None and name not in values}
    return [f"--{name}={value}" for name, value in given.items()], values


# ---- Help ----
# The help of `macs-hf train`: the thirty arguments that people use, or all of them.


DESCRIPTION = """\
Train an image classifier with Margin and Consistency Supervision, calibrate
it, measure it, and push it.

  macs-hf train                           embedded data, a small network
  macs-hf train --dataset cifar10 --model resnet50
                                          names, Hub ids and local folders
  macs-hf train settings.yaml --seed 1    JSON or YAML, flags win
  macs-hf train ... --push_to_hub --hub_model_id user/name
                                          after `hf auth login`
  macs-hf train ... --streaming --max_steps 100000
                                          images that do not fit on the disk
  accelerate launch --num_processes 8 -m macs_hf.cli.train ...
                                          one process per GPU
"""
OTHERS = ", ".join(name for name in METHODS if name not in ("recommended", "macs", "ce"))
# By group, the texts of arguments; `None` stands for the first sentence of their own help.
COMMON: dict[str, dict[str, str | None]] = {
    "data": {
        **dict.fromkeys(("dataset", "dataset_config", "image_column", "label_column", "train_split")),
        **dict.fromkeys(("calibration_split", "split", "max_train_samples", "skip_bad_images", "streaming")),
    },
    "model": dict.fromkeys(("model", "model_revision", "image_size")),
    "objective": {
        "method": "`recommended` is robust and calibrated, at about 1.2 times the cost of plain training; `macs` is "
        "the paper to the letter, at about twice the cost; `ce` is plain cross-entropy, to compare with. Controls and "
        f"baselines (docs/train.md): {OTHERS} (default: {DEFAULT_METHOD})",
        **dict.fromkeys(("lambda_margin", "lambda_consistency", "margin", "perturbation", "consistency_fraction")),
    },
    "training": {
        "num_train_epochs": f"How often each training image is seen (default: {USUAL['num_train_epochs']})",
        "max_steps": "Steps to train for, in place of epochs (default: none)",
        "learning_rate": "The largest learning rate; it warms up and decays (default: "
        f"{SCRATCH_LEARNING_RATE:g} for tiny, small and medium, {FINE_TUNING_LEARNING_RATE:g} for other models)",
        "per_device_train_batch_size": "Images in a batch, on each device (default: "
        f"{USUAL['per_device_train_batch_size']})",
        "gradient_accumulation_steps": "Batches that make one step (default: 1)",
        "seed": f"Seed of weights, batches and augmentation (default: {USUAL['seed']})",
        "use_cpu": "Train on the CPU even if there is an accelerator (default: if there is none)",
        "resume_from_checkpoint": "A checkpoint to continue from, in place of the newest one in output_dir",
    },
    "results": {
        "output_dir": "Where the model, its report and its checkpoints go (default: runs/DATASET-MODEL-METHOD)",
        **dict.fromkeys(("corruptions", "corruption_samples")),
        "report_to": "Trackers, such as tensorboard, trackio or wandb (default: none)",
        "push_to_hub": "Push the calibrated model and its card",
        "hub_model_id": "Repository to push to, as user/name (default: your user name and the name of output_dir)",
        "hub_private_repo": "Make that repository private",
    },
    "terminal": dict.fromkeys(("quiet", "verbose")),
}


def help_asked_for(argv: list[str]) -> str | None:
    """The help that a command line asks for, if it does."""
    for flags, text in ((("-h", "--help"), common_help), (("--help-all",), full_help)):
        if any(flag in argv for flag in flags):
            return text([word for word in argv if word not in flags])
    return None


def common_help(argv: list[str]) -> str:
    """The common arguments in groups, with the defaults of the method that the command line names."""
    first = argparse.ArgumentParser(PROGRAM, usage=USAGE, allow_abbrev=False, add_help=False)
    first.add_argument("--method", default=DEFAULT_METHOD)
    by_method = vars(Objective(**settings_of(first.parse_known_args(argv)[0].method)))
    defaults = {each.name: each.default for each in fields(ScriptArguments) if each.default}
    defaults |= {name: f"{value}, set by the method" for name, value in by_method.items()}
    helps = {each.name: each.metadata.get("help", "") for cls in (ScriptArguments, Objective) for each in fields(cls)}
    width = min(shutil.get_terminal_size().columns, WIDEST)
    lines = [f"usage: {USAGE}", "", DESCRIPTION]
    for title, arguments in COMMON.items():
        lines.append(f"{title}:")
        for name, text in arguments.items():
            text = text or helps[name].partition(". ")[0].rstrip(".")
            text += f" (default: {defaults[name]})" if name in defaults else ""
            lines += wrapped(text, width, 34, f"  --{name:<29} ")
        lines.append("")
    lines.append("--help-all lists all arguments, with those of transformers' TrainingArguments.")
    return "\n".join(lines)


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Adds defaults to the texts that do not say them in words."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if "(default: " in (action.help or "") else super()._get_help_string(action)


def full_help(argv: list[str]) -> str:
    """All arguments, as argparse prints them."""
    parser, _ = make_parser(argv)
    return parser.format_help()
