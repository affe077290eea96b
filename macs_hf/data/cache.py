"""Decoded pixels of a split, kept in memory that the workers of a data loader share."""

import mmap
import os
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor


# What all caches of this process hold together.
_taken = 0


class PixelCache:
    """
    uint8 pixels of images of one shape, written when an image is first read.

    The memory is anonymous and shared: processes that are forked later, such as a data loader's workers, read and
    write the same pages. It is not taken from `/dev/shm`, which containers keep small, and a page costs nothing until
    it is written.

    Args:
        count (`int`): Number of images.
        shape (`tuple[int, ...]`): Of one image.
    """

    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        size = torch.Size(shape).numel()
        memory = mmap.mmap(-1, count * (size + 1))
        self.pixels = torch.frombuffer(memory, dtype=torch.uint8, count=count * size).view(count, *shape)
        self._filled = torch.frombuffer(memory, dtype=torch.bool, offset=count * size)

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


def allocate_cache(count: int, shape: tuple[int, ...], budget: int) -> PixelCache | None:
    """
    A cache, or `None` if it does not fit.

    Args:
        count (`int`): Number of images.
        shape (`tuple[int, ...]`): Of one image.
        budget (`int`): Bytes that all caches on this machine may hold together; the processes of a distributed run
            have equal shares.
    """
    global _taken
    size = count * (torch.Size(shape).numel() + 1)
    processes = os.environ.get("LOCAL_WORLD_SIZE", "1")
    if not (processes.isdecimal() and int(processes) > 0):
        raise ValueError(f"The environment variable LOCAL_WORLD_SIZE is {processes!r}, not a number of processes.")
    share = budget // int(processes)
    if count == 0 or _taken + size > share:
        return None
    cache = PixelCache(count, shape)
    _taken += size
    weakref.finalize(cache, _release, size)
    return cache


def _release(size: int) -> None:
    global _taken
    _taken -= size
