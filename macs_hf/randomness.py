"""Randomness without state: every random draw of training is a function of a key, so nothing has to be saved.

Batch randomness (the perturbation, MixUp, the subset of `consistency_fraction`) is keyed by (seed, step, micro step,
process), sample augmentation by (seed, epoch, sample index). Keys are mixed by `numpy.random.SeedSequence`; sums of
seeds would collide.
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
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
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        # All visible CUDA devices are covered; without any, only the CPU generator.
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


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


class KeyedDataset(Dataset):
    """
    A map-style dataset whose random transforms depend only on (seed, epoch, index).

    Any transform that draws from a global generator is covered. So neither the number of workers, nor the batch an
    image is in, nor stopping and resuming changes what is drawn for it.
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
        """A batch at once, which saves the generators once, not once per image."""
        epoch = int(self._epoch)
        items = []
        with cpu_rng_preserved():
            for index in indices:
                seed_cpu(mix_seed(self.seed, epoch, int(index)))
                items.append(self.dataset[index])
        return items
