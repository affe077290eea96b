"""Noise: independent draws per pixel and channel, in units of the full range [0, 1].

gaussian   x + sigma z              shot      Poisson(photons x) / photons
speckle    x + x sigma z            impulse   with probability p: 0 or 1, each as likely
"""

from functools import lru_cache

import torch
from torch import Tensor

from ..randomness import half_words, look_up, normal, uniform
from .filters import to_uint8


GAUSSIAN_NOISE = {"cifar": (0.04, 0.06, 0.08, 0.09, 0.10), "imagenet": (0.08, 0.12, 0.18, 0.26, 0.38)}
SHOT_NOISE = {"cifar": (500, 250, 100, 75, 50), "imagenet": (60, 25, 12, 5, 3)}
IMPULSE_NOISE = {"cifar": (0.01, 0.02, 0.03, 0.05, 0.07), "imagenet": (0.03, 0.06, 0.09, 0.17, 0.27)}
SPECKLE_NOISE = {"cifar": (0.06, 0.1, 0.12, 0.16, 0.2), "imagenet": (0.15, 0.2, 0.35, 0.45, 0.6)}

# A Poisson count is looked up by its rate (256 of them) and a quantile of this many bits.
QUANTILE_BITS = 12


def draw_noise(keys: Tensor, images: Tensor, parameter: float) -> tuple[Tensor]:
    """Standard normal numbers, one per element."""
    return (normal(keys, tuple(images.shape[1:])),)


def gaussian_noise(images: Tensor, sigma: float, noise: Tensor) -> Tensor:
    return to_uint8(torch.add(images, noise, alpha=255 * sigma))


def speckle_noise(images: Tensor, sigma: float, noise: Tensor) -> Tensor:
    return to_uint8((noise * sigma).add_(1).mul_(images))


def draw_impulses(keys: Tensor, images: Tensor, probability: float) -> tuple[Tensor, Tensor]:
    """Which elements are replaced, and which of them by white."""
    number = uniform(keys, tuple(images.shape[1:]))
    return number < probability, number < probability / 2


def impulse_noise(images: Tensor, probability: float, replaced: Tensor, white: Tensor) -> Tensor:
    return torch.where(replaced, white.to(torch.uint8) * 255, images)


def draw_counts(keys: Tensor, images: Tensor, photons: float) -> tuple[Tensor]:
    """Poisson counts with the pixels' rates, by inversion of the distribution function."""
    quantiles = half_words(keys, tuple(images.shape[1:])) >> (16 - QUANTILE_BITS)
    return (look_up(_poisson_table(photons, images.device), quantiles.add_(images, alpha=1 << QUANTILE_BITS)),)


def shot_noise(images: Tensor, photons: float, counts: Tensor) -> Tensor:
    # Many counts fall on a whole level, where a rounding error decides: hence doubles, in the published order, by
    # table. More counts than photons are white.
    levels = (torch.arange(int(photons) + 2, dtype=torch.float64) / photons).clamp(0, 1) * 255
    return look_up(levels.to(torch.uint8).to(images.device), counts.int().clamp(max=int(photons) + 1))


@lru_cache(maxsize=8)
def _poisson_table(photons: float, device: torch.device) -> Tensor:
    """`(256 * 2^QUANTILE_BITS,)` int16: the count at each quantile (row: the pixel's level)."""
    cells = 1 << QUANTILE_BITS
    rates = torch.arange(256, dtype=torch.float64)[:, None] * (photons / 255)
    most = int(photons + 8 * photons**0.5 + 16)
    counts = torch.arange(most, dtype=torch.float64)
    # The probability of k at rate r is exp(k log r - r - log k!); xlogy makes it 1 at k = r = 0.
    distribution = (torch.special.xlogy(counts, rates) - rates - torch.lgamma(counts + 1)).exp().cumsum(1)
    # A quantile q has count k if P(count < k) <= q < P(count <= k): count the steps at or below each quantile.
    steps = torch.ceil(distribution * cells - 0.5).long().clamp_(max=cells)
    table = torch.zeros(256, cells + 1, dtype=torch.int16)
    table.scatter_add_(1, steps, torch.ones_like(steps, dtype=torch.int16))
    return table[:, :cells].cumsum(1, dtype=torch.int16).flatten().to(device)
