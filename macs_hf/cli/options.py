"""The texts of options, and the parsers of `evaluate`, `calibrate`, `verify` and `export`; help loads no library."""

import argparse


def positive(text: str) -> int:
    """A whole number of at least 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


# What is said of an option, whichever command has it.
TEXTS = {
    "dataset": "embedded handwritten digits (`digits`, or `few_digits` to train on few), a benchmark (cifar10, "
    "cifar100, svhn, oxford_pets, food101, flowers102), a Hub id or a local folder",
    "dataset_config": "configuration of a Hub dataset",
    "image_column": "needed if there are several image columns",
    "label_column": "needed if there are several class labels",
    "train_split": "split to train on (default: train)",
    "calibration_split": "split that fits the temperature (default: validation, or a tenth of train)",
    "split": "split to measure on (default: test; where training finds none, a tenth of train)",
    "group_column": "column to group test images by, such as a camera or a site",
    "ood_dataset": "dataset of images that belong to none of the model's classes, to test with",
    "ood_split": "split of --ood_dataset (default: test)",
    "model": "`tiny` and `small` (32 pixels) or `medium` (64 pixels) from scratch; a backbone such as resnet50, a "
    "timm or Hub id, a folder",
    "model_revision": "branch, tag or commit of the model",
    "image_size": "height and width of the input, in pixels (default: what the model was trained with)",
    "channels_last": "keep convolutions in channels-last memory: faster on most devices",
    "data_fraction": "class-balanced share of the training set",
    "max_train_samples": "maximum number of training images",
    "skip_bad_images": "leave out images that cannot be read",
    "streaming": "read training images when they are needed; needs --max_steps",
    "cache_bytes": "memory for decoded images (default: 2 GB; 0: none)",
    "shuffle_buffer": "with --streaming: images each worker chooses from",
    "max_samples": "maximum number of images per split (default: all)",
    "max_eval_samples": "maximum number of validation and of test images (default: all; 5,000 with --streaming)",
    "max_calibration_samples": "maximum number of validation images, which fit the temperature (default: all)",
    "force_temperature": "use the temperature that fits best even where held-out images that did not fit it gain "
    "nothing from it",
    "horizontal_flip": "mirror at random (default: not for digits)",
    "corruptions": "parameters of the benchmark of 19 corruptions: cifar, imagenet or, in training, none; auto: cifar "
    "up to 64 pixels of the model's input, imagenet above",
    "corruption_samples": "corrupt at most this many test images (default: all)",
    "corruption_design": "crossed: corrupt every image in all ways; spread: each image in one way, for tighter "
    "intervals at the same cost (default: auto, which is spread for 1,900 images or more)",
    "gallery": "write mistakes.png with this many of the most confident wrong test images",
    "publish_gallery": "show mistakes.png in the card, and push it with the model",
    "license": "licence of the model (default: that of its base)",
    "allow_inexact_resume": "continue also with another recipe, number of processes or of images, with a warning that "
    "names what is not exact; never with another dataset, model or objective",
    "batch_size": "images in a forward pass (default: 64)",
    "cpu": "do not use accelerators",
    "quiet": "print warnings and errors only",
    "verbose": "print what other libraries print too, as lines without a bar",
}
# Those without a value, those that must be at least 1, and what argparse gets for the commands here.
FLAGS = ("skip_bad_images", "force_temperature", "publish_gallery", "cpu", "quiet", "verbose")
COUNTS = ("max_samples", "max_train_samples", "max_eval_samples", "max_calibration_samples", "corruption_samples")
COUNTS += ("image_size", "shuffle_buffer", "gallery", "batch_size")
KINDS = {
    **{name: {"action": "store_true"} for name in FLAGS},
    **{name: {"type": positive, "metavar": "N"} for name in COUNTS},
    "corruptions": {"choices": ("auto", "cifar", "imagenet")},
    "corruption_design": {"choices": ("auto", "crossed", "spread"), "default": "auto"},
    "batch_size": {"type": positive, "metavar": "N", "default": 64},
    "cache_bytes": {"type": int, "default": 2_000_000_000, "metavar": "BYTES"},
}


def add_options(parser: argparse.ArgumentParser, *names: str, **different: dict) -> None:
    """Options of the table, and those of which this command wants something different."""
    for name in (*names, *different):
        parser.add_argument(f"--{name}", **{"help": TEXTS[name], **KINDS.get(name, {}), **different.get(name, {})})


# What follows the name of a command, and what it does.
COMMANDS = {
    "evaluate": (
        "MODEL --dataset DATASET [OPTIONS]",
        "Measure accuracy, calibration and margins and, with --corruptions, accuracy under corruption.",
    ),
    "calibrate": (
        "MODEL --dataset DATASET [OPTIONS]",
        "Fit a temperature on held-out data, fold it into the head, save the model and measure it.",
    ),
    "verify": (
        "MODEL [OPTIONS]",
        "Measure a published model again on the data that its evaluation.json names, and say for each number whether "
        "it comes out within its interval. Exit code 1 if one does not.",
    ),
    "export": (
        "MODEL --output_dir FOLDER [OPTIONS]",
        "Write a classifier as ONNX, in float32 and, with --int8, quantised; check the files against the model and, "
        "with --dataset, measure their accuracy and calibration. Needs pip install onnx onnxruntime onnxscript.",
    ),
}


def parser_of(action: str) -> argparse.ArgumentParser:
    """The parser of `macs-hf ACTION`."""
    usage, description = COMMANDS[action]
    program = f"macs-hf {action}"
    parser = argparse.ArgumentParser(prog=program, usage=f"{program} {usage}", description=description)
    {"evaluate": _evaluate, "calibrate": _calibrate, "verify": _verify, "export": _export}[action](parser)
    return parser


def _evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="Hub id, timm name or local folder")
    add_options(parser, dataset={"required": True})
    add_options(parser, "dataset_config", "split", "max_samples", "image_column", "label_column", "group_column")
    add_options(parser, "ood_dataset", "ood_split", "model_revision", "image_size")
    add_options(parser, "corruptions", "corruption_design", "corruption_samples", "gallery")
    add_options(parser, "skip_bad_images", "batch_size", "cache_bytes", "cpu")
    parser.add_argument("--output_dir", help="where the results go (default: runs/OWNER-MODEL-DATASET-COMMAND)")
    add_options(parser, "quiet", "verbose")


def _calibrate(parser: argparse.ArgumentParser) -> None:
    _evaluate(parser)
    split = "split that fits the temperature (default: validation, half of a folder, or a tenth of train)"
    add_options(parser, "force_temperature", "publish_gallery", calibration_split={"help": split})
    parser.add_argument("--push_to_hub", metavar="REPO", help="push the calibrated model there")
    parser.add_argument(
        "--create_pr",
        action="store_true",
        help="offer the calibrated head as a pull request, to the repository of --push_to_hub or else to MODEL itself",
    )
    parser.add_argument(
        "--private", action="store_true", default=None, help="make the repository of --push_to_hub private"
    )


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="Hub id or local folder of a model with evaluation.json")
    add_options(
        parser,
        "model_revision",
        dataset={"help": "where to read the same data, if not from where the report says"},
        dataset_config={"help": "configuration of a Hub dataset, if not the one in the report"},
        split={"help": "split to measure on, if it has another name there"},
    )
    add_options(parser, "image_column", "label_column")
    parser.add_argument("--skip_corruptions", action="store_true", help="leave out accuracy under corruption")
    add_options(parser, "batch_size", "cpu")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="Hub id, timm name or local folder")
    parser.add_argument(
        "--output_dir", required=True, help="a new or empty folder, or an earlier export of the same model"
    )
    parser.add_argument(
        "--int8",
        action="store_true",
        help="write an int8 file too, its ranges set on --calibration_split; needs --dataset",
    )
    add_options(parser, "dataset", "dataset_config", "split", "calibration_split", "image_column", "label_column")
    add_options(parser, "max_samples", "model_revision", "image_size", "skip_bad_images", "batch_size")
