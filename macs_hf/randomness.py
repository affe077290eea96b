"""Randomness without state: every random draw of training is a function of a key, so nothing has to be saved.

Batch randomness (the perturbation, MixUp, the subset of `consistency_fraction`) is keyed by (seed, step, micro step,
process), sample augmentation by (seed, epoch, sample index). Keys are hashed, by `numpy.random.SeedSequence` where
they seed a generator and by SplitMix64 where each image of a batch has its own; sums of seeds would collide.
"""

import contextlib
import random
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset


def mix_seed(*key: int) -> int:
    """
    A 63-bit seed that depends on every part of the key and on its order.

    ```python
    >>> mix_seed(0, 1) != mix_seed(1, 0)
    True

    ```
    """
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextlib.contextmanager
def global_rng_preserved() -> Iterator[None]:
    """Whatever runs inside leaves Python's, NumPy's and torch's global generators as it found them."""
    with cpu_rng_preserved(), torch.random.fork_rng():  # the latter covers all visible CUDA devices
        yield


@contextlib.contextmanager
def cpu_rng_preserved() -> Iterator[None]:
    """Python's, NumPy's and torch's CPU generators are as before afterwards."""
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)


def seed_cpu(seed: int) -> None:
    """Start Python's, NumPy's and torch's CPU generators from `seed`."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def cpu_rng_seeded(seed: int) -> Iterator[None]:
    """Those generators start from `seed` inside, and are as before afterwards."""
    with cpu_rng_preserved():
        seed_cpu(seed)
        yield


# ---- Keyed draws ----
#
# Random numbers that depend on an image's key and on nothing else, for corruptions and for augmentation.
#
# A counter-based generator: there is no state to advance, the `j`-th word of an image is a hash of its key and of
# `j`. The 64-bit key is a SplitMix64 hash of (seed, what is drawn, its number, index of the image); a word is
#
#     x = j * 0x9E3779B9 + key_0
#     x = mul(xorshift(x, 16), 0x7FEB352D) ^ key_1
#     x = xorshift(mul(xorshift(x, 15), 0x846CA68B), 16)
#
# in 32-bit integer arithmetic that wraps around, so every device gives the same words, in a batch of any size and
# order. Uniform numbers take 23 bits of a word. Normal numbers look half a word up in a table of 65,536 normal
# quantiles (scaled to unit variance; they end at 4.3 standard deviations), which is faster than a logarithm and,
# unlike it, equal on all devices.


def _signed(value: int, bits: int) -> int:
    """The integer that two's complement of `bits` bits stores for `value`: torch has no unsigned arithmetic."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


_STEP, _FIRST, _SECOND = (_signed(constant, 32) for constant in (0x9E3779B9, 0x7FEB352D, 0x846CA68B))
_STEP_64, _FIRST_64, _SECOND_64 = (
    _signed(constant, 64) for constant in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def _hash_64(value: Tensor) -> Tensor:
    """SplitMix64's output function on int64; the masks turn torch's arithmetic shifts into logical ones."""
    value = value + _STEP_64
    value = (value ^ ((value >> 30) & ((1 << 34) - 1))) * _FIRST_64
    value = (value ^ ((value >> 27) & ((1 << 37) - 1))) * _SECOND_64
    return value ^ ((value >> 31) & ((1 << 33) - 1))


def image_keys(seed: int, name: str, number: int, indices: Tensor) -> Tensor:
    """The generator's key of each image.

    Args:
        seed (`int`): Any integer; taken modulo 2^64.
        name (`str`): What is drawn, such as a corruption, so that two of them share no numbers for one image.
        number (`int`): The severity of a corruption or the epoch of an augmentation, for the same reason.
        indices (`Tensor`): `(N,)` int64, the images' positions in their dataset.

    Returns:
        `Tensor`: `(N, 2)` int32 on the device of `indices`.
    """
    key = _hash_64(torch.tensor(_signed(seed, 64)))
    key = _hash_64(key ^ zlib.crc32(name.encode()))
    key = _hash_64(key ^ number).to(indices.device)
    return _hash_64(_hash_64(indices) ^ key).view(torch.int32).reshape(-1, 2)


def fresh_keys(count: int) -> Tensor:
    """Keys that torch's global CPU generator draws: other ones at each call, as random transforms usually are."""
    return torch.randint(-(1 << 63), (1 << 63) - 1, (count,)).view(torch.int32).reshape(-1, 2)


def words(keys: Tensor, count: int, lane: int = 0) -> Tensor:
    """`(N, count)` int32 words, uniform over all 2^32 values; each `lane` is an independent sequence."""
    if lane:
        keys = _hash_64(keys.view(torch.int64) + lane).view(torch.int32)
    counter = torch.arange(count, dtype=torch.int32, device=keys.device) * _STEP
    x = counter + keys[:, :1]
    x ^= (x >> 16) & 0xFFFF
    x *= _FIRST
    x ^= keys[:, 1:]
    x ^= (x >> 15) & 0x1FFFF
    x *= _SECOND
    x ^= (x >> 16) & 0xFFFF
    return x


def uniform(keys: Tensor, shape: tuple[int, ...], lane: int = 0) -> Tensor:
    """`(N, *shape)` float32, uniform on the midpoints of 2^23 cells of (0, 1), all exact: never 0, never 1."""
    count = torch.Size(shape).numel()
    return (words(keys, count, lane) >> 9).float().add_(0.5).mul_(2.0**-23).add_(0.5).view(-1, *shape)


def half_words(keys: Tensor, shape: tuple[int, ...], lane: int = 0) -> Tensor:
    """`(N, *shape)` int32, uniform on 0 .. 65535: each word is used twice."""
    count = torch.Size(shape).numel()
    halves = words(keys, (count + 1) // 2, lane).view(torch.int16)[:, :count]
    return halves.to(torch.int32).add_(32768).view(-1, *shape)


def normal(keys: Tensor, shape: tuple[int, ...], lane: int = 0) -> Tensor:
    """`(N, *shape)` float32 standard normal numbers."""
    return look_up(_normal_quantiles(keys.device), half_words(keys, shape, lane))


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]` for a flat table; on a CPU several times faster than writing it so."""
    return table.index_select(0, index.flatten()).view(index.shape)


@lru_cache(maxsize=4)
def _normal_quantiles(device: torch.device) -> Tensor:
    quantiles = torch.special.ndtri((torch.arange(65536, dtype=torch.float64) + 0.5) / 65536)
    return (quantiles / quantiles.square().mean().sqrt()).float().to(device)


# ---- Datasets with keyed draws ----
# A dataset whose random transforms depend on (seed, epoch, index) and on nothing else.


class KeyedDataset(Dataset):
    """
    A map-style dataset whose random transforms depend only on (seed, epoch, index).

    A dataset that can key its own draws, as [`ImageDataset`] does for whole batches, has `keyed_items(indices, seed,
    epoch)`. For any other the global generators are seeded before each item, which covers all that draws from them. So
    neither the number of workers, nor the batch an image is in, nor stopping and resuming changes what is drawn.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed
        # In shared memory, since persistent workers keep the copy they were started with.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        epoch = int(self._epoch)
        if hasattr(self.dataset, "keyed_items"):
            return self.dataset.keyed_items(indices, self.seed, epoch)
        return seeded_items(self.dataset, indices, self.seed, epoch)


def seeded_items(dataset: Any, indices: list[int], seed: int, epoch: int) -> list[Any]:
    """Items of which each is made with the global generators seeded by (seed, epoch, index)."""
    items = []
    with cpu_rng_preserved():
        for index in indices:
            seed_cpu(mix_seed(seed, epoch, int(index)))
            items.append(dataset[index])
    return items
