"""Noise on tiny arrays, and the distribution of Poisson counts."""

import math

import pytest
import torch

from macs_hf.corruptions import corrupt
from macs_hf.corruptions.noise import draw_counts
from macs_hf.randomness import image_keys


@pytest.mark.parametrize("photons", [3, 25, 75, 500])
def test_counts_are_poisson(photons: int) -> None:
    levels = torch.tensor([0, 51, 128, 255], dtype=torch.uint8)
    images = levels.view(1, 4, 1, 1).expand(50, 4, 64, 64)
    (counts,) = draw_counts(image_keys(0, "shot_noise", 1, torch.arange(50)), images, photons)
    n = 50 * 64 * 64
    for level, drawn in zip(levels.tolist(), counts.double().movedim(1, 0).flatten(1), strict=True):
        rate = photons * level / 255
        assert abs(drawn.mean() - rate) <= 5 * math.sqrt(rate / n) + 1e-3 * math.sqrt(rate)
        assert abs(drawn.var() - rate) <= 5 * math.sqrt((rate + 2 * rate**2) / n) + 2e-3 * rate
        for count in range(int(rate), int(rate) + 3):
            probability = (
                math.exp(count * math.log(rate) - rate - math.lgamma(count + 1)) if rate else float(count == 0)
            )
            share = (drawn == count).double().mean()
            assert abs(share - probability) <= 5 * math.sqrt(probability / n) + 2**-12


def test_impulse_share() -> None:
    images = torch.full((64, 3, 64, 64), 128, dtype=torch.uint8)
    noisy = corrupt(images, "impulse_noise", 5)
    n, p = images.numel(), 0.07
    for value in (0, 255):
        assert abs((noisy == value).double().mean() - p / 2) < 5 * math.sqrt(p / 2 / n)
    assert (((noisy == 0) | (noisy == 255)) | (noisy == 128)).all()


def test_gaussian_noise_has_the_published_deviation() -> None:
    images = torch.full((32, 3, 64, 64), 128, dtype=torch.uint8)
    noise = corrupt(images, "gaussian_noise", 5).double() - 128
    assert abs(noise.mean() + 0.5) < 0.2  # truncation
    assert abs(noise.std() - math.sqrt(25.5**2 + 1 / 12)) < 0.2
