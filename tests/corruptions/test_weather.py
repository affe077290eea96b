"""Snow, frost, fog and brightness on arrays whose result is known."""

import colorsys

import pytest
import torch

from macs_hf.corruptions import corrupt
from macs_hf.corruptions.frost import Textures
from macs_hf.corruptions.weather import BRIGHTNESS, brightness, fog, frost, plasma, snow


def test_snow_without_flakes_whitens() -> None:
    images = torch.tensor([40, 80, 120], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    parameter = (0.1, 0.2, 1, 0.6, 8, 3, 0.9)
    ours = snow(images, parameter, torch.full((1, 32, 32), -9.0), torch.tensor([-90.0]))
    grey = 0.299 * 40 + 0.587 * 80 + 0.114 * 120
    expected = [int(0.9 * level + 0.1 * max(level, 1.5 * grey + 127.5)) for level in (40, 80, 120)]
    assert ours[0, :, 5, 7].tolist() == expected and (ours == ours[..., :1, :1]).all()


def test_snow_falls_along_the_wind_and_is_added_twice() -> None:
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    flakes = torch.full((1, 32, 32), -9.0)
    flakes[0, 20, 4] = 9.0
    ours = snow(images, (0.1, 0.2, 1, 0.6, 2, 1.0, 1.0), flakes, torch.tensor([-90.0]))[0, 0].int()
    assert torch.equal(ours, ours.flip(0, 1))
    column = ours[:, 4].nonzero()[:, 0].tolist()  # a pixel looks upwards, so the streak runs downwards
    assert column == [20, 21, 22, 23] and (ours[20:24, 4].diff() < 0).all()
    assert (ours.sum(0) > 0).nonzero()[:, 0].tolist() == [4, 27]


def test_frost_mixes_the_right_crop() -> None:
    pixels = torch.arange(2 * 3 * 40 * 50).remainder(251).to(torch.uint8).view(2, 3, 40, 50)
    textures = Textures(pixels, ((40, 50), (36, 44)))
    images = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    ours = frost(images, (0.5, 0.5, 1), textures, torch.tensor([1, 0]), torch.tensor([2, 8]), torch.tensor([3, 0]))
    for row, (texture, top, left) in enumerate(((1, 2, 3), (0, 8, 0))):
        crop = pixels[texture, :, top : top + 32, left : left + 32].float()
        assert torch.equal(ours[row], (50 + 0.5 * crop).to(torch.uint8))


def test_plasma_of_four_points() -> None:
    # One step of amplitude 100^2: the corner stays 0, the centre is c; both edges are c / 2 plus their own number.
    c, h, v = 0.5, -0.25, 0.125
    heights = torch.tensor([[0.0, c / 2 + h], [c / 2 + v, c]])
    heights = (heights - heights.min()) / (heights.max() - heights.min())
    assert torch.allclose(plasma(torch.tensor([[c, h, v, 0.0]]), 2.0)[0], heights, atol=1e-6)


def test_plasma_has_a_range_and_roughness() -> None:
    numbers = torch.rand(4, 64 * 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    rough, smooth = plasma(numbers, 1.5), plasma(numbers, 3.0)
    for heights in (rough, smooth):
        assert (heights.amin((1, 2)) == 0).all() and (heights.amax((1, 2)) == 1).all()
    assert rough.diff(dim=2).square().mean() > 3 * smooth.diff(dim=2).square().mean()


def test_fog_keeps_the_brightest_level() -> None:
    images = torch.full((1, 3, 32, 32), 200, dtype=torch.uint8)
    numbers = torch.rand(1, 1024, generator=torch.Generator().manual_seed(0)) * 2 - 1
    foggy = fog(images, (0.5, 3), numbers)
    # Where the map is 1: (200 + 127.5) 200 / 327.5 = 200; where it is 0: 200^2 / 327.5 = 122.1
    assert foggy.max() in (199, 200) and foggy.min() == 122


@pytest.mark.parametrize("shift", BRIGHTNESS["cifar"])
def test_brightness_equals_colorsys(shift: float) -> None:
    colours = torch.randint(0, 256, (500, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    colours[:3] = torch.tensor([[0, 0, 0], [255, 255, 255], [255, 0, 0]])
    ours = brightness(colours.T.reshape(1, 3, 20, 25), shift).view(3, 500).T
    for colour, got in zip(colours.tolist(), ours.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(c / 255 for c in colour))
        expected = [int(c * 255) for c in colorsys.hsv_to_rgb(h, s, min(v + shift, 1))]
        assert max(abs(a - b) for a, b in zip(got, expected, strict=True)) <= 1


def test_frost_of_large_images_enlarges_the_textures() -> None:
    images = torch.zeros(1, 3, 700, 64, dtype=torch.uint8)
    assert corrupt(images, "frost", 3, params="cifar", frost_textures="procedural").float().std() > 1
