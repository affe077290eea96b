"""Digital: contrast, elastic transform, pixelation, JPEG and saturation."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from ..pixels import jpeg_round_trips
from ..randomness import look_up, uniform
from .filters import gaussian_blur, to_uint8


CONTRAST = {"cifar": (0.75, 0.5, 0.4, 0.3, 0.15), "imagenet": (0.4, 0.3, 0.2, 0.1, 0.05)}
# (unit, amplitude and sigma of the displacement, shift of the affine map's points): lengths are these times unit
# and smaller side. The published ImageNet code has 244 pixels in place of 224, so its lengths are greater than
# meant; kept.
_TYPO = 244 / 224
ELASTIC_TRANSFORM = {
    "cifar": (
        (1, 0, 0, 0.08),
        (1, 0.05, 0.2, 0.07),
        (1, 0.08, 0.06, 0.06),
        (1, 0.1, 0.04, 0.05),
        (1, 0.1, 0.03, 0.03),
    ),
    "imagenet": (
        (_TYPO, 2, 0.7, 0.1),
        (_TYPO, 2, 0.08, 0.2),
        (_TYPO, 0.05, 0.01, 0.02),
        (_TYPO, 0.07, 0.01, 0.02),
        (_TYPO, 0.12, 0.01, 0.02),
    ),
}
PIXELATE = {"cifar": (0.95, 0.9, 0.85, 0.75, 0.65), "imagenet": (0.6, 0.5, 0.4, 0.3, 0.25)}
JPEG_COMPRESSION = {"cifar": (80, 65, 58, 50, 40), "imagenet": (25, 18, 15, 10, 7)}
# (factor, summand) of the saturation
SATURATE = {
    "cifar": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}


def contrast(images: Tensor, factor: float) -> Tensor:
    """Pulls each channel towards its own mean."""
    area = images.shape[2] * images.shape[3]
    mean = images.sum((2, 3), keepdim=True, dtype=torch.int64).float() / area
    return to_uint8((images - mean).mul_(factor).add_(mean))


def draw_elastic(keys: Tensor, images: Tensor, parameter: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Uniform numbers on (-1, 1): shifts of three points `(N, 3, 2)`, displacements `(N, 2, H, W)`, x before y."""
    return uniform(keys, (3, 2)) * 2 - 1, uniform(keys, (2, *images.shape[2:]), lane=1) * 2 - 1


def elastic_transform(images: Tensor, parameter: tuple[float, ...], points: Tensor, displacement: Tensor) -> Tensor:
    """A random affine map, then a smooth random displacement; both bilinear, over mirrored borders."""
    height, width = images.shape[2:]
    unit, *lengths = parameter
    amplitude, sigma, shift = (length * unit * min(height, width) for length in lengths)
    x = torch.arange(width, dtype=torch.float32, device=images.device)
    y = torch.arange(height, dtype=torch.float32, device=images.device)[:, None]
    inverse = _inverse_affine(points.cpu().double() * shift, height, width).to(images.device, torch.float32)
    inverse = inverse[..., None, None]
    source_x = inverse[:, 0, 0] * x + inverse[:, 0, 1] * y + inverse[:, 0, 2]
    source_y = inverse[:, 1, 0] * x + inverse[:, 1, 1] * y + inverse[:, 1, 2]
    grid = torch.stack((source_x * (2 / (width - 1)) - 1, source_y * (2 / (height - 1)) - 1), dim=-1)
    levels = grid_sample(images.float(), grid, padding_mode="reflection", align_corners=True)
    if amplitude:
        field = gaussian_blur(displacement, sigma, truncate=3.0, border="reflect") * amplitude
        grid = torch.stack(
            ((field[:, 0] + x + 0.5) * (2 / width) - 1, (field[:, 1] + y + 0.5) * (2 / height) - 1), dim=-1
        )
        levels = grid_sample(levels, grid, padding_mode="reflection", align_corners=False)
    return to_uint8(levels)


def _inverse_affine(shifts: Tensor, height: int, width: int) -> Tensor:
    """`(N, 2, 3)`: the maps from the moved points back to three corners of a square about the centre."""
    x, y, reach = width // 2, height // 2, min(height, width) // 3
    corners = torch.tensor(
        [[x + reach, y + reach], [x + reach, y - reach], [x - reach, y - reach]],
        dtype=torch.float64,
    )
    moved = torch.cat((corners + shifts, torch.ones_like(shifts[..., :1])), dim=-1)
    return torch.linalg.solve(moved, corners.expand_as(shifts)).mT


def pixelate(images: Tensor, factor: float) -> Tensor:
    """Shrinks by averages over boxes of whole pixels, each axis rounded to 8 bits, and enlarges by repetition."""
    height, width = images.shape[2:]
    rows, tall, back_rows = _boxes(height, int(height * factor), images.device)
    columns, wide, back_columns = _boxes(width, int(width * factor), images.device)
    narrow = (images.float() @ columns.T).div_(wide).add_(0.5).floor_()
    small = (rows @ narrow).div_(tall[:, None]).add_(0.5).to(torch.uint8)
    return small.index_select(2, back_rows).index_select(3, back_columns)


@lru_cache(maxsize=32)
def _boxes(size: int, small: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Which pixels each small one averages `(small, size)`, how many they are, and where each pixel returns to."""
    scale = size / small
    pixel = torch.arange(size)
    centre = (torch.arange(small, dtype=torch.float64)[:, None] + 0.5) * scale
    # Pillow tests a pixel twice, in doubles; where its centre falls on the edge of a box both tests matter.
    window = (pixel >= (centre - scale / 2 + 0.5).floor()) & (pixel < (centre + scale / 2 + 0.5).floor())
    offset = (pixel - centre + 0.5) * (1 / scale)
    member = (window & (offset > -0.5) & (offset <= 0.5)).float()
    back = ((pixel.double() + 0.5) * (small / size)).long()
    return member.to(device), member.sum(1).to(device), back.to(device)


def jpeg_compression(images: Tensor, quality: int) -> Tensor:
    """Encodes and decodes each image on the CPU, with colour at half the resolution."""
    return jpeg_round_trips(images, [quality] * len(images))


def saturate(images: Tensor, parameter: tuple[float, float]) -> Tensor:
    """Changes the saturation of HSV: the distance of each channel from the largest is scaled.

    Grey pixels have hue 0, so a summand tints them red, as in the published data.
    """
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    ratios, lows = _saturation_tables(*parameter, images.device)
    colour = (value.int() << 8).add_(least)
    levels = to_uint8(value - (value.float() - images).mul_(look_up(ratios, colour)))
    levels = torch.where(images == least, look_up(lows, colour), levels)
    levels[:, :1] = torch.where(value == least, value, levels[:, :1])
    return levels


@lru_cache(maxsize=16)
def _saturation_tables(factor: float, summand: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """For the largest channel (row) and the least (column): new saturation over old, and the new level of the least.

    The latter often is a whole level, which a rounding error decides: hence doubles, in the order of the conversion
    from HSV.
    """
    level = torch.arange(256, dtype=torch.float64) / 255
    value = level[:, None]
    old = ((value - level) / value).nan_to_num(0).clamp(0, 1)
    new = (old * factor + summand).clamp(0, 1)
    ratios = torch.where(old > 0, new / old, 0).float()
    return ratios.flatten().to(device), (value * (1 - new) * 255).to(torch.uint8).flatten().to(device)
