"""`macs-hf export MODEL --output_dir D`: ONNX files of any image classifier, checked, quantised and measured."""

import argparse
import shlex

from ..report.run_folder import public_words
from .errors import ends_on_signals, running
from .measure import add_options


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with running("export", options):
        from .measuring import export
        from .output import screen_of

        advice = "Nothing was written. The same command starts at the beginning."
        command = shlex.join(["macs-hf", "export", *public_words(argv)])
        with ends_on_signals("macs-hf export", lambda: advice), screen_of(quiet=False, verbose=False) as screen:
            export(options, command, screen)
    return 0


def _parser() -> argparse.ArgumentParser:
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
