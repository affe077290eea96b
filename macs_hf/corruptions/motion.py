"""Motion blur: a one-sided Gaussian along a line, with an angle of its own for each image.

    out(x, y) = sum_i w_i in(x + ceil(i cos a - 1/2), y + ceil(i sin a - 1/2)),   i = 0 .. 2r,   w_i ~ exp(-i^2 / (2 sigma^2))

The offsets are whole pixels, so with the images sorted by angle each tap needs the same shift for long runs of them: a run is
one addition of shifted slices, and no pixel is looked up by index.
"""

import torch
from torch import Tensor


# Taps whose weight cannot move a pixel by a thousandth of a level are left out.
NEGLIGIBLE_WEIGHT = 1e-6


def motion_blur(images: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Blurs uint8 images `(N, C, H, W)` along `angles` `(N,)`, in degrees; returns whole levels as float32.

    The result is rounded to 16 bits and then floored to 8, as ImageMagick does.
    """
    height, width = images.shape[-2:]
    taps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (taps / sigma) ** 2)
    weights = weights / weights.sum()
    taps = taps[weights > NEGLIGIBLE_WEIGHT]

    angles, order = angles.double().cpu().sort()
    radians = torch.deg2rad(angles)[:, None]
    right = torch.ceil(taps * torch.cos(radians) - 0.5).int()
    down = torch.ceil(taps * torch.sin(radians) - 0.5).int()
    left_pad, top_pad = max(0, -right.min().item()), max(0, -down.min().item())
    pads = (left_pad, max(0, right.max().item()), top_pad, max(0, down.max().item()))
    order = order.to(images.device)
    padded = torch.nn.functional.pad(images[order].float(), pads, mode="replicate")

    blurred = torch.zeros(images.shape, device=images.device)
    for tap, weight in enumerate(weights[: len(taps)].tolist()):
        shifts = torch.stack((down[:, tap] + top_pad, right[:, tap] + left_pad), dim=1)
        runs, lengths = shifts.unique_consecutive(dim=0, return_counts=True)
        start = 0
        for (y, x), length in zip(runs.tolist(), lengths.tolist(), strict=True):
            stop = start + length
            blurred[start:stop].add_(padded[start:stop, :, y : y + height, x : x + width], alpha=weight)
            start = stop
    levels = (blurred * 257).round_().div_(257).floor_()
    return torch.empty_like(levels).index_copy_(0, order, levels)
