"""From an image as it is stored to what the network is given: decoding, augmentation, the processor's preparation."""

import io
from collections.abc import Callable
from typing import Any

import datasets
import torch
from PIL import Image, ImageOps
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode, v2
from transformers.utils import logging

from ..pixels import preparation


logger = logging.get_logger(__name__)

# Up to this size images are padded and cropped, as is usual for CIFAR; larger ones get a random resized crop.
SMALL_IMAGE = 64


def decode(stored: Any) -> Image.Image:
    """An RGB image from a PIL image or from the bytes or path that `datasets.Image(decode=False)` keeps."""
    if isinstance(stored, dict):
        stored = open_stored(stored)
    image = ImageOps.exif_transpose(stored)
    if image.mode == "F" or (image.mode == "I" and getattr(stored, "format", None) != "PNG"):
        raise ValueError(f"a {image.mode!r} image has 32 bits a pixel, and nothing says which value is white")
    if image.mode.startswith("I"):
        # 16 bits a pixel, which PIL would clip at 255.
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    return image.convert("RGB")


def open_stored(stored: dict[str, Any]) -> Image.Image:
    """The image of such bytes or path, its header read and nothing else."""
    return Image.open(io.BytesIO(stored["bytes"]) if stored["bytes"] is not None else stored["path"])


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
    """What `pipeline` does with an image: the processor alone, so that measured probabilities are served ones."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, image: Image.Image) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.processor(image, return_tensors="pt")["pixel_values"][0]}


class TrainTransform:
    """
    Random crop and flip at the processor's size and statistics, and two AugMix views of the result if asked for.

    Draws from torch's global generator; the trainer keys it by (seed, epoch, index).
    """

    def __init__(self, processor: Any, horizontal_flip: bool = True, augmix: bool = False) -> None:
        size = input_size(processor)
        if max(size) <= SMALL_IMAGE:
            # Only where it is needed: for a small image even a transform that changes nothing takes long.
            self.resize = v2.Resize(size, antialias=True)
            crop = v2.RandomCrop(size, padding=max(size) // 8)
        else:
            self.resize = None
            crop = v2.RandomResizedCrop(size, antialias=True, interpolation=InterpolationMode.BICUBIC)
        self.size = size
        self.augment = v2.Compose([crop, v2.RandomHorizontalFlip()]) if horizontal_flip else crop
        # Without the operations that overlap with the corruption benchmark, as AugMix was published.
        self.augmix = v2.AugMix(all_ops=False) if augmix else None
        prepared = preparation(processor)
        self.channels = list(prepared.channels)
        self.mean, self.std = (torch.tensor(part)[:, None, None] * 255 for part in (prepared.mean, prepared.std))

    def __call__(self, image: Image.Image) -> dict[str, torch.Tensor]:
        view = v2.functional.pil_to_tensor(image)
        if self.resize is not None and view.shape[1:] != self.size:
            view = self.resize(view)
        view = self.augment(view)
        item = {"pixel_values": self._normalize(view)}
        if self.augmix is not None:
            item["augmix_pixel_values"] = torch.stack([self._normalize(self.augmix(view)) for _ in range(2)])
        return item

    def _normalize(self, view: torch.Tensor) -> torch.Tensor:
        return (view[self.channels] - self.mean) / self.std


class ImageDataset(Dataset):
    """`pixel_values` and `labels` of the rows of a `datasets.Dataset`, through a transform of one image."""

    def __init__(
        self, dataset: datasets.Dataset, image_column: str, label_column: str, transform: Callable, split: str
    ) -> None:
        self.rows = undecoded(dataset, image_column).select_columns([image_column, label_column])
        self.image_column, self.label_column = image_column, label_column
        self.transform = transform
        self.split = split

    @property
    def _fingerprint(self) -> str:
        """Which data this is, whatever the transform."""
        return self.rows._fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        image = self._decoded(index, row[self.image_column])
        return self.transform(image) | {"labels": row[self.label_column]}

    def check_headers(self, at_most: int = 2000) -> None:
        """
        Refuse files that are missing, no images, or plainly damaged: of at most so many images, spread evenly, what
        can be seen without decoding them. A cheap look at a split that is first used when training is over.
        """
        for index in range(0, len(self), max(1, -(-len(self) // at_most))):
            stored = self.rows[index][self.image_column]
            try:
                with open_stored(stored) as image:
                    image.verify()
            except Exception:
                self._decoded(index, stored)  # decides: some images can be read although a checksum is wrong

    def _decoded(self, index: int, stored: Any) -> Image.Image:
        try:
            return decode(stored)
        except Exception as error:
            path = stored.get("path") if isinstance(stored, dict) else None
            file = f" (file {path!r})" if path else ""
            raise ValueError(
                f"Image {index} of split {self.split!r} cannot be read{file}: {error}. Mend or remove the file, or "
                "pass --skip_bad_images to leave such images out."
            ) from error
