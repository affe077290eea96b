"""Motion blur: a one-sided Gaussian along a line, with an angle of its own for each image.

    out(x, y) = sum_i w_i in(x + ceil(i cos a - 1/2), y + ceil(i sin a - 1/2)),    i = 0 .. 2 radius

with weights w_i proportional to exp(-i^2 / (2 sigma^2)). The offsets are whole pixels, so with the images sorted by
angle each tap needs the same shift for long runs of them: a run is one addition of shifted planes, and no pixel is
looked up by index.
"""

import torch
from torch import Tensor


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
