"""`macs-hf calibrate MODEL --dataset D`: give any image classifier a temperature, measure it, save it and push it."""

import argparse

from .measuring_options import measuring_parser, run_measuring


def main(argv: list[str]) -> int:
    return run_measuring("calibrate", _parser(), argv)


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
    parser.add_argument(
        "--create_pr",
        action="store_true",
        help="offer the calibrated head as a pull request, to the repository of --push_to_hub or else to MODEL itself",
    )
    parser.add_argument(
        "--private", action="store_true", default=None, help="make the repository of --push_to_hub private"
    )
    return parser
