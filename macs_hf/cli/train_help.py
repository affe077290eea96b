"""The help of `macs-hf train`: the thirty arguments that people use, or all of them."""

import shutil
import textwrap
from dataclasses import fields

from .train_arguments import CLASSES, USAGE, make_parser


DESCRIPTION = """\
Train an image classifier with Margin and Consistency Supervision, calibrate it, measure it, and push it.

  macs-hf train                                      embedded data, a small network, no download
  macs-hf train --dataset cifar10 --model resnet50   Hub ids, short names and local folders
  macs-hf train settings.yaml --learning_rate 1e-3   JSON or YAML, flags win
  accelerate launch --num_processes 8 -m macs_hf.cli.train ...    one process per GPU
  macs-hf train ... --push_to_hub --hub_model_id user/name        after `hf auth login`
  macs-hf train --streaming --max_steps 100000 ...   training images that do not fit on disk
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
}


def common_help(argv: list[str]) -> str:
    """The common arguments in groups, with the defaults that the other words of the command line lead to."""
    parser, _ = make_parser(argv)
    helps = {each.name: each.metadata.get("help", "") for cls in CLASSES for each in fields(cls)}
    width = min(shutil.get_terminal_size().columns, 100)
    lines = [f"usage: {USAGE}", "", DESCRIPTION]
    for title, names in COMMON.items():
        lines.append(f"{title}:")
        for name in names:
            first_sentence = helps[name].partition(". ")[0].rstrip(".")
            default = parser.get_default(name)
            text = first_sentence + ("" if default is None or default is False else f" (default: {default})")
            lines += textwrap.wrap(
                text, width, initial_indent=f"  --{name:<29} ", subsequent_indent=" " * 34, break_long_words=False
            )
        lines.append("")
    lines.append("--help-all lists all arguments: every one of transformers' TrainingArguments is among them.")
    return "\n".join(lines)


def full_help(argv: list[str]) -> str:
    """All arguments, as argparse prints them."""
    parser, _ = make_parser(argv)
    return parser.format_help()
