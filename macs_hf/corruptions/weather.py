"""Weather: snow, frost, fog, brightness, and spatter on the lens.

Levels are 0 .. 255; parameters for [0, 1] are scaled.
"""

import importlib.util
import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from ..randomness import half_words, image_keys, look_up, normal, uniform
from .filters import gaussian_blur, motion_blur, reflect_101, separable, to_uint8, zoom_matrix


# ---- Textures of frost ----
# The original photographs where the user has them, else an approximation.
#
# The photographs have no stated author or source, so they are not part of this package. They are read from a folder
# that the user names or from an installed `imagecorruptions` (found without importing it: its import fails on current
# setups). Without them a Gaussian random field with each photograph's size, mean colour, covariance of colours and
# variogram is used in their place, and every result says so.


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
    return _textures(_folder(folder), scale, height, width, device)


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
def _textures(folder: Path | None, scale: float, height: int, width: int, device: torch.device) -> Textures:
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
def _full_size(folder: Path | None) -> list[Tensor]:
    if folder is not None:
        photographs = [np.array(Image.open(folder / name).convert("RGB")) for name in FILES]
        return [torch.from_numpy(photograph).movedim(-1, 0) for photograph in photographs]
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


# ---- Snow, frost, fog, brightness ----


# (mean and deviation of the flakes, their zoom, threshold, motion radius and sigma, weight of the unwhitened image)
SNOW = {
    "cifar": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "imagenet": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
}
# (weight of the image, weight of the texture, size of the texture)
FROST = {
    "cifar": ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    "imagenet": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
}
# (thickness, decay of the roughness)
FOG = {
    "cifar": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "imagenet": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
}
BRIGHTNESS = {"cifar": (0.05, 0.1, 0.15, 0.2, 0.3), "imagenet": (0.1, 0.2, 0.3, 0.4, 0.5)}


def draw_snow(keys: Tensor, images: Tensor, parameter: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Standard normal flakes `(N, H, W)` and the wind's angles, in degrees, uniform on (-135, -45)."""
    return normal(keys, tuple(images.shape[2:])), uniform(keys, (1,), lane=1)[:, 0] * 90 - 135


def snow(images: Tensor, parameter: tuple[float, ...], flakes: Tensor, angles: Tensor) -> Tensor:
    mean, deviation, zoom, threshold, radius, sigma, kept = parameter
    layer = flakes * deviation + mean
    if zoom != 1:
        rows, columns = (zoom_matrix(side, zoom).to(layer) for side in layer.shape[1:])
        layer = separable(layer, rows, columns)
    layer = to_uint8(layer.mul(255).mul_(layer >= threshold))
    layer = motion_blur(layer[:, None], radius, sigma, angles)
    levels = images.float()
    grey = levels[:, :1] * 0.299 + levels[:, 1:2] * 0.587 + levels[:, 2:] * 0.114
    whitened = torch.maximum(levels, grey.mul_(1.5).add_(127.5)).mul_(1 - kept).add_(levels, alpha=kept)
    return to_uint8(whitened.add_(layer + layer.flip(2, 3)))


def draw_crops(
    keys: Tensor, images: Tensor, parameter: tuple[float, ...], textures: Textures
) -> tuple[Tensor, Tensor, Tensor]:
    """Which texture, and the upper left corner of the crop, for each image."""
    number = half_words(keys, (3,)).long()
    texture = (number[:, 0] * len(textures.sizes)) >> 16
    room = torch.tensor(textures.sizes, device=images.device) - torch.tensor(images.shape[2:], device=images.device)
    corner = (number[:, 1:] * room[texture]) >> 16
    return texture, corner[:, 0], corner[:, 1]


def frost(
    images: Tensor, parameter: tuple[float, ...], textures: Textures, texture: Tensor, top: Tensor, left: Tensor
) -> Tensor:
    image_weight, texture_weight, _ = parameter
    windows = textures.pixels.unfold(2, images.shape[2], 1).unfold(3, images.shape[3], 1)
    crops = windows[texture, :, top, left]
    return to_uint8((images.float() * image_weight).add_(crops, alpha=texture_weight))


def draw_fractal(keys: Tensor, images: Tensor, parameter: tuple[float, float]) -> tuple[Tensor]:
    """Uniform numbers on (-1, 1), one per point of the smallest square map of 2^k that covers the image."""
    side = 1 << (max(images.shape[2:]) - 1).bit_length()
    return (uniform(keys, (side * side,)) * 2 - 1,)


def fog(images: Tensor, parameter: tuple[float, float], numbers: Tensor) -> Tensor:
    thickness, decay = parameter
    map_ = plasma(numbers, decay)[:, None, : images.shape[2], : images.shape[3]]
    levels = images + map_ * (255 * thickness)
    brightest = images.amax((1, 2, 3), keepdim=True).float()
    return to_uint8(levels * (brightest / (brightest + 255 * thickness)))


def plasma(numbers: Tensor, decay: float) -> Tensor:
    """A fractal height map by the diamond-square algorithm on a torus, scaled to [0, 1].

    Args:
        numbers (`Tensor`): `(N, n^2)` on (-1, 1), in the order of use: per step the centres of the squares, then
            the middles of their horizontal and of their vertical edges. (One number is left over.)
        decay (`float`): By how much the amplitude shrinks from a step to the next, before it is squared.
    """
    count, side = len(numbers), int(numbers.shape[1] ** 0.5)
    heights = torch.zeros(count, side, side, device=numbers.device)
    amplitude, step, used = 100.0, side, 0
    while step >= 2:
        half, cells = step // 2, (side // step) ** 2
        wobble = (numbers[:, used : used + 3 * cells] * amplitude**2).view(count, 3, side // step, side // step)
        used += 3 * cells
        corners = heights[:, ::step, ::step]
        below = corners + corners.roll(-1, 1)
        centres = (below + below.roll(-1, 2)) / 4 + wobble[:, 0]
        heights[:, half::step, half::step] = centres
        beside = corners + corners.roll(-1, 2)
        heights[:, ::step, half::step] = (centres + centres.roll(1, 1) + beside) / 4 + wobble[:, 1]
        heights[:, half::step, ::step] = (centres + centres.roll(1, 2) + below) / 4 + wobble[:, 2]
        step, amplitude = half, amplitude / decay
    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)


def brightness(images: Tensor, shift: float) -> Tensor:
    """Raises the value of HSV: every channel grows in proportion to the largest, looked up by both."""
    value = images.amax(1, keepdim=True).int() << 8
    return look_up(_brightness_table(shift, images.device), value + images)


@lru_cache(maxsize=16)
def _brightness_table(shift: float, device: torch.device) -> Tensor:
    """`(65536,)` uint8: the new level for the largest channel (row) and the channel itself (column)."""
    level = torch.arange(256, dtype=torch.float64) / 255
    value = level[:, None]
    # Whole levels are common here and a rounding error decides them: doubles, in the order of the conversion from HSV.
    saturation = torch.where(value > 0, (value - level) / value, 0).clamp(0, 1)
    raised = (value + shift).clamp(0, 1) * (1 - saturation)
    return (raised * 255).to(torch.uint8).flatten().to(device)


# ---- Spatter ----
# Drops of water (severities 1 to 3) or mud (4 and 5) on the lens.


# (mean and deviation of the liquid, sigma of its smoothing, threshold, strength (water) or sigma of the splashes
# (mud), kind)
SPATTER = {
    "cifar": (
        (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
        (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
        (0.65, 0.3, 1, 0.69, 0.5, "water"),
        (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
        (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
    ),
    "imagenet": (
        (0.65, 0.3, 4, 0.69, 0.6, "water"),
        (0.65, 0.3, 3, 0.68, 0.6, "water"),
        (0.65, 0.3, 2, 0.68, 0.5, "water"),
        (0.65, 0.3, 1, 0.65, 1.5, "mud"),
        (0.67, 0.4, 1, 0.65, 1.5, "mud"),
    ),
}
WATER, MUD = (175, 238, 238), (63, 42, 20)
WEAK, STRONG = 50, 150  # gradients of edges
FARTHEST = 20  # distances to an edge are capped there
# Lengths of a diagonal and of a knight's move, in the sixteen binary places of the published distance transform.
DIAGONAL, KNIGHT = round(1.4 * 65536) / 65536, round(2.1969 * 65536) / 65536


def draw_liquid(keys: Tensor, images: Tensor, parameter: tuple) -> tuple[Tensor]:
    """Standard normal numbers `(N, H, W)`."""
    return (normal(keys, tuple(images.shape[2:])),)


def spatter(images: Tensor, parameter: tuple, noise: Tensor) -> Tensor:
    mean, deviation, sigma, threshold, strength, kind = parameter
    liquid = gaussian_blur(noise * deviation + mean, sigma)
    liquid = liquid * (liquid >= threshold)
    if kind == "water":
        mask, colour = _water(liquid) * strength, torch.tensor(WATER, device=images.device).view(3, 1, 1)
        return to_uint8(images + mask[:, None] * colour)
    mask = gaussian_blur((liquid > threshold).float(), strength)
    mask = (mask * (mask >= 0.8))[:, None]
    colour = torch.tensor(MUD, device=images.device).view(3, 1, 1)
    return to_uint8(images * (1 - mask) + mask * colour)


def _water(liquid: Tensor) -> Tensor:
    """The liquid, embossed by the distance from its edges; the brightest point of each image is 1."""
    levels = ((liquid * 255).int() & 255).float()  # above 1 the published code wraps around
    relief = _equalize(_box(edge_distance(canny(levels))).floor())
    mask = levels * _box(_emboss(relief)).round_()
    # Without any liquid the published code divides by zero; here the image does not change.
    return mask / mask.amax((1, 2), keepdim=True).clamp(min=1)


def _box(layer: Tensor) -> Tensor:
    """The mean of 3 x 3 pixels."""
    p = reflect_101(layer[:, None], 1)[:, 0]
    p = p[:, :-2] + p[:, 1:-1] + p[:, 2:]
    return (p[..., :-2] + p[..., 1:-1] + p[..., 2:]).div_(9)


def _emboss(layer: Tensor) -> Tensor:
    """Correlates with the kernel (-2 -1 0; -1 1 1; 0 1 2) and clips to whole levels."""
    p = reflect_101(layer[:, None], 1)[:, 0]
    height, width = layer.shape[1:]

    def at(y: int, x: int) -> Tensor:
        return p[:, y : y + height, x : x + width]

    relief = at(1, 1) + at(1, 2) + at(2, 1) - at(0, 1) - at(1, 0)
    return (at(2, 2) - at(0, 0)).mul_(2).add_(relief).clamp_(0, 255)


def _equalize(layer: Tensor) -> Tensor:
    """Equalises the histogram of whole levels `(N, H, W)`: the darkest present goes to 0, the brightest to 255."""
    count, area = len(layer), layer[0].numel()
    levels = layer.long().flatten(1)
    histogram = torch.zeros(count, 256, device=layer.device).scatter_add_(1, levels, torch.ones_like(layer).flatten(1))
    darkest = histogram.gather(1, levels.amin(1, keepdim=True))
    scale = 255 / (area - darkest)
    table = ((histogram.cumsum(1) - darkest) * scale).round().clamp(0, 255)
    table = torch.where(darkest == area, levels[:, :1].float(), table)  # a constant layer stays
    return table.gather(1, levels).view(layer.shape)


def canny(layer: Tensor) -> Tensor:
    """Canny's edges of whole levels `(N, H, W)`: Sobel gradients, thinning along four directions, hysteresis."""
    p = pad(layer[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    upper, middle, lower = p[:, :-2], p[:, 1:-1], p[:, 2:]
    smooth, slope = upper + 2 * middle + lower, lower - upper
    dx = smooth[..., 2:] - smooth[..., :-2]
    dy = slope[..., :-2] + 2 * slope[..., 1:-1] + slope[..., 2:]
    size = dx.abs() + dy.abs()
    m = pad(size, (1, 1, 1, 1))
    centre = slice(1, -1)
    before, after = slice(None, -2), slice(2, None)
    # An exact comparison of slopes in whole numbers, tan 22.5 degrees in 15 binary places.
    across, along = dx.abs().int(), dy.abs().int() << 15
    flat = along < across * 13573
    steep = along > across * (13573 + (2 << 15))
    west_east = (size > m[:, centre, before]) & (size >= m[:, centre, after])
    north_south = (size > m[:, before, centre]) & (size >= m[:, after, centre])
    falling = (size > m[:, before, before]) & (size > m[:, after, after])
    rising = (size > m[:, before, after]) & (size > m[:, after, before])
    diagonal = torch.where((dx < 0) ^ (dy < 0), rising, falling)
    peak = torch.where(flat, west_east, torch.where(steep, north_south, diagonal)) & (size > WEAK)
    edges = peak & (size > STRONG)
    while True:
        grown = _dilate(edges) & peak
        if torch.equal(grown, edges):
            return edges
        edges = grown


def _dilate(mask: Tensor) -> Tensor:
    """Adds the eight neighbours."""
    wide = mask.clone()
    wide[..., 1:] |= mask[..., :-1]
    wide[..., :-1] |= mask[..., 1:]
    tall = wide.clone()
    tall[:, 1:] |= wide[:, :-1]
    tall[:, :-1] |= wide[:, 1:]
    return tall


def edge_distance(edges: Tensor) -> Tensor:
    """The 5 x 5 chamfer distance of each pixel of `(N, H, W)` from the nearest edge, at most `FARTHEST`.

    The length of the shortest path of straight, diagonal and knight's moves is a norm, the largest of four linear
    forms in the distances across and down. So the nearest edge of each row suffices, and rows farther away than the
    result so far do not matter.
    """
    width = edges.shape[-1]
    place = torch.arange(width, dtype=torch.float32, device=edges.device)
    nearest_left = torch.where(edges, place, float(-FARTHEST)).cummax(-1).values
    nearest_right = torch.where(edges, place, float(width + FARTHEST)).flip(-1).cummin(-1).values.flip(-1)
    across = torch.minimum(place - nearest_left, nearest_right - place).clamp(max=FARTHEST)
    distance = across.clone()
    for down in range(1, FARTHEST):
        if distance.device.type == "cpu" and down >= distance.max():  # an accelerator would have to be waited for
            break
        length = torch.maximum(across + (KNIGHT - 2) * down, across * (KNIGHT - 2) + down)
        length = torch.maximum(length, across * (KNIGHT - DIAGONAL) + (2 * DIAGONAL - KNIGHT) * down)
        length = torch.maximum(length, across * (2 * DIAGONAL - KNIGHT) + (KNIGHT - DIAGONAL) * down)
        distance[:, down:] = torch.minimum(distance[:, down:], length[:, :-down])
        distance[:, :-down] = torch.minimum(distance[:, :-down], length[:, down:])
    return distance
