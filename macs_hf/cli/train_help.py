"""The help of `macs-hf train`: the thirty arguments that people use, or all of them."""

import shutil
import textwrap
from dataclasses import fields
from typing import Any

from .errors import WIDEST, with_flags
from .train_arguments import ARGUMENTS, CLASSES, FINE_TUNING_LEARNING_RATE, SCRATCH_LEARNING_RATE, USAGE, make_parser


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
COMMON = {
    "data": (
        *("dataset", "dataset_config", "image_column", "label_column", "train_split", "calibration_split", "split"),
        *("max_train_samples", "skip_bad_images", "streaming"),
    ),
    "model": ("model", "model_revision", "image_size"),
    "objective": ("method", "lambda_margin", "lambda_consistency", "margin", "perturbation", "consistency_fraction"),
    "training": (
        *("num_train_epochs", "max_steps", "learning_rate", "per_device_train_batch_size"),
        *("gradient_accumulation_steps", "seed", "use_cpu", "resume_from_checkpoint"),
    ),
    "results": (
        *("output_dir", "corruptions", "corruption_samples", "report_to"),
        *("push_to_hub", "hub_model_id", "hub_private_repo"),
    ),
    "terminal": ("quiet", "verbose"),
}
# Where this command does, or defaults to, something else than the first sentence of the argument's help says.
MEANINGS = {
    "calibration_split": "Split that fits the temperature",
    "corruptions": "Parameters of the corruption benchmark",
    "num_train_epochs": "How often each training image is seen",
    "max_steps": "Steps to train for, in place of epochs",
    "learning_rate": "The largest learning rate; it warms up and decays",
    "per_device_train_batch_size": "Images in a batch, on each device",
    "gradient_accumulation_steps": "Batches that make one step",
    "seed": "Seed of weights, batches and augmentation",
    "use_cpu": "Train on the CPU even if there is an accelerator",
    "resume_from_checkpoint": "A checkpoint to continue from, in place of the newest one in output_dir",
    "output_dir": "Where the model, its report and its checkpoints go",
    "report_to": "Trackers, such as tensorboard, trackio or wandb",
    "push_to_hub": "Push the calibrated model and its card",
    "hub_model_id": "Repository to push to, as user/name",
    "hub_private_repo": "Make that repository private",
}
BY_METHOD = "{value}, set by the method"
DEFAULTS = {
    "train_split": "train",
    "calibration_split": "validation, or a tenth of train",
    "split": "test, or a tenth of train",
    "image_size": "what the model was trained with; 32 for tiny and small, 64 for medium",
    "learning_rate": f"{{value:g}}: {SCRATCH_LEARNING_RATE:g} for tiny, small and medium, "
    f"{FINE_TUNING_LEARNING_RATE:g} for other models",
    "lambda_margin": BY_METHOD,
    "lambda_consistency": BY_METHOD,
    "perturbation": BY_METHOD,
    "max_steps": "none",
    "use_cpu": "if there is none",
    "corruptions": "auto: cifar up to 64 pixels of the model's input, imagenet above",
    "output_dir": "runs/DATASET-MODEL-METHOD, here {value}",
    "hub_model_id": "your user name and the name of output_dir",
}


def common_help(argv: list[str]) -> str:
    """The common arguments in groups, with the defaults that the other words of the command line lead to."""
    parser, _ = make_parser(argv)
    helps = {each.name: each.metadata.get("help", "") for cls in CLASSES for each in fields(cls)}
    width = min(shutil.get_terminal_size().columns, WIDEST)
    lines = [f"usage: {USAGE}", "", DESCRIPTION]
    for title, names in COMMON.items():
        lines.append(f"{title}:")
        for name in names:
            text = with_flags(MEANINGS.get(name) or helps[name].partition(". ")[0].rstrip("."), ARGUMENTS)
            lines += textwrap.wrap(
                text + _default(name, parser.get_default(name)),
                width,
                initial_indent=f"  --{name:<29} ",
                subsequent_indent=" " * 34,
                break_long_words=False,
                break_on_hyphens=False,
            )
        lines.append("")
    lines.append("--help-all lists all arguments, with those of transformers' TrainingArguments.")
    return "\n".join(lines)


def _default(name: str, value: Any) -> str:
    if name in DEFAULTS:
        return f" (default: {DEFAULTS[name].format(value=value)})"
    return "" if value is None or value is False else f" (default: {value})"


def full_help(argv: list[str]) -> str:
    """All arguments, as argparse prints them."""
    parser, _ = make_parser(argv)
    return parser.format_help()
