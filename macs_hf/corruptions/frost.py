"""Textures for the frost corruption: the original photographs where the user has them, else an approximation.

The photographs have no stated author or source, so they are not part of this package. They are read from a folder
that the user names or from an installed `imagecorruptions` (found without importing it: its import fails on current
setups). Without them a Gaussian random field with each photograph's size, mean colour, covariance of colours and
variogram is used in their place, and every result says so.
"""

import importlib.util
import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image

from ..randomness import image_keys, normal


# The published code draws among the first five files; a sixth is never used, and the second and third are equal.
FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
PROCEDURAL = "procedural (approximate)"


# Blur radii, in pixels, of the layers of noise whose sum has a photograph's variogram: how much pixels differ, on
# average, at each distance from 1 to 160. The shares were fitted to that, not to any classifier's accuracy.
SCALES = (0.6, 1.2, 2.5, 6.0, 20.0, 80.0)


class Statistics(NamedTuple):
    """What the random field keeps of a photograph: size, mean (RGB), covariance of colours, share of each scale."""

    size: tuple[int, int]
    mean: tuple[float, float, float]
    covariance: tuple[float, float, float, float, float, float]  # RR RG RB GG GB BB
    shares: tuple[float, ...]  # of the variance, for each of SCALES


_SECOND = Statistics(
    (315, 560), (201, 205, 214), (457, 470, 477, 488, 496, 510), (0.244, 0.039, 0.145, 0.054, 0.034, 0.483)
)
STATISTICS = (
    Statistics((600, 900), (78, 149, 166), (724, 365, 237, 271, 236, 235), (0.306, 0, 0, 0.053, 0.183, 0.458)),
    _SECOND,
    _SECOND,
    Statistics((350, 527), (138, 153, 165), (811, 809, 843, 812, 845, 891), (0.404, 0.005, 0.13, 0, 0.068, 0.392)),
    Statistics((495, 660), (112, 123, 135), (1973, 1921, 1847, 1871, 1801, 1736), (0.301, 0, 0.151, 0.169, 0, 0.38)),
)


class Textures(NamedTuple):
    """`pixels` `(5, 3, H, W)` uint8, each texture in the upper left of its plane; `sizes` their heights and widths."""

    pixels: Tensor
    sizes: tuple[tuple[int, int], ...]


def frost_source(folder: str | Path | None = None) -> str:
    """Where the frost textures come from.

    Args:
        folder (`str` or `Path`, *optional*): A folder with the original files (an error if they are not there), or
            `"procedural"` for the random field even where the files could be found.

    Returns:
        `str`: `"original"`, or `"procedural (approximate)"` when no photographs were found.
    """
    return PROCEDURAL if _folder(folder) is None else "original"


def frost_textures(
    scale: float, height: int, width: int, device: torch.device, folder: str | Path | None = None
) -> Textures:
    """The five textures at `scale`, enlarged where that is too small for a crop of `height` by `width`."""
    found = _folder(folder)
    return _textures(None if found is None else str(found), scale, height, width, device)


def _folder(folder: str | Path | None) -> Path | None:
    if folder == "procedural":
        return None
    if folder is not None:
        missing = [name for name in FILES if not (Path(folder) / name).is_file()]
        if missing:
            raise ValueError(
                f"frost_textures={str(folder)!r} lacks {', '.join(missing)}: pass a folder of the five originals, "
                "or None for those of an installed imagecorruptions or, without it, the procedural random field."
            )
        return Path(folder)
    spec = importlib.util.find_spec("imagecorruptions")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if all((Path(place) / "frost" / name).is_file() for name in FILES):
            return Path(place) / "frost"
    return None


@lru_cache(maxsize=8)
def _textures(folder: str | None, scale: float, height: int, width: int, device: torch.device) -> Textures:
    textures = []
    for texture in _full_size(folder):
        if scale == 0.2:
            texture = texture[:, 2::5, 2::5]  # bilinear at one fifth: every sample falls on the middle pixel of five
        needed = max((height + 1) / texture.shape[1], (width + 1) / texture.shape[2])
        if needed > 1:
            size = [math.ceil(side * needed) for side in texture.shape[1:]]
            texture = torch.nn.functional.interpolate(texture[None].float(), size=size, mode="bilinear")[0].byte()
        textures.append(texture)
    sizes = tuple((texture.shape[1], texture.shape[2]) for texture in textures)
    pixels = torch.zeros(len(textures), 3, *(max(side) for side in zip(*sizes, strict=True)), dtype=torch.uint8)
    for plane, texture in zip(pixels, textures, strict=True):
        plane[:, : texture.shape[1], : texture.shape[2]] = texture
    return Textures(pixels.to(device), sizes)


@lru_cache(maxsize=2)
def _full_size(folder: str | None) -> list[Tensor]:
    if folder is not None:
        return [decode_image(str(Path(folder) / name), mode=ImageReadMode.RGB) for name in FILES]
    return [_random_field(texture, statistics) for texture, statistics in enumerate(STATISTICS)]


def _random_field(texture: int, statistics: Statistics) -> Tensor:
    """`(3, H, W)` uint8: white noise filtered to the scales, its colours mixed to the covariance."""
    height, width = statistics.size
    noise = normal(image_keys(0, "frost texture", 0, torch.tensor([texture])), (3, height, width))[0].double()
    frequency = torch.hypot(torch.fft.fftfreq(height).double()[:, None], torch.fft.rfftfreq(width).double())
    power = sum(
        share * scale**2 * torch.exp(-((2 * math.pi * scale * frequency) ** 2))
        for scale, share in zip(SCALES, statistics.shares, strict=True)
    )
    gain = power.sqrt()
    gain[0, 0] = 0
    field = torch.fft.irfft2(torch.fft.rfft2(noise) * gain, s=(height, width))
    field = field / field.std(dim=(1, 2), keepdim=True)
    covariance = torch.zeros(3, 3, dtype=torch.float64)
    covariance[tuple(torch.triu_indices(3, 3))] = torch.tensor(statistics.covariance, dtype=torch.float64)
    covariance = covariance + covariance.triu(1).T
    # An eigenvalue root, as rounding can leave the nearly grey covariances slightly indefinite.
    values, vectors = torch.linalg.eigh(covariance)
    mixing = vectors * values.clamp(min=0).sqrt()
    colours = torch.einsum("ij,jhw->ihw", mixing, field) + torch.tensor(statistics.mean).double()[:, None, None]
    return colours.clamp(0, 255).byte()
