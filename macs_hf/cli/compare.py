"""`macs-hf compare A B`: two runs on the same test images, image by image."""

import argparse

from .errors import plain_errors


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf compare"):
        from ..evaluation.comparison import comparison_table
        from ..report.run import load_run

        print(comparison_table(load_run(options.a), load_run(options.b)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf compare",
        description="Compare two runs on the same test images: differences with paired 95 % intervals.",
    )
    parser.add_argument("a", metavar="A", help="folder of a run, or its report")
    parser.add_argument("b", metavar="B", help="another one")
    return parser
