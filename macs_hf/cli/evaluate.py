"""`macs-hf evaluate MODEL --dataset D`: measure any Hub or local image classifier, without training."""

from .measuring_options import measuring_parser, run_measuring


def main(argv: list[str]) -> int:
    parser = measuring_parser(
        "evaluate", "Measure accuracy, calibration and margins and, with --corruptions, accuracy under corruption."
    )
    return run_measuring("evaluate", parser, argv)
