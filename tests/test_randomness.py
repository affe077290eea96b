"""Keyed randomness: the draws depend on the key and on nothing else, and leave no trace."""

import doctest
import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from macs_hf import randomness
from macs_hf.data.keyed_draws import KeyedDataset
from macs_hf.randomness import cpu_rng_seeded, global_rng_preserved, mix_seed


class Draws(Dataset):
    """Each item is what the three global generators give."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()).item()], dtype=torch.float64)


def global_state() -> tuple[Any, ...]:
    return random.getstate(), *map(str, np.random.get_state()), tuple(torch.get_rng_state().tolist())


def draw_all() -> tuple[float, ...]:
    return random.random(), np.random.rand(), torch.rand(()).item()


def rows(dataset: KeyedDataset, **loader: Any) -> torch.Tensor:
    drawn = torch.cat(list(DataLoader(dataset, batch_size=3, **loader)))
    return drawn[drawn[:, 0].argsort()]


@pytest.mark.parametrize("length", [2, 3, 4])
def test_seeds_differ_for_all_small_keys(length: int) -> None:
    seeds = [mix_seed(*key) for key in itertools.product(range(6), repeat=length)]
    assert len(set(seeds)) == 6**length
    assert all(0 <= seed < 2**63 for seed in seeds)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**32), min_size=2, max_size=4), st.data())
def test_seed_depends_on_every_part(key: list[int], data: st.DataObject) -> None:
    changed = list(key)
    part = data.draw(st.integers(0, len(key) - 1))
    changed[part] += data.draw(st.integers(1, 1000))
    assert mix_seed(*key) == mix_seed(*key) != mix_seed(*changed)


def test_seeded_block_repeats_and_leaves_no_trace() -> None:
    before = global_state()
    with cpu_rng_seeded(5):
        first = draw_all()
    assert global_state() == before
    draw_all()
    with cpu_rng_seeded(5):
        assert draw_all() == first
    with cpu_rng_seeded(6):
        assert all(mine != theirs for mine, theirs in zip(draw_all(), first, strict=True))


@pytest.mark.parametrize("guard", [global_rng_preserved, lambda: cpu_rng_seeded(3)])
def test_generators_are_restored_after_an_error_too(guard: Any) -> None:
    before = global_state()
    with pytest.raises(KeyError), guard():
        draw_all()
        raise KeyError
    assert global_state() == before


def test_preserved_block_starts_from_the_global_state() -> None:
    with global_rng_preserved():
        inside = draw_all()
    assert draw_all() == inside


def test_draws_depend_on_seed_epoch_and_index_only() -> None:
    dataset = KeyedDataset(Draws(), seed=3)
    before = global_state()
    first = torch.stack([dataset[index] for index in range(8)])
    assert global_state() == before
    draw_all()
    assert torch.equal(torch.stack([dataset[index] for index in reversed(range(8))]).flip(0), first)
    dataset.set_epoch(1)
    second = torch.stack([dataset[index] for index in range(8)])
    other = torch.stack([KeyedDataset(Draws(), seed=4)[index] for index in range(8)])
    everything = torch.cat([first, second, other])[:, 1:]
    assert len(everything.flatten().unique()) == everything.numel()
    dataset.set_epoch(0)
    assert torch.equal(dataset[5], first[5])


def test_workers_do_not_change_the_draws() -> None:
    dataset = KeyedDataset(Draws(), seed=3)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(rows(dataset, num_workers=2, shuffle=True, generator=generator), rows(dataset))


def test_persistent_workers_see_new_epochs() -> None:
    dataset = KeyedDataset(Draws(), seed=3)
    loader = DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
    for epoch in (0, 1, 2):
        dataset.set_epoch(epoch)
        assert torch.equal(torch.cat(list(loader)), torch.stack([dataset[index] for index in range(8)]))
    assert len(dataset) == 8


def test_examples_in_docstrings() -> None:
    result = doctest.testmod(randomness)
    assert result.attempted >= 1 and result.failed == 0
