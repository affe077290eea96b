"""`macs-hf calibrate MODEL --dataset D`: give any image classifier a temperature, measure it, save it and push it."""

import argparse
import shlex

from ..disk.names import public_words
from ..disk.secrets import refuse_secrets
from .errors import plain_errors
from .measuring_options import measuring_parser


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf calibrate", vars(options)):
        refuse_secrets(vars(options))
        from ..hub.patience import limit_waiting
        from .measuring import calibrate

        limit_waiting()
        calibrate(options, command=shlex.join(["macs-hf", "calibrate", *public_words(argv)]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = measuring_parser(
        "calibrate", "Fit a temperature on held-out data, fold it into the head, save the model and measure it."
    )
    parser.add_argument(
        "--calibration_split", help="split to fit the temperature on (default: validation, or a tenth of train)"
    )
    parser.add_argument(
        "--publish_gallery", action="store_true", help="show mistakes.png in the card, and push it with the model"
    )
    parser.add_argument("--push_to_hub", metavar="REPO", help="push the calibrated model there")
    parser.add_argument("--private", action="store_true", default=None, help="make that repository private")
    return parser
