"""From bytes or a file to an RGB image, and datasets without the images for which that fails."""

import io
import os
import stat
from typing import Any

import datasets
from PIL import ExifTags, Image, ImageOps
from transformers.utils import logging


logger = logging.get_logger(__name__)


def decode(stored: Any) -> Image.Image:
    """An RGB image from a PIL image or from the bytes or path that `datasets.Image(decode=False)` keeps."""
    return to_rgb(open_stored(stored))


def open_stored(stored: Any) -> Image.Image:
    """The image, of which only the header has been read unless it is a PIL image already."""
    if stored is None:
        raise ValueError("there is none")
    if not isinstance(stored, dict):
        return stored
    if stored["bytes"] is not None:
        return Image.open(io.BytesIO(stored["bytes"]))
    if not stat.S_ISREG(os.stat(stored["path"]).st_mode):
        raise ValueError("it is no file")  # a pipe would be waited for
    return Image.open(stored["path"])


def to_rgb(image: Image.Image) -> Image.Image:
    """The image decoded, upright, in eight bits of red, green and blue."""
    if image.mode == "F" or (image.mode == "I" and image.format != "PNG"):
        raise ValueError(f"a {image.mode!r} image has 32 bits a pixel, and nothing says which value is white")
    if _orientation(image) != 1:  # exif_transpose copies even where there is nothing to turn
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        # 16 bits a pixel, which PIL would clip at 255.
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.mode != "RGB":
        return image.convert("RGB")
    image.load()
    return image


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of what `to_rgb` gives."""
    width, height = image.size
    return (height, width) if _orientation(image) >= 5 else (width, height)


def is_readable(stored: Any) -> bool:
    try:
        decode(stored)
    except Exception:
        # Broken files make decoders raise nearly anything; `ImageDataset` refuses whatever is refused here.
        return False
    return True


def undecoded(dataset: datasets.Dataset, image_column: str) -> datasets.Dataset:
    """The dataset with images as bytes, so that a broken one can be named by its index."""
    return dataset.cast_column(image_column, datasets.Image(decode=False))


def drop_unreadable(dataset: datasets.Dataset, image_column: str, split: str) -> datasets.Dataset:
    """The rows whose image can be decoded; one pass, which `datasets` caches."""
    kept = undecoded(dataset, image_column).filter(
        is_readable, input_columns=[image_column], desc=f"Looking for unreadable images in {split}"
    )
    dropped = len(dataset) - len(kept)
    logger.warning(f"{split}: dropped {dropped} of {len(dataset)} images that cannot be read.")
    return kept.cast_column(image_column, dataset.features[image_column])


def _orientation(image: Image.Image) -> int:
    return image.getexif().get(ExifTags.Base.Orientation, 1)
