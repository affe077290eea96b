"""The options that `evaluate` and `calibrate` share."""

import argparse


# If a measurement is stopped.
AGAIN = "The same command starts at the beginning."


def measuring_parser(action: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"macs-hf {action}", description=description)
    parser.add_argument("model", metavar="MODEL", help="Hub id, timm name or local folder")
    parser.add_argument("--dataset", required=True, help="benchmark name, Hub id or local folder")
    parser.add_argument("--dataset_config", help="configuration of a Hub dataset")
    parser.add_argument("--split", help="split to measure on (default: test)")
    parser.add_argument("--max_samples", type=positive, help="at most so many images of a split (default: all)")
    parser.add_argument("--image_column", help="needed if there are several image columns")
    parser.add_argument("--label_column", help="needed if there are several class labels")
    parser.add_argument("--group_column", help="column to group test images by, such as a camera or a site")
    parser.add_argument("--ood_dataset", help="images that belong to none of the model's classes, from this dataset")
    parser.add_argument("--ood_split", help="its split (default: test)")
    parser.add_argument("--model_revision", help="branch, tag or commit of the model")
    parser.add_argument(
        "--image_size", type=positive, help="pixels, if the model was trained at another size than its config says"
    )
    parser.add_argument("--corruptions", choices=("auto", "cifar", "imagenet"), help="parameter set of the benchmark")
    parser.add_argument(
        "--corruption_design",
        choices=("auto", "crossed", "spread"),
        default="auto",
        help="every image under all corruptions, or each under one (default: spread from 1,900 images on)",
    )
    parser.add_argument("--corruption_samples", type=positive, help="size of a fixed subset for it (default: all)")
    parser.add_argument(
        "--gallery", type=positive, metavar="N", help="write mistakes.png, the N most confident wrong test images"
    )
    parser.add_argument("--skip_bad_images", action="store_true", help="leave out images that cannot be read")
    parser.add_argument("--batch_size", type=positive, default=64, help="images in a forward pass (default: 64)")
    parser.add_argument(
        "--cache_bytes", type=int, default=2_000_000_000, help="memory for decoded images (default: 2 GB; 0: none)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use accelerators")
    parser.add_argument("--output_dir", help=f"where the results go (default: runs/OWNER-MODEL-DATASET-{action})")
    parser.add_argument("--quiet", action="store_true", help="print warnings and errors only")
    parser.add_argument(
        "--verbose", action="store_true", help="print what other libraries print too, as lines without a bar"
    )
    return parser


def positive(text: str) -> int:
    """A whole number of at least 1, as the type of an option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number
