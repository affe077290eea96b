"""Linear filters that several corruptions share.

Small images are filtered by matrices, `out = A_h X A_w^T` for every channel of every image: at 32 pixels that is ten
times faster than a convolution, and the borders are part of the matrix. Large ones are sums of shifted planes.
"""

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor


# Above this side, and up to this radius, adding shifted planes is faster than multiplying by matrices.
LARGE_SIDE, SMALL_RADIUS = 96, 14


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Applies `rows` `(h, H)` along the height and `columns` `(w, W)` along the width of `(..., H, W)`."""
    return rows @ (images @ columns.T)


def gaussian_blur(
    images: Tensor, sigma: float, *, truncate: float = 4.0, border: Literal["nearest", "reflect"] = "nearest"
) -> Tensor:
    """Gaussian blur of float images `(..., H, W)`, cut at `truncate` standard deviations like SciPy's.

    Beyond the border, `nearest` repeats the edge and `reflect` mirrors the image with the edge repeated.
    """
    height, width = images.shape[-2:]
    radius = int(truncate * sigma + 0.5)
    if max(height, width) < LARGE_SIDE or radius > SMALL_RADIUS:
        rows = _gaussian_matrix(height, sigma, radius, border).to(images)
        return separable(images, rows, _gaussian_matrix(width, sigma, radius, border).to(images))
    weights = _gaussian_weights(sigma, radius).tolist()
    for axis, side in ((-1, width), (-2, height)):
        padded = images.index_select(axis % images.ndim, _sources(side, radius, border).to(images.device))
        images = padded.narrow(axis, 0, side) * weights[0]
        for shift, weight in enumerate(weights[1:], start=1):
            images.add_(padded.narrow(axis, shift, side), alpha=weight)
    return images


def _gaussian_weights(sigma: float, radius: int) -> Tensor:
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2) if radius else torch.ones_like(offsets)
    return weights / weights.sum()


def _sources(size: int, radius: int, border: str) -> Tensor:
    """The pixels that stand at -radius .. size + radius - 1."""
    places = torch.arange(-radius, size + radius)
    if border == "nearest":
        return places.clamp(0, size - 1)
    places = places % (2 * size)
    return torch.minimum(places, 2 * size - 1 - places)


@lru_cache(maxsize=64)
def _gaussian_matrix(size: int, sigma: float, radius: int, border: str) -> Tensor:
    """`(size, size)` float64: blurs one axis."""
    sources = _sources(size, radius, border).unfold(0, 2 * radius + 1, 1)
    weights = _gaussian_weights(sigma, radius).expand(size, -1)
    return torch.zeros(size, size, dtype=torch.float64).scatter_add_(1, sources, weights)


def zoom_geometry(size: int, factor: float) -> tuple[int, int, int, int]:
    """A centred zoom of one axis: the first pixel, how many are made into how many, and the cut at the start."""
    crop = math.ceil(size / factor)
    zoomed = round(crop * factor)
    return (size - crop) // 2, crop, zoomed, (zoomed - size) // 2


@lru_cache(maxsize=64)
def zoom_matrix(size: int, factor: float) -> Tensor:
    """`(size, size)` float64: crops the centre of one axis and enlarges it linearly, end points on end points."""
    start, crop, zoomed, trim = zoom_geometry(size, factor)
    position = (torch.arange(size, dtype=torch.float64) + trim) * ((crop - 1) / max(zoomed - 1, 1))
    left = position.floor().clamp(0, crop - 1)
    fraction = (position - left)[:, None]
    left = left.long()[:, None]
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, start + left, 1 - fraction)
    return matrix.scatter_add_(1, start + (left + 1).clamp(max=crop - 1), fraction)


def to_uint8(levels: Tensor) -> Tensor:
    """Clips to 0 .. 255 and truncates, as the published benchmark does (it does not round)."""
    return levels.clamp(0, 255).to(torch.uint8)


def reflect_101(images: Tensor, pad: int) -> Tensor:
    """Pads the last two axes with their mirror image, the edge itself not repeated."""
    return torch.nn.functional.pad(images, (pad, pad, pad, pad), mode="reflect")


# ---- Motion ----
# Motion blur: a one-sided Gaussian along a line, with an angle of its own for each image.
#
#     out(x, y) = sum_i w_i in(x + ceil(i cos a - 1/2), y + ceil(i sin a - 1/2)),    i = 0 .. 2 radius
#
# with weights w_i proportional to exp(-i^2 / (2 sigma^2)). The offsets are whole pixels, so with the images sorted by
# angle each tap needs the same shift for long runs of them: a run is one addition of shifted planes, and no pixel is
# looked up by index.


# Taps whose weight cannot move a pixel by a thousandth of a level are left out.
NEGLIGIBLE_WEIGHT = 1e-6


def motion_blur(images: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Blurs uint8 images `(N, C, H, W)` along `angles` `(N,)`, in degrees; returns whole levels as float32.

    The result is rounded to 16 bits and then floored to 8, as ImageMagick does.
    """
    taps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (taps / sigma) ** 2)
    weights = weights / weights.sum()
    kept = weights > NEGLIGIBLE_WEIGHT

    angles, order = angles.cpu().double().sort()
    order = order.to(images.device)
    radians = torch.deg2rad(angles)
    right = torch.ceil(taps[kept, None] * torch.cos(radians) - 0.5).int()
    down = torch.ceil(taps[kept, None] * torch.sin(radians) - 0.5).int()
    left_pad, top_pad = max(0, -int(right.min())), max(0, -int(down.min()))
    pads = (left_pad, max(0, int(right.max())), top_pad, max(0, int(down.max())))
    padded = torch.nn.functional.pad(images.index_select(0, order).float(), pads, mode="replicate")

    image_stride, _, row_stride, _ = padded.stride()
    offsets = (down + top_pad) * row_stride + right + left_pad
    blurred = torch.zeros(images.shape, device=images.device)
    for weight, tap_offsets in zip(weights[kept].tolist(), offsets, strict=True):
        runs, lengths = tap_offsets.unique_consecutive(return_counts=True)
        start = 0
        for offset, length in zip(runs.tolist(), lengths.tolist(), strict=True):
            size = (length, *images.shape[1:])
            shifted = padded.as_strided(size, padded.stride(), start * image_stride + offset)
            blurred.narrow(0, start, length).add_(shifted, alpha=weight)
            start += length
    levels = blurred.mul_(257).round_().div_(257).floor_()
    return torch.empty_like(levels).index_copy_(0, order, levels)
