"""`macs-hf export MODEL --output_dir D`: ONNX files of any image classifier, checked, quantised and measured."""

import argparse
import shlex

from ..disk.public_names import public_words
from ..disk.secrets import refuse_secrets
from .errors import plain_errors
from .measuring_options import positive


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf export", vars(options)):
        refuse_secrets(vars(options))
        from ..hub.deadlines import limit_waiting
        from .exporting import export

        limit_waiting()
        export(options, command=shlex.join(["macs-hf", "export", *public_words(argv)]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf export",
        description="Write a classifier as ONNX, in float32 and, with --int8, quantised; check the files against the "
        "model and, with --dataset, measure their accuracy and calibration. Needs pip install 'macs-hf[onnx]'.",
    )
    parser.add_argument("model", metavar="MODEL", help="Hub id, timm name or local folder")
    parser.add_argument("--output_dir", required=True, help="a new or empty folder, or an earlier export")
    parser.add_argument("--int8", action="store_true", help="write an int8 file too; needs --dataset")
    parser.add_argument("--dataset", help="benchmark name, Hub id or local folder to measure on")
    parser.add_argument("--dataset_config", help="configuration of a Hub dataset")
    parser.add_argument("--split", help="split to measure on (default: test)")
    parser.add_argument(
        "--calibration_split",
        help="split that sets the ranges of the int8 file and fits its temperature (default: validation, or a tenth "
        "of train)",
    )
    parser.add_argument("--image_column", help="needed if there are several image columns")
    parser.add_argument("--label_column", help="needed if there are several class labels")
    parser.add_argument("--max_samples", type=positive, help="at most so many images of each split (default: all)")
    parser.add_argument("--model_revision", help="branch, tag or commit of the model")
    parser.add_argument(
        "--image_size", type=positive, help="pixels, if the model was trained at another size than its config says"
    )
    parser.add_argument("--skip_bad_images", action="store_true", help="leave out images that cannot be read")
    parser.add_argument("--batch_size", type=positive, default=64, help="images in a forward pass (default: 64)")
    return parser
