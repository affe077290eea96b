"""Blur: defocus, frosted glass, motion, zoom and Gaussian. All filters work on levels 0 .. 255 in float32."""

import math
import warnings
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate

from ..randomness import look_up, uniform, words
from .filters import gaussian_blur as gaussian_filter
from .filters import motion_blur as motion_filter
from .filters import reflect_101, to_uint8, zoom_geometry, zoom_matrix


# (radius, sigma of the kernel's own smoothing)
DEFOCUS_BLUR = {
    "cifar": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "imagenet": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
}
# (sigma, largest shift, sweeps)
GLASS_BLUR = {
    "cifar": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "imagenet": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
}
# (radius, sigma)
MOTION_BLUR = {
    "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
}
# (number of zoom factors, step): the factors are 1, 1 + step, ...
ZOOM_BLUR = {
    "cifar": ((7, 0.01), (12, 0.01), (16, 0.01), (21, 0.01), (26, 0.01)),
    "imagenet": ((12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03)),
}
# Above it, and for oblong images, which come in many sizes, building the matrix of a zoom blur would not pay.
LARGEST_ZOOM_MATRIX = 256
GAUSSIAN_BLUR = {"cifar": (0.4, 0.6, 0.7, 0.8, 1), "imagenet": (1, 2, 3, 4, 6)}


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    return to_uint8(gaussian_filter(images.float(), sigma))


def defocus_blur(images: Tensor, parameter: tuple[float, float]) -> Tensor:
    kernel = _disk(*parameter).to(images.device).repeat(3, 1, 1, 1)
    padded = reflect_101(images.float(), kernel.shape[-1] // 2)
    return to_uint8(conv2d(padded, kernel, groups=3))


@lru_cache(maxsize=16)
def _disk(radius: float, sigma: float) -> Tensor:
    """A smoothed disk on the published grid of 17 x 17 (21 x 21 above radius 8), without its empty border."""
    half, reach = (8, 1) if radius <= 8 else (10, 2)
    axis = torch.arange(-half, half + 1)
    disk = (axis**2 + axis[:, None] ** 2 <= radius**2).float()
    window = torch.exp(-0.5 * (torch.arange(-reach, reach + 1).double() / sigma) ** 2)
    window = (window / window.sum()).float()
    smoothed = conv2d(reflect_101((disk / disk.sum())[None, None], reach), window[:, None].mul(window)[None, None])[
        0, 0
    ]
    support = max(1, int(axis[(smoothed > 1e-9).any(0)].max()))
    return smoothed[half - support : half + support + 1, half - support : half + support + 1].contiguous()


def draw_angles(keys: Tensor, images: Tensor, parameter: tuple[float, float]) -> tuple[Tensor]:
    """Degrees, uniform on (-45, 45)."""
    return (uniform(keys, (1,))[:, 0] * 90 - 45,)


def motion_blur(images: Tensor, parameter: tuple[int, float], angles: Tensor) -> Tensor:
    return to_uint8(motion_filter(images, *parameter, angles))


def zoom_blur(images: Tensor, parameter: tuple[int, float]) -> Tensor:
    """The mean of the image and of copies zoomed about its centre."""
    number, step = parameter
    # The floats that numpy.arange gives: at 1.25 the last bit decides a rounding.
    factors = tuple(1 + i * ((1 + step) - 1) for i in range(number))
    height, width = images.shape[2:]
    if height == width <= LARGEST_ZOOM_MATRIX:
        pixels = images.flatten(2).flatten(0, 1).T.float().contiguous()
        return to_uint8(torch.sparse.mm(_zoom_mean(width, factors, images.device), pixels).T.reshape(images.shape))
    levels = images.float()
    total = levels.clone()
    for factor in factors:
        (top, tall, rows, y), (left, wide, columns, x) = (zoom_geometry(side, factor) for side in (height, width))
        crop = levels[:, :, top : top + tall, left : left + wide]
        zoomed = interpolate(crop, size=(rows, columns), mode="bilinear", align_corners=True)
        total += zoomed[:, :, y : y + height, x : x + width]
    return to_uint8(total / (number + 1))


@lru_cache(maxsize=5)
def _zoom_mean(size: int, factors: tuple[float, ...], device: torch.device) -> Tensor:
    """All of it as one sparse matrix on the pixels of a square image, which takes a tenth of the time."""
    matrices = [torch.eye(size, dtype=torch.float64)] + [zoom_matrix(size, factor) for factor in factors]
    places, values = (torch.cat(parts, dim=-1) for parts in zip(*map(_kronecker_square, matrices), strict=True))
    shape = (size * size, size * size)
    matrix = torch.sparse_coo_tensor(places, values / len(matrices), shape, check_invariants=True)
    matrix = matrix.coalesce().float().to(device)
    if device.type != "cpu" or not torch.backends.mkl.is_available():
        return matrix
    with warnings.catch_warnings():  # compressed rows are several times faster, and "in beta state" since 2021
        warnings.simplefilter("ignore", UserWarning)
        return matrix.to_sparse_csr()


def _kronecker_square(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of its Kronecker product with itself that are not zero: their places `(2, n)` and values."""
    places, values, size = matrix.nonzero().T, matrix[matrix != 0], len(matrix)
    return (places[:, :, None] * size + places[:, None]).flatten(1), (values[:, None] * values).flatten()


def draw_shifts(keys: Tensor, images: Tensor, parameter: tuple[float, int, int]) -> tuple[Tensor, Tensor]:
    """Vertical and horizontal shifts `(N, sweeps, h, w)` in -d .. d-1 for the pixels that a sweep visits."""
    _, reach, sweeps = parameter
    shape = (sweeps, images.shape[-2] - 2 * reach, images.shape[-1] - 2 * reach)
    word = words(keys, math.prod(shape)).view(-1, *shape)
    high, low = (word >> 16) & 0xFFFF, word & 0xFFFF
    return ((high * (2 * reach)) >> 16) - reach, ((low * (2 * reach)) >> 16) - reach


def glass_blur(images: Tensor, parameter: tuple[float, int, int], down: Tensor, right: Tensor) -> Tensor:
    """Blur, copy pixels from near by, blur again.

    A sweep visits rows and columns d+1 .. n-d from the last pixel to the first, and each takes the value of the
    pixel that its shift points at. The published code means to swap the two, but it copies; so does this.
    """
    sigma, reach, _ = parameter
    blurs = sigma >= 0.125  # a narrower kernel has only its centre
    levels = to_uint8(gaussian_filter(images.float(), sigma)) if blurs else images
    sources = _glass_sources(down, right, reach, *images.shape[-2:])
    # The three channels of a pixel travel together, as one 32-bit word.
    pixels = torch.zeros(*sources.shape, 4, dtype=torch.uint8, device=images.device)
    pixels[..., :3] = levels.movedim(1, -1)
    copied = look_up(pixels.view(torch.int32).flatten(), sources).view(torch.uint8).view(pixels.shape)
    levels = copied[..., :3].movedim(-1, 1)
    return to_uint8(gaussian_filter(levels.float(), sigma)) if blurs else levels.contiguous()


def _glass_sources(down: Tensor, right: Tensor, reach: int, height: int, width: int) -> Tensor:
    """Where each pixel's value comes from after all sweeps: `(N, H, W)` positions in the flattened batch."""
    count, sweeps = down.shape[:2]
    place = torch.arange(count * height * width, dtype=torch.int32, device=down.device).view(count, height, width)
    region = (slice(None), slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1))
    visited = torch.zeros_like(place, dtype=torch.bool)
    visited[region] = True
    sources = place
    for sweep in range(sweeps):
        moved = place.clone()
        moved[region] += down[:, sweep] * width + right[:, sweep]
        if reach > 1:  # with reach 1 no shift points at a pixel that this sweep has visited before
            _follow_visited(moved.view(-1), (moved > place).logical_and_(look_up(visited.view(-1), moved)).view(-1))
        sources = moved if sweep == 0 else look_up(sources.view(-1), moved)
    return sources


def _follow_visited(moved: Tensor, unresolved: Tensor) -> None:
    """Replaces, in place, pointers at pixels that had already been overwritten by where those got their value.

    `unresolved[p]` says that p takes the *new* value of `moved[p]`. Each round doubles the length of the resolved
    chains.
    """
    active = unresolved.nonzero()[:, 0]
    while len(active):
        targets = moved[active]
        still = unresolved.index_select(0, targets)
        moved[active] = moved.index_select(0, targets)
        unresolved[active] = still
        active = active[still]
