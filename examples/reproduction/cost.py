"""What a cell costs, from the assumptions a grid states.

    seconds = steps * max(batch * views / rate, batch / loader, launch) + evaluation + start
    rate    = training images per second at 224 pixels * (224 / size)^2

`loader` is how many images per second the workers prepare, `launch` the shortest possible step (small images leave a
GPU waiting for its next kernel). Evaluation is forward passes, three times as fast as training: the test set, the
noise draws of the sensitivity estimate, and corrupted copies, which also have to be made: 95 of each image, or 5 if
each is seen under one corruption.
"""

from collections.abc import Iterable
from typing import Any

from .grid import DEFAULTS, METHODS, Cell


CORRUPTED_COPIES = 95
SEVERITIES = 5
MARGIN_FORWARDS = 256 * 11


def passes(cell: Cell) -> float:
    """Views per training image: the clean one, the perturbed one, two of AugMix."""
    arguments = DEFAULTS | METHODS[cell.setting.method] | dict(cell.setting.changes)
    views = 1.0
    if arguments["lambda_consistency"] > 0 or arguments["two_view_cross_entropy"]:
        views += arguments["consistency_fraction"]
    if arguments["lambda_jsd"] > 0:
        views += 2
    return views


def seconds(cell: Cell, cost: dict[str, Any]) -> float:
    """Estimated time of one cell on the device that `cost` describes."""
    flags, data = cell.flags, cost["images"][cell.setting.dataset]
    again = cell.trained != cell  # nothing is trained, and clean images are not measured
    size = flags.get("image_size") or 224
    rate = cost["images_per_second"][cell.setting.model] * (224 / size) ** 2
    images = data["train"] * flags.get("data_fraction", 1.0)
    images = min(images, flags.get("max_train_samples") or images)
    batch = flags.get("per_device_train_batch_size", 64)
    steps = images * flags.get("num_train_epochs", 20) / batch
    if flags.get("max_steps"):
        steps = flags["max_steps"]
    step = max(batch * passes(cell) / rate, batch / data["loader"], cost["launch"])
    tested = max((data["test"] + MARGIN_FORWARDS) / (3 * rate), data["test"] / data["loader"])
    if flags.get("corruptions", "auto") != "none":
        images = min(data["test"], flags.get("corruption_samples") or data["test"])
        spread = flags.get("corruption_design", "auto") == "spread"
        corrupted = images * (SEVERITIES if spread else CORRUPTED_COPIES)
        seen = corrupted * (1 / cost["corrupted_per_second"] + 1 / (3 * rate))
        tested = seen if again else tested + seen
    return (0 if again else steps * step) + tested + cost["start"]


def total(cells: Iterable[Cell], cost: dict[str, Any]) -> float:
    return sum(seconds(cell, cost) for cell in cells)


def clock(duration: float) -> str:
    """Seconds as a person would say them."""
    minutes, rest = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
