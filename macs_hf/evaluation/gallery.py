"""The test images that a model is wrong about and most sure of, as one picture."""

from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms.v2.functional import to_pil_image

from ..data.images import ImageDataset
from ..pixels import PixelStats
from ..plots.gallery import plot_gallery
from ..report.rows import SampleRows
from ..report.run import GALLERY


LONGEST_NAME = 26


def confident_mistakes(rows: SampleRows, count: int) -> np.ndarray:
    """The rows of the `count` wrong predictions with the highest confidence, the most confident first."""
    wrong = np.flatnonzero(~rows.correct)
    return wrong[np.argsort(-rows.confidence[wrong], kind="stable")[:count]]


def write_gallery(
    test: Dataset,
    rows: SampleRows,
    class_names: tuple[str, ...],
    folder: str | Path,
    count: int,
    pixel_stats: PixelStats | None = None,
) -> Path | None:
    """
    Write `mistakes.png`: the most confident wrong predictions with their true class.

    The picture shows test images: it is pushed to the Hub, and shown by the card, only on request.

    Args:
        test (`Dataset`): The test images.
        rows ([`SampleRows`]): What the published model made of them.
        class_names (`tuple[str, ...]`): One for each class.
        folder (`str` or `Path`): The run's folder.
        count (`int`): At most this many images.
        pixel_stats ([`PixelStats`], *optional*): How images were normalised, where `test` holds no original ones.

    Returns:
        `Path`, or `None` if no prediction was wrong.
    """
    chosen = confident_mistakes(rows, count)
    path = Path(folder) / GALLERY
    path.unlink(missing_ok=True)
    if not len(chosen):
        return None
    images = [_image(test, int(place), pixel_stats) for place in chosen]
    captions = [_caption(rows, int(place), class_names) for place in chosen]
    wrong = int((~rows.correct).sum())
    title = f"the {len(chosen)} most confident of {wrong:,} mistakes on {len(rows):,} test images"
    plot_gallery(images, captions, title).savefig(path)
    return path


def _image(test: Dataset, place: int, pixel_stats: PixelStats | None) -> Image.Image:
    if isinstance(test, ImageDataset):
        return test.image(place)
    values = test[place]["pixel_values"].float()
    if pixel_stats is not None:
        return to_pil_image(pixel_stats.to_pixels(values))
    low, high = values.min(), values.max()
    return to_pil_image((values - low) / (high - low).clamp(min=1e-12))


def _caption(rows: SampleRows, place: int, class_names: tuple[str, ...]) -> str:
    truth, answer = (class_names[int(column[place])] for column in (rows.label, rows.prediction))
    position = place if rows.index is None else int(rows.index[place])
    name = f"image {position}" if rows.name is None else str(rows.name[place])
    lines = (f"predicted {answer}", f"with {100 * rows.confidence[place]:.1f} %", f"true {truth}", name)
    return "\n".join(line if len(line) <= LONGEST_NAME else f"…{line[1 - LONGEST_NAME :]}" for line in lines)
