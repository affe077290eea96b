"""What happens to images on their way into the network, in batches: preparation by the processor, augmentation."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.image_processing_backends import TorchvisionBackend

from ..pixels import level_table, preparation
from ..randomness import fresh_keys, look_up, uniform
from .augment import BOX_NUMBERS, flip_some, read_random_crop, resize, shift_and_flip, to_tensor
from .augmix import AugMix
from .decoding import decode


# Up to this size images are padded and cropped, as is usual for CIFAR; larger ones get a random resized crop.
SMALL_IMAGE = 64
# Values that an image processor works on at a time: with more, its intermediate results do not fit the CPU's cache.
PIECE = 1 << 20
AUGMIX_VIEWS = 2


def input_size(processor: Any) -> tuple[int, int]:
    """Height and width that an image processor gives to the network."""
    size = preparation(processor).size
    if size is None:
        raise ValueError(
            f"The image processor {type(processor).__name__} gives each image another size ({processor.size}), so "
            "that images cannot be batched. Set its `size` to a height and a width, or let it crop to them."
        )
    return size


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

    def draws(self, keys: Tensor | None, count: int) -> list[None]:
        return [None] * count

    def read(self, stored: Any, draw: None) -> Image.Image:
        return decode(stored)

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
        pixels = (values * self._scale + self._shift).round_().clamp_(0, 255).to(torch.uint8)
        return pixels if torch.equal(self.from_pixels(pixels)["pixel_values"], values) else None

    def from_pixels(self, pixels: Tensor, keys: Tensor | None = None) -> dict[str, Tensor]:
        return {"pixel_values": look_up(self._table.flatten(), pixels + self._first_entries)}

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
    def _first_entries(self) -> Tensor:
        return torch.tensor([0, 256, 512], dtype=torch.int32)[:, None, None]

    @cached_property
    def _scale(self) -> Tensor:
        return torch.tensor(preparation(self.processor).std)[:, None, None] * 255

    @cached_property
    def _shift(self) -> Tensor:
        return torch.tensor(preparation(self.processor).mean)[:, None, None] * 255


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
        self.mean, self.std = (torch.tensor(part)[:, None, None] * 255 for part in (prepared.mean, prepared.std))

    def __call__(self, image: Image.Image) -> dict[str, Tensor]:
        keys = fresh_keys(1)
        values = self.batch([self.read(image, *self.draws(keys, 1))], keys)
        return {name: value[0] for name, value in values.items()}

    @property
    def pixel_shape(self) -> tuple[int, int, int] | None:
        """Shape of the pixels that can be kept; `None` if each epoch needs others."""
        return (3, *self.size) if self.is_small else None

    def draws(self, keys: Tensor, count: int) -> list[list[float] | None]:
        """What `read` has to know of each image's draws."""
        if self.is_small:
            return [None] * count
        return uniform(keys, (1 + BOX_NUMBERS,))[:, 1:].tolist()

    def read(self, stored: Any, draw: list[float] | None) -> Tensor:
        """uint8 pixels of one image at the network's size: all of it, or a random crop of a large one."""
        if draw is not None:
            return read_random_crop(stored, self.size, draw)
        return resize(to_tensor(decode(stored)), self.size)

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
            views = flip_some(pixels, flips)
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
