"""`macs-hf evaluate MODEL --dataset D`: measure any Hub or local image classifier, without training."""

import argparse
import shlex

from ..disk.names import public_words
from ..disk.secrets import refuse_secrets
from .errors import plain_errors
from .measuring_options import measuring_parser


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf evaluate", vars(options)):
        refuse_secrets(vars(options))
        from ..hub.patience import limit_waiting
        from .measuring import evaluate

        limit_waiting()
        evaluate(options, command=shlex.join(["macs-hf", "evaluate", *public_words(argv)]))
    return 0


def _parser() -> argparse.ArgumentParser:
    return measuring_parser(
        "evaluate", "Measure accuracy, calibration and margins and, with --corruptions, accuracy under corruption."
    )
