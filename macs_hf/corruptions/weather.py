"""Weather: snow, frost, fog and brightness. Levels are 0 .. 255; parameters for [0, 1] are scaled."""

from functools import lru_cache

import torch
from torch import Tensor

from ..randomness import half_words, look_up, normal, uniform
from .filters import separable, to_uint8, zoom_matrix
from .frost import Textures
from .motion import motion_blur


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
