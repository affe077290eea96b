"""`evaluate` and `calibrate`: the options that they share, and how both run."""

import argparse
import shlex

from ..disk.public_names import public_words
from .command import add_options, positive, running
from .errors import ends_on_signals


# If a measurement is stopped.
AGAIN = "The same command starts at the beginning."


def run_measuring(action: str, parser: argparse.ArgumentParser, argv: list[str]) -> int:
    """Parse the words of `macs-hf evaluate` or `calibrate`, and do it."""
    options = parser.parse_args(argv)
    with running(action, options):
        from . import measuring
        from .library_output import screen_of

        work = {"evaluate": measuring.evaluate, "calibrate": measuring.calibrate}[action]
        command = shlex.join(["macs-hf", action, *public_words(argv)])
        with ends_on_signals(f"macs-hf {action}", lambda: AGAIN), screen_of(options.quiet, options.verbose) as screen:
            work(options, command, screen)
    return 0


def measuring_parser(action: str, description: str) -> argparse.ArgumentParser:
    usage = f"macs-hf {action} MODEL --dataset DATASET [OPTIONS]"
    parser = argparse.ArgumentParser(prog=f"macs-hf {action}", usage=usage, description=description)
    parser.add_argument("model", metavar="MODEL", help="Hub id, timm name or local folder")
    parser.add_argument("--dataset", required=True, help="benchmark name, Hub id or local folder")
    add_options(parser, "dataset_config", "split", "max_samples", "image_column", "label_column")
    parser.add_argument("--group_column", help="column to group test images by, such as a camera or a site")
    parser.add_argument("--ood_dataset", help="images that belong to none of the model's classes, from this dataset")
    parser.add_argument("--ood_split", help="split of --ood_dataset (default: test)")
    add_options(parser, "model_revision", "image_size")
    parser.add_argument(
        "--corruptions",
        choices=("auto", "cifar", "imagenet"),
        help="measure accuracy under 19 corruptions too, with these parameters (auto: by the size of the images)",
    )
    parser.add_argument(
        "--corruption_design",
        choices=("auto", "crossed", "spread"),
        default="auto",
        help="crossed: every image under all corruptions; spread: each image under one (default: auto, which spreads "
        "1,900 images or more)",
    )
    parser.add_argument(
        "--corruption_samples", type=positive, metavar="N", help="corrupt at most N test images (default: all)"
    )
    parser.add_argument(
        "--gallery", type=positive, metavar="N", help="write mistakes.png, the N most confident wrong test images"
    )
    add_options(parser, "skip_bad_images", "batch_size")
    parser.add_argument(
        "--cache_bytes", type=int, default=2_000_000_000, help="memory for decoded images (default: 2 GB; 0: none)"
    )
    add_options(parser, "cpu")
    parser.add_argument("--output_dir", help=f"where the results go (default: runs/OWNER-MODEL-DATASET-{action})")
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only")
    parser.add_argument(
        "--verbose", action="store_true", help="print what other libraries print too, as lines without a bar"
    )
    return parser
