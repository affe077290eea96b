"""Keyed randomness: numbers fixed for ever, that depend on the key and on nothing else, and leave no trace."""

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from macs_hf.randomness import (
    KeyedDataset,
    cpu_rng_seeded,
    global_rng_preserved,
    image_keys,
    mix_seed,
    normal,
    uniform,
    words,
)


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
    with pytest.raises(KeyError), global_rng_preserved(), cpu_rng_seeded(3):
        draw_all()
        raise KeyError
    assert global_state() == before
    draw_all()
    with cpu_rng_seeded(5):
        assert draw_all() == first
    with cpu_rng_seeded(6):
        assert all(mine != theirs for mine, theirs in zip(draw_all(), first, strict=True))


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


def test_workers_and_batches_do_not_change_the_draws() -> None:
    dataset = KeyedDataset(Draws(), seed=3)
    loader = DataLoader(dataset, batch_size=3, shuffle=True, num_workers=2, persistent_workers=True)
    for epoch in (0, 1, 2):  # which workers see that live on
        dataset.set_epoch(epoch)
        drawn = torch.cat(list(loader))
        assert torch.equal(drawn[drawn[:, 0].argsort()], torch.stack([dataset[index] for index in range(8)]))
    assert len(dataset) == 8


def keys(seed: int = 0, name: str = "fog", severity: int = 1, count: int = 400) -> Tensor:
    return image_keys(seed, name, severity, torch.arange(count))


def test_numbers_never_change() -> None:
    # Published results depend on them: a change here changes every stochastic corruption.
    assert words(image_keys(0, "gaussian_noise", 1, torch.tensor([0, 9999])), 3).tolist() == [
        [861433831, -412339162, 1869203344],
        [1018783610, -2041202726, 1114885462],
    ]


def test_a_key_is_all_that_matters() -> None:
    all_words = words(keys(), 100)
    assert torch.equal(words(keys()[[7]], 100), all_words[[7]])
    assert torch.equal(words(keys()[[9, 3]], 50), all_words[[9, 3], :50])
    variants = [keys(), keys(seed=1), keys(seed=-1), keys(name="snow"), keys(severity=2)]
    drawn = [normal(k, (1000,)) for k in variants] + [normal(keys(), (1000,), lane=1)]
    for first, second in itertools.combinations(drawn, 2):
        assert abs((first * second).mean()) < 5 / math.sqrt(first.numel())


def test_uniform_moments_and_range() -> None:
    numbers = uniform(keys(), (3000,))
    n = numbers.numel()
    assert 2**-24 <= numbers.min() < 1e-4 and 1 - 1e-4 < numbers.max() <= 1 - 2**-24
    assert normal(keys(count=2), (3, 5, 7)).shape == (2, 3, 5, 7)  # odd numbers of draws
    assert abs(numbers.mean() - 0.5) < 5 * math.sqrt(1 / 12 / n)
    assert abs(numbers.double().var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)


def test_normal_moments_and_distribution() -> None:
    numbers = normal(keys(), (3000,)).flatten().double()
    n = len(numbers)
    assert abs(numbers.mean()) < 5 / math.sqrt(n)
    assert abs(numbers.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((numbers**3).mean()) < 5 * math.sqrt(15 / n)
    assert abs((numbers**4).mean() - 3) < 5 * math.sqrt(96 / n)
    cdf = torch.special.ndtr(numbers.sort().values)
    distance = (cdf - (torch.arange(n) + 0.5) / n).abs().max()
    assert distance < 2 / math.sqrt(n)  # Kolmogorov-Smirnov, far beyond the 99.9 % quantile of 1.95
