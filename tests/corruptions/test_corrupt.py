"""The one call: every cell, the same pixels whatever the batch, and clear errors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from macs_hf.corruptions import CORRUPTIONS, FAMILIES, PARAMETER_SETS, SEVERITIES, STANDARD_15, STOCHASTIC, corrupt
from macs_hf.corruptions.corrupt import TABLE


def images(count: int = 2, height: int = 32, width: int = 32) -> Tensor:
    """Smooth colours with flat, black and white parts, where ties of the truncation are."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic").clamp(0, 1)
    made = (smooth * 255).to(torch.uint8)
    made[::3, :, :8] = 255
    made[1::3, :, :, :8] = 0
    return made


def test_the_lists() -> None:
    assert len(CORRUPTIONS) == len(set(CORRUPTIONS)) == 19
    assert tuple(name for family in FAMILIES.values() for name in family) == CORRUPTIONS
    assert [len(names) for names in FAMILIES.values()] == [3, 4, 4, 4, 4]
    assert CORRUPTIONS[:15] == STANDARD_15
    assert tuple(TABLE) == CORRUPTIONS
    assert len(STOCHASTIC) == 11
    for corruption in TABLE.values():
        assert all(len(corruption.parameters[params]) == 5 for params in PARAMETER_SETS)


@pytest.mark.parametrize("params", PARAMETER_SETS)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_cell_changes_pixels_and_nothing_else(name: str, params: str) -> None:
    original = images(2, 40, 36)
    given_images = original.clone()
    seen = []
    for severity in SEVERITIES:
        made = corrupt(given_images, name, severity, params=params)
        assert made.shape == original.shape and made.dtype == torch.uint8 and made.data_ptr() != original.data_ptr()
        assert torch.equal(given_images, original)
        assert not torch.equal(made, original)
        seen.append(made)
    assert all(not torch.equal(seen[i], seen[i + 1]) for i in range(4))


@pytest.mark.parametrize("params", PARAMETER_SETS)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_pixels_do_not_depend_on_the_batch(name: str, params: str) -> None:
    batch = images(256)
    indices = torch.arange(1000, 1256)
    for severity in (2, 4):
        together = corrupt(batch, name, severity, params=params, indices=indices)
        shuffled = torch.randperm(256, generator=torch.Generator().manual_seed(1))
        again = corrupt(batch[shuffled], name, severity, params=params, indices=indices[shuffled])
        assert torch.equal(again, together[shuffled])
        for row in (0, 1, 100, 255):
            alone = corrupt(batch[row : row + 1], name, severity, params=params, indices=[1000 + row])
            assert torch.equal(alone[0], together[row])


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(CORRUPTIONS),
    severity=st.sampled_from(SEVERITIES),
    rows=st.lists(st.integers(0, 11), min_size=1, max_size=12),
    seed=st.integers(-(2**63), 2**63 - 1),
)
def test_any_selection_is_a_selection_of_the_result(name: str, severity: int, rows: list[int], seed: int) -> None:
    batch = images(12)
    whole = corrupt(batch, name, severity, seed=seed)
    assert torch.equal(corrupt(batch[rows], name, severity, seed=seed, indices=rows), whole[rows])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_seed_and_index_matter_to_the_stochastic_ones_only(name: str) -> None:
    batch = images(1).expand(2, -1, -1, -1)
    made = corrupt(batch, name, 3)
    stochastic = name in STOCHASTIC
    assert torch.equal(made[0], made[1]) != stochastic
    assert torch.equal(made, corrupt(batch, name, 3, seed=1)) != stochastic


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_floats_give_the_same_pixels(name: str) -> None:
    batch = images()
    expected = corrupt(batch, name, 3)
    for dtype in (torch.float32, torch.float64, torch.float16):
        floats = (batch.double() / 255).to(dtype)
        made = corrupt(floats, name, 3)
        assert made.dtype == dtype
        assert torch.equal((made.double() * 255).round().to(torch.uint8), expected)


def test_layout_does_not_matter() -> None:
    batch = images(3, 32, 40)
    for made in (batch.to(memory_format=torch.channels_last), batch.flip(0).flip(0), batch.expand(3, 3, 32, 40)):
        for name in CORRUPTIONS:
            assert torch.equal(corrupt(made, name, 2), corrupt(batch, name, 2))


def test_the_global_generators_are_left_alone() -> None:
    state = torch.random.get_rng_state()
    for name in STOCHASTIC:
        corrupt(images(), name, 1)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("height", "width", "params"), [(32, 32, "cifar"), (64, 64, "cifar"), (64, 96, "cifar"), (65, 65, "imagenet")]
)
def test_the_size_decides_whose_severities_are_meant(height: int, width: int, params: str) -> None:
    batch = images(1, height, width)
    made = {known: corrupt(batch, "contrast", 3, params=known) for known in PARAMETER_SETS}
    assert not torch.equal(*made.values())
    assert torch.equal(corrupt(batch, "contrast", 3), made[params])


def test_no_images_and_a_seed_of_numpy() -> None:
    assert corrupt(images(0), "fog", 1).shape == (0, 3, 32, 32)
    assert torch.equal(corrupt(images(), "fog", 1, seed=np.int64(3)), corrupt(images(), "fog", 1, seed=3))
    grey = torch.full((2, 3, 32, 32), 128, dtype=torch.uint8)
    assert corrupt(grey, "brightness", 3).unique().tolist() == [166]  # the example of the documentation


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (images().numpy(), TypeError, "ndarray"),
        (images().movedim(1, -1), ValueError, "movedim"),
        (torch.zeros(1, 3, 31, 64, dtype=torch.uint8), ValueError, "31"),
        (images().long(), TypeError, "int64"),
        (images().float() / 255 - 0.5, ValueError, "-0.5"),
        (torch.full((1, 3, 32, 32), float("nan")), ValueError, "nan"),
    ],
)
def test_bad_images(bad: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        corrupt(bad, "fog", 1)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "gausian_noise"}, ValueError, "gaussian_noise, shot_noise"),
        *(({"severity": severity}, ValueError, "severity=") for severity in (0, 6, 2.5, "3", None)),
        ({"params": "mnist"}, ValueError, "'mnist'"),
        ({"name": "brightness", "seed": 1.0}, TypeError, "float"),  # though it draws nothing
        ({"indices": [1, 2, 3]}, ValueError, "indices"),
        ({"indices": [0.5, 1.5]}, ValueError, "indices"),
    ],
)
def test_bad_arguments(change: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        corrupt(images(), **{"name": "fog", "severity": 1} | change)
