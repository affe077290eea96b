"""Images on their way into the network: decoding, preparation by the processor, crops, flips, AugMix."""

import io
import math
import os
import stat
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from datasets.utils.file_utils import xopen
from PIL import ExifTags, Image, ImageOps
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as TF
from transformers.image_processing_backends import TorchvisionBackend
from transformers.utils import logging

from ..pixels import Preparation, level_table, preparation
from ..randomness import fresh_keys, look_up, uniform


logger = logging.get_logger(__name__)

# Up to this size images are padded and cropped, as is usual for CIFAR; larger ones get a random resized crop.
SMALL_IMAGE = 64
# Values that an image processor works on at a time: with more, its intermediate results do not fit the CPU's cache.
PIECE = 1 << 20
AUGMIX_VIEWS = 2
# Where the levels of red, green and blue begin in a flat table of them.
FIRST_LEVELS = torch.tensor([0, 256, 512], dtype=torch.int32)[:, None, None]


def input_size(processor: Any) -> tuple[int, int]:
    """Height and width that an image processor gives to the network."""
    size = preparation(processor).size
    if size is None:
        raise ValueError(
            f"The image processor {type(processor).__name__} gives each image another size ({processor.size}), so "
            "that images cannot be batched. Set its `size` to a height and a width, or let it crop to them."
        )
    return size


def levels(prepared: Preparation) -> list[Tensor]:
    """Mean and standard deviation of each channel, in levels from 0 to 255."""
    return [torch.tensor(part)[:, None, None] * 255 for part in (prepared.mean, prepared.std)]


class EvalTransform:
    """
    What `pipeline` does with an image: the processor alone, so that measured probabilities are served ones.

    A call prepares one image. Datasets prepare batches, to the same values: the processor is given several images if
    that changes nothing, and images that were prepared before are looked up by the levels of their pixels, in a table
    of what the processor makes of each level. An image whose values the table does not give back exactly is not
    looked up.
    """

    is_random = False

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, image: Image.Image) -> dict[str, Tensor]:
        return {"pixel_values": self.processor(image, return_tensors="pt")["pixel_values"][0]}

    @cached_property
    def pixel_shape(self) -> tuple[int, int, int] | None:
        """Shape of the pixels that can be kept; `None` if they differ in size or are not scaled RGB."""
        try:
            return (3, *input_size(self.processor))
        except ValueError:
            return None

    def readers(self, keys: Tensor | None, count: int) -> list[Callable[[Any], Image.Image]]:
        """What gets each stored image ready for `batch`."""
        return [decode] * count

    def batch(self, images: Sequence[Image.Image], keys: Tensor | None = None) -> dict[str, Sequence[Tensor]]:
        if not self._batches_exactly:
            return {"pixel_values": [self(image)["pixel_values"] for image in images]}
        together = max(1, PIECE // torch.Size(self.pixel_shape).numel())
        pieces = (images[start : start + together] for start in range(0, len(images), together))
        prepared = [self.processor(piece, **self._options)["pixel_values"] for piece in pieces]
        return {"pixel_values": torch.cat(prepared).contiguous()}

    def to_pixels(self, images: Sequence[Image.Image]) -> Tensor | None:
        """uint8 pixels, in the network's order of channels, that `from_pixels` turns into the values of `images`."""
        values = self.batch(images)["pixel_values"]
        values = values if isinstance(values, Tensor) else torch.stack(values)
        mean, std = self._mean_and_std
        pixels = (values * std + mean).round_().clamp_(0, 255).to(torch.uint8)
        return pixels if torch.equal(self.from_pixels(pixels)["pixel_values"], values) else None

    def from_pixels(self, pixels: Tensor, keys: Tensor | None = None) -> dict[str, Tensor]:
        return {"pixel_values": look_up(self._table.flatten(), pixels + FIRST_LEVELS)}

    @cached_property
    def _batches_exactly(self) -> bool:
        """Whether the processor gives the same values for images of several sizes together as for each alone."""
        if self.pixel_shape is None:
            return False
        generator = np.random.default_rng(0)
        shapes = ((48, 64, 3), (64, 48, 3), (48, 64, 3), (40, 40, 3))
        images = [Image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]
        together = self.processor(images, **self._options)["pixel_values"]
        return torch.equal(together, torch.stack([self(image)["pixel_values"] for image in images]))

    @property
    def _options(self) -> dict[str, Any]:
        # On a CPU these processors prepare images one by one by default, which is faster only for large ones.
        grouped = isinstance(self.processor, TorchvisionBackend) and max(self.pixel_shape) <= SMALL_IMAGE
        return {"return_tensors": "pt"} | ({"disable_grouping": False} if grouped else {})

    @cached_property
    def _table(self) -> Tensor:
        return level_table(self.processor)

    @cached_property
    def _mean_and_std(self) -> list[Tensor]:
        return levels(preparation(self.processor))


class TrainTransform:
    """
    Random crop and flip at the processor's size and statistics, and two AugMix views of the result if asked for.

    A call augments one image, with draws from torch's generator. Datasets augment batches, with draws that a key per
    image decides.

    Args:
        processor: The model's image processor.
        horizontal_flip (`bool`, *optional*, defaults to `True`): Whether to mirror every other image.
        augmix (`bool`, *optional*, defaults to `False`): Whether to add `augmix_pixel_values`.
    """

    is_random = True

    def __init__(self, processor: Any, horizontal_flip: bool = True, augmix: bool = False) -> None:
        self.size = input_size(processor)
        self.is_small = max(self.size) <= SMALL_IMAGE
        self.horizontal_flip = horizontal_flip
        self.augmix = AugMix(self.size) if augmix else None
        prepared = preparation(processor)
        self.channels = list(prepared.channels)
        self.mean, self.std = levels(prepared)

    def __call__(self, image: Image.Image) -> dict[str, Tensor]:
        keys = fresh_keys(1)
        [read] = self.readers(keys, 1)
        values = self.batch([read(image)], keys)
        return {name: value[0] for name, value in values.items()}

    @property
    def pixel_shape(self) -> tuple[int, int, int] | None:
        """Shape of the pixels that can be kept; `None` if each epoch needs others."""
        return (3, *self.size) if self.is_small else None

    def readers(self, keys: Tensor, count: int) -> list[Callable[[Any], Tensor]]:
        """What makes uint8 pixels at the network's size of each stored image: all of it, or a random crop if large."""
        if self.is_small:
            return [lambda stored: resize(to_tensor(decode(stored)), self.size)] * count
        numbers = uniform(keys, (1 + BOX_NUMBERS,))[:, 1:].tolist()
        return [partial(read_random_crop, size=self.size, numbers=row) for row in numbers]

    def batch(self, parts: Sequence[Tensor], keys: Tensor) -> dict[str, Tensor]:
        return self.from_pixels(torch.stack(list(parts)), keys)

    def to_pixels(self, images: Sequence[Image.Image]) -> Tensor:
        return torch.stack([resize(to_tensor(image), self.size) for image in images])

    def from_pixels(self, pixels: Tensor, keys: Tensor) -> dict[str, Tensor]:
        """The rest of the augmentation, of all images at once."""
        numbers = uniform(keys, (3,))
        flips = (numbers[:, 0] < 0.5) & self.horizontal_flip
        if self.is_small:
            views = shift_and_flip(pixels, max(self.size) // 8, numbers[:, 1:], flips)
        else:
            views = torch.where(flips[:, None, None, None], pixels.flip(-1), pixels)
        values = {"pixel_values": self._normalize(views)}
        if self.augmix is not None:
            mixed = [self.augmix(views, uniform(keys, (AugMix.NUMBERS,), lane=1 + v)) for v in range(AUGMIX_VIEWS)]
            values["augmix_pixel_values"] = self._normalize(torch.stack(mixed, dim=1))
        return values

    def _normalize(self, views: Tensor) -> Tensor:
        if self.channels != [0, 1, 2]:
            views = views.index_select(-3, torch.tensor(self.channels))
        # Contiguous, since a network's last bits depend on the layout in memory.
        return views.to(torch.float32, memory_format=torch.contiguous_format).sub_(self.mean).div_(self.std)


# ---- Crops and flips ----
# Random crops and flips whose numbers come from the caller, so that an image's key decides what happens to it.
#
# Their distributions are those of torchvision's `RandomCrop`, `RandomResizedCrop` and `RandomHorizontalFlip`.


# Of RandomResizedCrop: share of the area, width over height, and how often it tries to find a box that fits.
SCALE, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
BOX_NUMBERS = 2 * TRIES + 2
# A JPEG is decoded at a fraction of its size if each side of the crop is then still so many times the one wanted.
REDUCING_GAP = 2.0


def to_tensor(image: Image.Image) -> Tensor:
    """`(3, height, width)` uint8 of an RGB image, channels last in memory, which torch resizes fastest."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    return image if image.shape[1:] == size else TF.resize(image, list(size), antialias=True)


def shift_and_flip(images: Tensor, padding: int, numbers: Tensor, flips: Tensor) -> Tensor:
    """
    Each image padded with black and cropped to its old size, at the vertical and horizontal place that its row of
    `numbers`, uniform in (0, 1), decides, and mirrored where `flips` says so.
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


def random_box(width: int, height: int, numbers: list[float]) -> tuple[int, int, int, int]:
    """
    Left, top, width and height of the crop that `RandomResizedCrop` draws from an image, given `BOX_NUMBERS` uniform
    numbers in (0, 1).
    """
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    down, right = numbers[-2:]
    for area, ratio in zip(numbers[:-2:2], numbers[1:-2:2], strict=True):
        target = width * height * (SCALE[0] + area * (SCALE[1] - SCALE[0]))
        aspect = math.exp(low + ratio * (high - low))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(right * (width - w + 1)), int(down * (height - h + 1)), w, h
    # An image too long for these boxes: its middle.
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def read_random_crop(stored: Any, size: tuple[int, int], numbers: list[float]) -> Tensor:
    """
    A random resized crop of an image, decoded no larger than that needs where its format allows it.

    A JPEG that is decoded at a fraction of its size has its crop at a whole pixel of the smaller image, within a
    quarter of a pixel of the result. Its values then differ about as much as by bilinear resizing in place of
    bicubic.
    """
    image = open_stored(stored)
    width, height = upright_size(image)
    x, y, w, h = random_box(width, height, numbers)
    smaller = min(w / size[1], h / size[0]) / REDUCING_GAP
    if smaller >= 2:
        # Only JPEG uses this: libjpeg scales by 1/2, 1/4 or 1/8 while it decodes, to this size or a larger one.
        image.draft(None, (int(image.width / smaller), int(image.height / smaller)))
    pixels = to_tensor(to_rgb(image))
    down, across = pixels.shape[1] / height, pixels.shape[2] / width
    top, left, bottom, right = round(y * down), round(x * across), round((y + h) * down), round((x + w) * across)
    crop = pixels[:, top:bottom, left:right]
    return TF.resize(crop, list(size), interpolation=InterpolationMode.BICUBIC, antialias=True)


# ---- AugMix ----
# AugMix views of a batch of images, as `torchvision.transforms.v2.AugMix(all_ops=False)` makes them one by one.
#
# [AugMix](https://huggingface.co/papers/1912.02781) mixes an image with three chains of one to three operations each:
# `m x + (1 - m) (w_1 chain_1(x) + w_2 chain_2(x) + w_3 chain_3(x))`, with `m` uniform and `w` uniform on the simplex.
# An operation has one of three magnitudes, so that few differ; images that get the same one next go through it
# together.


CHAINS, LONGEST = 3, 3
LEVELS = 3  # magnitudes that an operation has at severity 3
BINS = 10  # of which the first `LEVELS` are used
# Values that chains work on at a time; with more, memory grows and nothing gets faster.
AUGMIX_PIECE = 1 << 22

Operation = Callable[[Tensor], Tensor]


class AugMix:
    """Makes one view of each image of a height and width."""

    # Uniform numbers per view: the weights, the length of each chain, each step's operation and magnitude.
    NUMBERS: ClassVar[int] = 1 + (CHAINS - 1) + CHAINS + 2 * CHAINS * LONGEST

    def __init__(self, size: tuple[int, int]) -> None:
        variants = operation_variants(*size)
        self.operations = list(dict.fromkeys(variants))  # some do not depend on their magnitude
        self._operation_of = torch.tensor([self.operations.index(variant) for variant in variants])

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """
        Args:
            images (`Tensor` of shape `(batch, 3, height, width)`): uint8, RGB.
            numbers (`Tensor` of shape `(batch, NUMBERS)`): Uniform in (0, 1).
        """
        together = max(1, AUGMIX_PIECE // (CHAINS * images[0].numel())) if len(images) else 1
        pieces = zip(images.split(together), numbers.split(together), strict=True)
        return torch.cat([self._mixed(*piece) for piece in pieces])

    def _mixed(self, images: Tensor, numbers: Tensor) -> Tensor:
        kept, weights, lengths, steps = draw(numbers)
        chains = images.repeat_interleave(CHAINS, dim=0)
        for step in range(LONGEST):
            chosen = torch.where(lengths > step, self._operation_of[steps[..., step]], -1).flatten()
            for number in chosen.unique().tolist():
                if number >= 0 and self.operations[number] is not None:
                    rows = (chosen == number).nonzero().flatten()
                    chains[rows] = self.operations[number](chains[rows])
        mixed = kept[:, None, None, None] * images
        for chain in range(CHAINS):
            mixed.add_(weights[:, chain, None, None, None] * chains[chain::CHAINS])
        return mixed.to(torch.uint8)


def draw(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    From uniform numbers `(batch, NUMBERS)`: the weight of the image `(batch,)`, the weights of its chains
    `(batch, 3)`, their lengths `(batch, 3)`, and the operation of each step `(batch, 3, 3)`, as an index of
    `operation_variants`.
    """
    kept = numbers[:, 0]
    # The gaps between sorted uniform numbers are uniform on the simplex: Dirichlet's distribution for alpha=1.
    cuts = numbers[:, 1:CHAINS].sort(dim=1).values
    weights = torch.diff(cuts, dim=1, prepend=torch.zeros(len(cuts), 1), append=torch.ones(len(cuts), 1))
    lengths = 1 + (numbers[:, CHAINS : 2 * CHAINS] * LONGEST).long()
    choices = numbers[:, 2 * CHAINS :].view(-1, CHAINS, LONGEST, 2)
    operation, variant = (choices[..., 0] * 9).long(), (choices[..., 1] * 2 * LEVELS).long()
    return kept, weights * (1 - kept[:, None]), lengths, operation * 2 * LEVELS + variant


def operation_variants(height: int, width: int) -> list[Operation | None]:
    """
    The nine operations, each in `2 * LEVELS` equally likely variants (three magnitudes, of either sign where there is
    one); `None` changes nothing.
    """
    bilinear = {"interpolation": InterpolationMode.BILINEAR}
    shear = partial(TF.affine, angle=0.0, translate=[0, 0], scale=1.0, center=[0, 0], **bilinear)
    shears = [math.degrees(math.atan(slope)) for slope in _signed(_magnitudes(0.0, 0.3))]
    posterize = [partial(TF.posterize, bits=round(bits)) for bits in _magnitudes(4.0, 0.0)]
    solarize = [partial(TF.solarize, threshold=255.0 * share) for share in _magnitudes(1.0, 0.0)]
    return [
        *(partial(shear, shear=[degrees, 0.0]) if degrees else None for degrees in shears),
        *(partial(shear, shear=[0.0, degrees]) if degrees else None for degrees in shears),
        *(partial(translate, right=int(pixels), down=0) for pixels in _signed(_magnitudes(0.0, width / 3.0))),
        *(partial(translate, right=0, down=int(pixels)) for pixels in _signed(_magnitudes(0.0, height / 3.0))),
        *(partial(TF.rotate, angle=a, **bilinear) if a else None for a in _signed(_magnitudes(0.0, 30.0))),
        *(operation for operation in posterize for _ in range(2)),
        *(operation for operation in solarize for _ in range(2)),
        *([TF.autocontrast] * 2 * LEVELS),
        *([TF.equalize] * 2 * LEVELS),
    ]


def _magnitudes(first: float, last: float) -> list[float]:
    return torch.linspace(first, last, BINS)[:LEVELS].tolist()


def _signed(magnitudes: list[float]) -> list[float]:
    return [sign * magnitude for magnitude in magnitudes for sign in (1, -1)]


def translate(images: Tensor, right: int, down: int) -> Tensor:
    """Images moved by whole pixels, black where nothing comes in."""
    height, width = images.shape[2:]
    moved = torch.zeros_like(images)
    moved[:, :, max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = images[
        :, :, max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)
    ]
    return moved


# ---- Decoding ----
# From bytes or a file to an RGB image, and datasets without the images for which that fails.


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
        image = Image.open(io.BytesIO(stored["bytes"]))
    elif "://" in stored["path"]:
        with xopen(stored["path"], "rb") as file:
            image = Image.open(io.BytesIO(file.read()))
    elif not stat.S_ISREG(os.stat(stored["path"]).st_mode):
        raise ValueError("it is no file")  # a pipe would be waited for
    else:
        image = Image.open(stored["path"])
    if image.format == "EPS":
        raise ValueError("it is an EPS file, a program that Ghostscript would run")
    return image


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
