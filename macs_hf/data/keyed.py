"""A dataset whose random transforms depend on (seed, epoch, index) and on nothing else."""

from typing import Any

import torch
from torch.utils.data import Dataset

from ..randomness import cpu_rng_preserved, mix_seed, seed_cpu


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
