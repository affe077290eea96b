"""Random crops and flips whose numbers come from the caller, so that an image's key decides what happens to it.

Their distributions are those of torchvision's `RandomCrop`, `RandomResizedCrop` and `RandomHorizontalFlip`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as TF

from .decoding import open_stored, to_rgb, upright_size


# Of RandomResizedCrop: share of the area, width over height, and how often it tries to find a box that fits.
SCALE, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
BOX_NUMBERS = 2 * TRIES + 2
# A JPEG is decoded at a fraction of its size if each side of the crop is then still so many times the one wanted.
REDUCING_GAP = 2.0


class Box(NamedTuple):
    left: int
    top: int
    width: int
    height: int


def to_tensor(image: Image.Image) -> Tensor:
    """`(3, height, width)` uint8 of an RGB image, channels last in memory, which torch resizes fastest."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    return image if image.shape[1:] == size else TF.resize(image, list(size), antialias=True)


def shift_and_flip(images: Tensor, padding: int, numbers: Tensor, flips: Tensor) -> Tensor:
    """
    Each image padded with black and cropped to its old size, at its own place, and mirrored where `flips` says so.

    Args:
        images (`Tensor` of shape `(batch, channels, height, width)`): uint8.
        padding (`int`): Pixels on each side.
        numbers (`Tensor` of shape `(batch, 2)`): Uniform in (0, 1), for the vertical and the horizontal place.
        flips (`Tensor` of shape `(batch,)`): Booleans.
    """
    height, width = images.shape[2:]
    shifts = ((numbers * (2 * padding + 1)).to(torch.int64) - padding).tolist()
    # A copy of a rectangle per image is several times faster than any indexing of the whole batch.
    source, result = images.numpy(), np.zeros(images.shape, np.uint8)
    for old, new, (down, right), flip in zip(source, result, shifts, flips.tolist(), strict=True):
        new = new[:, :, ::-1] if flip else new
        top, left, bottom, end = max(down, 0), max(right, 0), min(down, 0) + height, min(right, 0) + width
        new[:, top - down : bottom - down, left - right : end - right] = old[:, top:bottom, left:end]
    return torch.from_numpy(result)


def flip_some(images: Tensor, flips: Tensor) -> Tensor:
    return torch.where(flips[:, None, None, None], images.flip(-1), images)


def random_box(width: int, height: int, numbers: list[float]) -> Box:
    """The crop that `RandomResizedCrop` draws from an image, given `BOX_NUMBERS` uniform numbers in (0, 1)."""
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    down, right = numbers[-2:]
    for area, ratio in zip(numbers[:-2:2], numbers[1:-2:2], strict=True):
        target = width * height * (SCALE[0] + area * (SCALE[1] - SCALE[0]))
        aspect = math.exp(low + ratio * (high - low))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return Box(int(right * (width - w + 1)), int(down * (height - h + 1)), w, h)
    # An image too long for these boxes: its middle.
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return Box((width - w) // 2, (height - h) // 2, w, h)


def read_random_crop(stored: Any, size: tuple[int, int], numbers: list[float]) -> Tensor:
    """
    A random resized crop of an image, decoded no larger than that needs where its format allows it.

    A JPEG that is decoded at a fraction of its size has its crop at a whole pixel of the smaller image, within a
    quarter of a pixel of the result. Its values then differ about as much as by bilinear resizing in place of bicubic
    (`examples/benchmarks/jpeg_draft.py`).

    Args:
        stored: What `decode` takes.
        size (`tuple[int, int]`): Height and width of the result.
        numbers (`list[float]`): See `random_box`.
    """
    image = open_stored(stored)
    width, height = upright_size(image)
    box = random_box(width, height, numbers)
    smaller = min(box.width / size[1], box.height / size[0]) / REDUCING_GAP
    if smaller >= 2:
        # Only JPEG uses this: libjpeg scales by 1/2, 1/4 or 1/8 while it decodes, to this size or a larger one.
        image.draft(None, (int(image.width / smaller), int(image.height / smaller)))
    pixels = to_tensor(to_rgb(image))
    down, across = pixels.shape[1] / height, pixels.shape[2] / width
    top, left = round(box.top * down), round(box.left * across)
    bottom, right = round((box.top + box.height) * down), round((box.left + box.width) * across)
    crop = pixels[:, top:bottom, left:right]
    return TF.resize(crop, list(size), interpolation=InterpolationMode.BICUBIC, antialias=True)
