"""The options of `evaluate`, `calibrate`, `verify` and `export`; apart from their work, so help loads no library."""

import argparse


def parser_of(action: str) -> argparse.ArgumentParser:
    """The parser of `macs-hf ACTION`."""
    return {"evaluate": _evaluate, "calibrate": _calibrate, "verify": _verify, "export": _export}[action]()


def _evaluate() -> argparse.ArgumentParser:
    return _measuring(
        "evaluate", "Measure accuracy, calibration and margins and, with --corruptions, accuracy under corruption."
    )


def _calibrate() -> argparse.ArgumentParser:
    parser = _measuring(
        "calibrate", "Fit a temperature on held-out data, fold it into the head, save the model and measure it."
    )
    parser.add_argument(
        "--calibration_split",
        help="split to fit the temperature on (default: validation, half of a folder, or a tenth of train)",
    )
    parser.add_argument(
        "--force_temperature",
        action="store_true",
        help="use the temperature that fits best even where held-out images that did not fit it gain nothing from it",
    )
    parser.add_argument(
        "--publish_gallery", action="store_true", help="show mistakes.png in the card, and push it with the model"
    )
    parser.add_argument("--push_to_hub", metavar="REPO", help="push the calibrated model there")
    parser.add_argument(
        "--create_pr",
        action="store_true",
        help="offer the calibrated head as a pull request, to the repository of --push_to_hub or else to MODEL itself",
    )
    parser.add_argument(
        "--private", action="store_true", default=None, help="make the repository of --push_to_hub private"
    )
    return parser


def _verify() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf verify",
        usage="macs-hf verify MODEL [OPTIONS]",
        description="Measure a published model again on the data that its report names, and say for each number "
        "whether it comes out within its interval. Exit code 1 if one does not.",
    )
    parser.add_argument("model", metavar="MODEL", help="Hub id or local folder of a model with evaluation.json")
    add_options(parser, "model_revision")
    parser.add_argument("--dataset", help="where to read the same data, if not from where the report says")
    parser.add_argument("--dataset_config", help="configuration of a Hub dataset, if not the one in the report")
    parser.add_argument("--split", help="split to measure on, if it has another name there")
    add_options(parser, "image_column", "label_column")
    parser.add_argument("--skip_corruptions", action="store_true", help="leave out accuracy under corruption")
    add_options(parser, "batch_size", "cpu")
    return parser


def _export() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf export",
        usage="macs-hf export MODEL --output_dir FOLDER [OPTIONS]",
        description="Write a classifier as ONNX, in float32 and, with --int8, quantised; check the files against the "
        "model and, with --dataset, measure their accuracy and calibration. Needs pip install onnx "
        "onnxruntime onnxscript.",
    )
    parser.add_argument("model", metavar="MODEL", help="Hub id, timm name or local folder")
    parser.add_argument(
        "--output_dir", required=True, help="a new or empty folder, or an earlier export of the same model"
    )
    parser.add_argument("--int8", action="store_true", help="write an int8 file too; needs --dataset")
    parser.add_argument("--dataset", help="benchmark name, Hub id or local folder to measure on")
    add_options(parser, "dataset_config", "split")
    parser.add_argument(
        "--calibration_split",
        help="split that sets the ranges of the int8 file and fits its temperature (default: validation, or a tenth "
        "of train)",
    )
    add_options(parser, "image_column", "label_column", "max_samples", "model_revision", "image_size")
    add_options(parser, "skip_bad_images", "batch_size")
    return parser


def _measuring(action: str, description: str) -> argparse.ArgumentParser:
    """The options that `evaluate` and `calibrate` share."""
    usage = f"macs-hf {action} MODEL --dataset DATASET [OPTIONS]"
    parser = argparse.ArgumentParser(prog=f"macs-hf {action}", usage=usage, description=description)
    parser.add_argument("model", metavar="MODEL", help="Hub id, timm name or local folder")
    parser.add_argument("--dataset", required=True, help="benchmark name, Hub id or local folder")
    add_options(parser, "dataset_config", "split", "max_samples", "image_column", "label_column")
    parser.add_argument("--group_column", help="column to group test images by, such as a camera or a site")
    parser.add_argument("--ood_dataset", help="images that belong to none of the model's classes, from this dataset")
    parser.add_argument("--ood_split", help="split of --ood_dataset (default: test)")
    add_options(parser, "model_revision", "image_size")
    parser.add_argument(
        "--corruptions",
        choices=("auto", "cifar", "imagenet"),
        help="measure accuracy under 19 corruptions too, with these parameters (auto: by the size of the images)",
    )
    parser.add_argument(
        "--corruption_design",
        choices=("auto", "crossed", "spread"),
        default="auto",
        help="crossed: corrupt every image in all ways; spread: each image in one way, for tighter intervals at the "
        "same cost (default: auto, which is spread for 1,900 images or more)",
    )
    parser.add_argument(
        "--corruption_samples", type=positive, metavar="N", help="corrupt at most N test images (default: all)"
    )
    parser.add_argument(
        "--gallery", type=positive, metavar="N", help="write mistakes.png, the N most confident wrong test images"
    )
    add_options(parser, "skip_bad_images", "batch_size")
    parser.add_argument(
        "--cache_bytes", type=int, default=2_000_000_000, help="memory for decoded images (default: 2 GB; 0: none)"
    )
    add_options(parser, "cpu")
    parser.add_argument("--output_dir", help=f"where the results go (default: runs/OWNER-MODEL-DATASET-{action})")
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only")
    parser.add_argument(
        "--verbose", action="store_true", help="print what other libraries print too, as lines without a bar"
    )
    return parser


def positive(text: str) -> int:
    """A whole number of at least 1, as the type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


OPTIONS = {
    "dataset_config": {"help": "configuration of a Hub dataset"},
    "split": {"help": "split to measure on (default: test)"},
    "image_column": {"help": "needed if there are several image columns"},
    "label_column": {"help": "needed if there are several class labels"},
    "model_revision": {"help": "branch, tag or commit of the model"},
    "max_samples": {"type": positive, "help": "maximum number of images per split (default: all)"},
    "image_size": {"type": positive, "help": "pixels, if the model was trained at another size than its config says"},
    "skip_bad_images": {"action": "store_true", "help": "leave out images that cannot be read"},
    "batch_size": {"type": positive, "default": 64, "help": "images in a forward pass (default: 64)"},
    "cpu": {"action": "store_true", "help": "do not use accelerators"},
}


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(f"--{name}", **OPTIONS[name])
