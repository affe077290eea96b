"""A dataset whose random transforms depend on (seed, epoch, index) and on nothing else."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import Dataset, IterableDataset

from ..randomness import cpu_rng_preserved, mix_seed, seed_cpu


@runtime_checkable
class DrawsByKey(Protocol):
    """A dataset that can key its own random draws, such as [`ImageDataset`], which does so for whole batches."""

    def keyed_items(self, indices: list[int], seed: int, epoch: int) -> list[Any]: ...


class KeyedDataset(Dataset):
    """
    A map-style dataset whose random transforms depend only on (seed, epoch, index).

    A dataset that [`DrawsByKey`] is given the key; for any other one the global generators are seeded before each
    item, which covers any transform that draws from them. So neither the number of workers, nor the batch an image is
    in, nor stopping and resuming changes what is drawn for it.
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
        if isinstance(self.dataset, DrawsByKey):
            return self.dataset.keyed_items(indices, self.seed, epoch)
        return seeded_items(self.dataset, indices, self.seed, epoch)


def keyed(dataset: Any, seed: int) -> KeyedDataset | None:
    """`dataset` with draws by key; `None` if it is a stream, which has no indices."""
    return None if isinstance(dataset, IterableDataset) else KeyedDataset(dataset, seed)


def seeded_items(dataset: Any, indices: list[int], seed: int, epoch: int) -> list[Any]:
    """Items of which each is made with the global generators seeded by (seed, epoch, index)."""
    items = []
    with cpu_rng_preserved():
        for index in indices:
            seed_cpu(mix_seed(seed, epoch, int(index)))
            items.append(dataset[index])
    return items
