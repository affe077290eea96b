"""`macs-hf verify MODEL`: measure a published model again, and compare with the numbers that it came with."""

import argparse

from ..disk.terminal_text import printable
from .command import add_options, running
from .errors import ends_on_signals
from .measuring_options import AGAIN


PUBLISHED = 26  # columns, for an interval of negative numbers


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with running("verify", options), ends_on_signals("macs-hf verify", lambda: AGAIN):
        from ..evaluation.verification import verify_model
        from ..report.interval import interval_text
        from .library_output import bars_of_datasets, screen_of

        with screen_of(quiet=False, verbose=False) as screen, bars_of_datasets(screen.draws):
            found = verify_model(
                options.model,
                revision=options.model_revision,
                dataset=options.dataset,
                corruptions=not options.skip_corruptions,
                batch_size=options.batch_size,
                use_cpu=options.cpu,
                screen=screen,
                config=options.dataset_config,
                test_split=options.split,
                image_column=options.image_column,
                label_column=options.label_column,
            )
        print(printable(f"\n{options.model} on {found.dataset}, {found.report.split} (n = {found.report.n})\n"))
        width = max(len(check.name) for check in found.checks)
        print(f"{'':<{width}}  {'published':>{PUBLISHED}}  {'now':>7}")
        for check in found.checks:
            stated = interval_text(check.published)
            outcome = ("same" if check.same else "within") if check.holds else "OUTSIDE"
            print(f"{check.name:<{width}}  {stated:>{PUBLISHED}}  {check.measured.value:>7.4f}  {outcome}")
        right = sum(check.holds for check in found.checks)
        same = sum(check.holds and check.same for check in found.checks)
        print(f"\n{right} of {len(found.checks)} numbers come out within their intervals, {same} as published")
    return 0 if found.holds else 1


def _parser() -> argparse.ArgumentParser:
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
