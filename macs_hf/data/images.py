"""The images of a split as batches of what the network is given: decoded, kept, augmented and prepared together."""

import hashlib
import math
import mmap
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import combinations
from typing import Any

import datasets
import numpy as np
import torch
from datasets.utils import tqdm
from PIL import Image
from pyarrow import compute
from torch import Tensor
from torch.utils.data import Dataset
from transformers.utils import logging

from ..exceptions import ArgumentError
from ..randomness import fresh_keys, image_keys, seeded_items
from ..report.report import Copies, Leakage
from .sources import listed, values_of
from .transforms import EvalTransform, TrainTransform, decode, undecoded


logger = logging.get_logger(__name__)

CACHE_BYTES = 2_000_000_000
# Images that are read at a time when a whole split is.
CHECKED_TOGETHER = 256
PATHS_TOGETHER = 1000
# Pixels of images that are held at a time, undivided, before they are kept at the network's size.
PIXELS_TOGETHER = 100_000_000
# Called before each image is read, in the thread that set it; what it raises ends the reading.
on_read: ContextVar[Callable[[], None]] = ContextVar("on_read", default=lambda: None)
MAX_GROUPS = 100
NO_VALUE = "(no value)"


class ImageDataset(Dataset):
    """
    `pixel_values` and `labels` of the rows of a `datasets.Dataset`.

    A data loader asks for whole batches (`__getitems__`), which [`TrainTransform`] and [`EvalTransform`] make in one
    go; items are views of the batch. Any other transform is called image by image.

    Random transforms draw from torch's generator. A trainer that knows the epoch asks for `keyed_items`, whose draws
    depend on nothing but (seed, epoch, index).

    Args:
        dataset (`datasets.Dataset`): The rows.
        image_column (`str`): Its column of images.
        label_column (`str`, *optional*): Its column of labels; without one, items have no `labels`.
        transform (`Callable`): From an RGB image to the values of an item.
        split (`str`): What messages call the dataset.
        cache_bytes (`int`, *optional*, defaults to 2 GB): Pixels that are the same at each pass (all of evaluation,
            and of training up to 64 pixels) are kept in memory, one byte per value, if all of them fit. The budget is
            that of the machine, for all datasets together; 0 keeps nothing.
        group_column (`str`, *optional*): A column whose values, at most 100, are kept as `groups`, text.
        index (`np.ndarray`, *optional*): Where each row is in its split, if some of it were left out.
    """

    def __init__(
        self,
        dataset: datasets.Dataset,
        image_column: str,
        label_column: str | None,
        transform: Callable,
        split: str,
        cache_bytes: int = CACHE_BYTES,
        group_column: str | None = None,
        index: np.ndarray | None = None,
    ) -> None:
        if cache_bytes < 0:
            raise ArgumentError("cache_bytes", "must be at least 0, which turns the cache off.", cache_bytes)
        if not isinstance(dataset, datasets.Dataset):
            raise TypeError(
                f"`dataset` must be a datasets.Dataset, whose rows have an index, got {type(dataset).__name__}. "
                "Images of a stream come through macs_hf.data.streaming.training_stream."
            )
        columns = [image_column] if label_column is None else [image_column, label_column]
        if missing := set(columns) - set(dataset.column_names):
            raise ValueError(f"The dataset has no column {missing.pop()!r}, only {dataset.column_names}.")
        self.rows = undecoded(dataset, image_column).select_columns(columns)
        self.image_column, self.label_column, self.group_column = image_column, label_column, group_column
        self.groups = None if group_column is None else group_values(dataset, group_column)
        self.index = index
        # What `check_images` found: by position, a number that only copies of an image have in common.
        self.hashes: dict[int, int] = {}
        self.transform = transform
        self.split = split
        self._images = self.rows.select_columns([image_column]).with_format("arrow")
        self.labels = None if label_column is None else values_of(self.rows, label_column)
        # A subclass may have its own idea of what happens to one image.
        self._makes_batches = type(transform) in (TrainTransform, EvalTransform)
        shape = transform.pixel_shape if self._makes_batches else None
        self._cache = None if shape is None else PixelCache.within(cache_bytes, len(self), shape)

    def __getstate__(self) -> dict[str, Any]:
        # Memory is shared with forked processes; a copy for a spawned one goes without.
        return self.__dict__ | {"_cache": None, "hashes": {}}

    @property
    def _fingerprint(self) -> str:
        """Which data this is, whatever the transform."""
        return self.rows._fingerprint

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        indices = self._positions(indices)
        if self._makes_batches:
            return self._items(indices, fresh_keys(len(indices)) if self.transform.is_random else None)
        values = [self.transform(self._read(index, decode, stored)) for index, stored in self._stored(indices)]
        if self.labels is None:
            return values
        return [value | {"labels": self.labels[index]} for index, value in zip(indices, values, strict=True)]

    def keyed_items(self, indices: Sequence[int], seed: int, epoch: int) -> list[dict[str, Any]]:
        """Items whose random draws depend on (seed, epoch, index) and on nothing else."""
        indices = self._positions(indices)
        if self._makes_batches:
            return self._items(indices, image_keys(seed, "augmentation", epoch, torch.tensor(indices)))
        return seeded_items(self, indices, seed, epoch)

    def check_images(self, at_most: int = 500) -> dict[int, int]:
        """
        Read the split once: fill the cache, and refuse images that cannot be read. If it is not kept in memory, only
        `at_most` images are read, spread evenly.

        Returns:
            `dict[int, int]`: A 64-bit hash of the decoded pixels of each image that was read, by index. Copies of an
            image have the same one, in any split and whatever the transform. They are kept as `hashes`.
        """
        step = 1 if self._cache is not None else max(1, -(-len(self) // at_most))
        checked = range(0, len(self), step)
        hashes, broken = {}, {}
        for start in tqdm(range(0, len(checked), CHECKED_TOGETHER), desc=f"Reading {self.split}", leave=False):
            readable, pixels = {}, 0
            for index, stored in self._stored(checked[start : start + CHECKED_TOGETHER]):
                try:
                    image = readable[index] = self._read(index, decode, stored)
                except UnreadableImageError as error:
                    broken[index] = error
                    continue
                hashes[index] = _pixel_hash(image)
                pixels += image.width * image.height
                if pixels > PIXELS_TOGETHER:
                    self._keep(readable)
                    readable, pixels = {}, 0
            self._keep(readable)
        if broken:
            first, *others = broken
            more = f" {len(others)} more cannot be read: {listed(others)}." if others else ""
            raise UnreadableImageError(f"{broken[first]}{more}") from broken[first]
        self.hashes = hashes
        return hashes

    def image(self, index: int) -> Image.Image:
        """One image as it is stored, decoded and upright, without the transform."""
        [(index, stored)] = self._stored(self._positions([index]))
        return self._read(index, decode, stored)

    def file_names(self) -> np.ndarray | None:
        """
        The images' file names below the folder that holds them all, if every image has one of its own. No image is
        decoded.
        """
        parts = self._images.iter(PATHS_TOGETHER)
        columns = (compute.struct_field(part.column(self.image_column), "path") for part in parts)
        paths = [path for column in columns for path in column.to_pylist()]
        if None in paths or len(set(paths)) < len(paths):
            return None
        # Of a file inside an archive, that file.
        paths = [path.partition("::")[0].rpartition("://")[2] for path in paths]
        if all(map(os.path.isabs, paths)):
            root = os.path.commonpath([os.path.dirname(path) for path in paths])
            paths = [os.path.relpath(path, root) for path in paths]
        return np.array(paths)

    def _items(self, indices: list[int], keys: Tensor | None) -> list[dict[str, Any]]:
        if self._cache is not None and (missing := self._cache.missing(indices)):
            self._keep({index: self._read(index, decode, stored) for index, stored in self._stored(missing)})
        if self._cache is not None:
            values = self.transform.from_pixels(self._cache.read(indices), keys)
        else:
            readers = self.transform.readers(keys, len(indices))
            stored = zip(self._stored(indices), readers, strict=True)
            values = self.transform.batch([self._read(index, read, image) for (index, image), read in stored], keys)
        if self.labels is not None:
            values |= {"labels": [self.labels[index] for index in indices]}
        return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]

    def _keep(self, images: dict[int, Image.Image]) -> None:
        if self._cache is None or not images:
            return
        pixels = self.transform.to_pixels(list(images.values()))
        if pixels is None:
            self._cache = None  # the processor does more than a table of levels can tell
        else:
            self._cache.write(list(images), pixels)

    def _positions(self, indices: Sequence[int]) -> list[int]:
        """Counted from the beginning; an `IndexError` if there is no such image."""
        positions = range(len(self))
        return [positions[int(index)] for index in indices]

    def _stored(self, indices: Sequence[int]) -> list[tuple[int, dict[str, Any]]]:
        column = self._images[list(indices)].column(self.image_column)
        return list(zip(indices, column.to_pylist(), strict=True))

    def _read(self, index: int, read: Callable, stored: Any) -> Any:
        """`read(stored)`, with errors that say which image it was."""
        on_read.get()()
        try:
            return read(stored)
        except Exception as error:
            path = stored.get("path") if isinstance(stored, dict) else None
            file = f" (file {path!r})" if path else ""
            raise UnreadableImageError(
                f"Image {index} of split {self.split!r} cannot be read{file}: {error}. Repair or remove the file, or "
                "leave such images out with drop_unreadable (skip_bad_images)."
            ) from error


def group_values(dataset: datasets.Dataset, column: str) -> np.ndarray:
    """The group of each row, as text; rows without a value are one too. At most 100, of which one has a value."""
    feature = dataset.features[column]

    def name_of(value: Any) -> str:
        if value is None or value != value:  # NaN
            return NO_VALUE
        if isinstance(feature, datasets.ClassLabel):
            return feature.int2str(value) if value >= 0 else NO_VALUE
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return str(value).strip() or NO_VALUE

    groups = np.array([name_of(value) for value in values_of(dataset, column)])
    number, missing = len(np.unique(groups)), np.count_nonzero(groups == NO_VALUE)
    if number > MAX_GROUPS or missing == len(groups):
        raise ArgumentError(
            "group_column",
            f"Column {column!r} has {number - bool(missing):,} different values in {len(groups):,} images; from 1 to "
            f"{MAX_GROUPS} groups can be compared. Name another column, or one with ranges of values, with",
        )
    if missing:
        logger.warning(f"{missing:,} images have no value in column {column!r}; they are the group {NO_VALUE!r}.")
    return groups


class UnreadableImageError(ValueError):
    """An image of a dataset cannot be decoded."""


def _pixel_hash(image: Image.Image) -> int:
    content = hashlib.blake2b(repr(image.size).encode(), digest_size=8)
    content.update(image.tobytes())
    return int.from_bytes(content.digest())


# ---- Decoded pixels of a split, in memory that the workers of a data loader share ----


_caches: weakref.WeakSet["PixelCache"] = weakref.WeakSet()  # of this process


class PixelCache:
    """
    uint8 pixels of images of one shape, written when an image is first read.

    The memory is anonymous and shared: processes that are forked later, such as a data loader's workers, read and
    write the same pages. It is not taken from `/dev/shm`, which containers keep small, and a page costs nothing until
    it is written.
    """

    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        size = math.prod(shape)
        memory = mmap.mmap(-1, count * (size + 1))
        self.pixels = torch.frombuffer(memory, dtype=torch.uint8, count=count * size).view(count, *shape)
        self._filled = torch.frombuffer(memory, dtype=torch.bool, offset=count * size)
        self.bytes = len(memory)
        _caches.add(self)

    @classmethod
    def within(cls, budget: int, count: int, shape: tuple[int, ...]) -> "PixelCache | None":
        """A cache, or `None` if it does not fit a budget for the machine, of which its processes have equal shares."""
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        free = budget // processes - sum(cache.bytes for cache in _caches)
        return cls(count, shape) if 0 < count * (math.prod(shape) + 1) <= free else None

    def missing(self, indices: Sequence[int]) -> list[int]:
        """Those of `indices` whose pixels have not been written, each once."""
        filled = self._filled[torch.tensor(indices)].tolist()
        return list(dict.fromkeys(index for index, there in zip(indices, filled, strict=True) if not there))

    def write(self, indices: Sequence[int], pixels: Tensor) -> None:
        rows = torch.tensor(indices)
        self.pixels[rows] = pixels
        self._filled[rows] = True  # only now, since another process may be waiting for them

    def read(self, indices: Sequence[int]) -> Tensor:
        return self.pixels[torch.tensor(indices)]


# ---- Leakage: images in two splits at once, found by the hashes of their decoded pixels ----


def find_leakage(splits: Mapping[str, Any]) -> Leakage | None:
    """
    Count exact copies between datasets, by name and in this order: `train`, `validation`, `test`. `None` if there are
    not two whose images were read ([`ImageDataset.check_images`]).
    """
    read = {name: split for name, split in splits.items() if isinstance(split, ImageDataset) and split.hashes}
    if len(read) < 2:
        return None
    known = {name: set(split.hashes.values()) for name, split in read.items()}
    return Leakage(
        compared={name: len(split.hashes) for name, split in read.items()},
        total={name: len(split) for name, split in read.items()},
        copies=tuple(
            Copies(name, other, sum(number in known[other] for number in read[name].hashes.values()))
            for other, name in combinations(read, 2)
        ),
    )
