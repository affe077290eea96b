"""`macs-hf verify MODEL`: measure a published model again, and compare with the numbers that it came with."""

import argparse

from ..disk.secrets import refuse_secrets
from .errors import plain_errors
from .measuring_options import positive


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf verify", vars(options)):
        refuse_secrets(vars(options))
        from ..evaluation.verification import verify_model
        from ..hub.deadlines import limit_waiting

        limit_waiting()
        found = verify_model(
            options.model,
            revision=options.model_revision,
            dataset=options.dataset,
            corruptions=not options.skip_corruptions,
            batch_size=options.batch_size,
            use_cpu=options.cpu,
            config=options.dataset_config,
            test_split=options.split,
            image_column=options.image_column,
            label_column=options.label_column,
        )
        print(f"{options.model} on {found.dataset}, {found.report.split} (n = {found.report.n})\n")
        width = max(len(check.name) for check in found.checks)
        print(f"{'':<{width}}  {'published':>30}  {'measured now':>12}")
        for check in found.checks:
            stated = check.published
            interval = f"{stated.value:.4f} [{stated.low:.4f}, {stated.high:.4f}]"
            outcome = ("same" if check.same else "within its interval") if check.holds else "OUTSIDE"
            print(f"{check.name:<{width}}  {interval:>30}  {check.measured.value:>12.4f}  {outcome}")
        right = sum(check.holds for check in found.checks)
        same = sum(check.holds and check.same for check in found.checks)
        print(f"\n{right} of {len(found.checks)} numbers come out within their intervals, {same} as published")
    return 0 if found.holds else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf verify",
        description="Measure a published model again on the data that its report names, and say for each number "
        "whether it comes out within its interval. Exit code 1 if one does not.",
    )
    parser.add_argument("model", metavar="MODEL", help="Hub id or local folder of a model with evaluation.json")
    parser.add_argument("--model_revision", help="branch, tag or commit of the model")
    parser.add_argument("--dataset", help="where the same data are, if not where the report says")
    parser.add_argument("--dataset_config", help="configuration of a Hub dataset, if the report does not say")
    parser.add_argument("--split", help="split to measure on, if it is called otherwise there")
    parser.add_argument("--image_column", help="needed if there are several image columns")
    parser.add_argument("--label_column", help="needed if there are several class labels")
    parser.add_argument("--skip_corruptions", action="store_true", help="leave out accuracy under corruption")
    parser.add_argument("--batch_size", type=positive, default=64, help="images in a forward pass (default: 64)")
    parser.add_argument("--cpu", action="store_true", help="do not use accelerators")
    return parser
