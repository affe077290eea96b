"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..randomness import normal
from .filters import gaussian_blur, reflect_101, to_uint8


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


def canny(layer: Tensor, low: float = 50, high: float = 150) -> Tensor:
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
    peak = torch.where(flat, west_east, torch.where(steep, north_south, diagonal)) & (size > low)
    edges = peak & (size > high)
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
        if down >= distance.max():
            break
        length = torch.maximum(across + (KNIGHT - 2) * down, across * (KNIGHT - 2) + down)
        length = torch.maximum(length, across * (KNIGHT - DIAGONAL) + (2 * DIAGONAL - KNIGHT) * down)
        length = torch.maximum(length, across * (2 * DIAGONAL - KNIGHT) + (KNIGHT - DIAGONAL) * down)
        distance[:, down:] = torch.minimum(distance[:, down:], length[:, :-down])
        distance[:, :-down] = torch.minimum(distance[:, :-down], length[:, down:])
    return distance
