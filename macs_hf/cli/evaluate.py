"""`macs-hf evaluate MODEL --dataset D`: measure any Hub or local image classifier, without training."""

import argparse
import shlex

from ..disk.public_names import public_words
from ..disk.secrets import refuse_secrets
from .errors import ends_on_signals, plain_errors
from .measuring_options import AGAIN, measuring_parser


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf evaluate", vars(options)):
        refuse_secrets(vars(options))
        from ..hub.deadlines import limit_waiting
        from .library_output import screen_of
        from .measuring import evaluate

        limit_waiting()
        command = shlex.join(["macs-hf", "evaluate", *public_words(argv)])
        with ends_on_signals("macs-hf evaluate", lambda: AGAIN), screen_of(options.quiet, options.verbose) as screen:
            evaluate(options, command, screen)
    return 0


def _parser() -> argparse.ArgumentParser:
    return measuring_parser(
        "evaluate", "Measure accuracy, calibration and margins and, with --corruptions, accuracy under corruption."
    )
