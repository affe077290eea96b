"""The images of a dataset as the corruptions take them: uint8, red, green and blue, at the network's size."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset
from torchvision.transforms.v2.functional import pil_to_tensor

from ..corruptions.corrupt import check_images, to_levels
from ..data.images import decode
from ..pixels import PixelStats


Batch = tuple[Tensor, list[Tensor], Tensor]


class ByteImages:
    """
    Reads a dataset in batches of uint8 images.

    Args:
        dataset (sequence or iterable): Of `(image, label)` or of dictionaries with `columns`. An image is what PIL or
            `datasets` give, a uint8 tensor `(3, H, W)`, or a float one, normalised with `stats` or in [0, 1].
        columns (`tuple`, *optional*, defaults to `("image", "label")`): Names in a dictionary.
        stats (`PixelStats`, *optional*): How float images were normalised. Undoing it gives the very bytes that the
            image processor normalised, since float32 is far finer than a byte.
        resize (`Callable`, *optional*): Maps one uint8 image `(3, H, W)` to the network's input size, uint8.
    """

    def __init__(
        self,
        dataset: Sequence[Any] | Iterable[Any],
        columns: tuple[str, str] = ("image", "label"),
        stats: PixelStats | None = None,
        resize: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.dataset, self.columns, self.stats, self.resize = dataset, columns, stats, resize

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def is_stream(self) -> bool:
        """Whether images have no number: they can only be read once, in order."""
        return not isinstance(self.dataset, Sized)

    def labels(self) -> np.ndarray:
        """Of all images. Only a `datasets.Dataset` gives them without reading its images."""
        if isinstance(self.dataset, datasets.Dataset) and self.columns[1] in self.dataset.column_names:
            return np.array(self.dataset[self.columns[1]])
        return np.array([int(self._pair(self.dataset[position])[1]) for position in range(len(self))])

    def read(self, positions: Sequence[int]) -> Batch:
        """The positions, the images as they are stored, and their labels."""
        # torch's Subset asks a dataset for all of a batch at once if it can answer that.
        examples = Subset(self.dataset, positions).__getitems__(list(range(len(positions))))
        return self._batch(positions, examples)

    def stream(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Batches of every `world`-th image from `rank` on."""
        numbered = islice(enumerate(self.dataset), rank, None, world)
        while batch := list(islice(numbered, batch_size)):
            yield self._batch(*zip(*batch, strict=True))

    def sized(self, images: Sequence[Tensor]) -> Tensor:
        """A batch at the network's size."""
        return _stacked([self.resize(image) for image in images] if self.resize is not None else images)

    def _batch(self, positions: Sequence[int], examples: Sequence[Any]) -> Batch:
        images, labels = zip(*(self._pair(example) for example in examples), strict=True)
        if all(isinstance(image, Tensor) and image.is_floating_point() for image in images):
            pixels = _stacked(images)
            images = list(_levels(pixels if self.stats is None else self.stats.to_pixels(pixels)))
        else:
            images = [
                _levels(image[None])[0] if isinstance(image, Tensor) else pil_to_tensor(decode(image))
                for image in images
            ]
        return torch.tensor(positions), images, torch.tensor([int(label) for label in labels])

    def _pair(self, example: Any) -> tuple[Any, Any]:
        if not isinstance(example, Mapping):
            return tuple(example)
        missing = [name for name in self.columns if name not in example]
        if missing:
            raise ValueError(f"An example has no {missing[0]!r} but {sorted(example)}: name the two with columns.")
        return tuple(example[name] for name in self.columns)


def _levels(images: Tensor) -> Tensor:
    check_images(images)
    return to_levels(images)


def _stacked(images: Sequence[Tensor]) -> Tensor:
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        raise ValueError(f"Images of one batch differ in size ({sorted(shapes)[:3]} ...): pass resize.")
    return torch.stack(list(images))
