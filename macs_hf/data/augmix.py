"""AugMix views of a batch of images, as `torchvision.transforms.v2.AugMix(all_ops=False)` makes them one by one.

[AugMix](https://huggingface.co/papers/1912.02781) mixes an image with three chains of one to three operations each:
`m x + (1 - m) (w_1 chain_1(x) + w_2 chain_2(x) + w_3 chain_3(x))`, with `m` uniform and `w` uniform on the simplex. An
operation has one of three magnitudes, so that few differ; images that get the same one next go through it together.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as TF


CHAINS, LONGEST = 3, 3
LEVELS = 3  # magnitudes that an operation has at severity 3
BINS = 10  # of which the first `LEVELS` are used
# Values that chains work on at a time; with more, memory grows and nothing gets faster.
PIECE = 1 << 22

Operation = Callable[[Tensor], Tensor]


class AugMix:
    """
    Makes one view of each image.

    Args:
        size (`tuple[int, int]`): Height and width of the images.
    """

    # Uniform numbers per view: the weights, the length of each chain, each step's operation and magnitude.
    NUMBERS: ClassVar[int] = 1 + (CHAINS - 1) + CHAINS + 2 * CHAINS * LONGEST

    def __init__(self, size: tuple[int, int]) -> None:
        variants = operation_variants(*size)
        self.operations = list(dict.fromkeys(variants))  # some do not depend on their magnitude
        self._operation_of = torch.tensor([self.operations.index(variant) for variant in variants])

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """
        Args:
            images (`Tensor` of shape `(batch, 3, height, width)`): uint8, RGB.
            numbers (`Tensor` of shape `(batch, NUMBERS)`): Uniform in (0, 1).
        """
        together = max(1, PIECE // (CHAINS * images[0].numel())) if len(images) else 1
        pieces = zip(images.split(together), numbers.split(together), strict=True)
        return torch.cat([self._mixed(*piece) for piece in pieces])

    def _mixed(self, images: Tensor, numbers: Tensor) -> Tensor:
        kept, weights, lengths, steps = draw(numbers)
        chains = images.repeat_interleave(CHAINS, dim=0)
        for step in range(LONGEST):
            chosen = torch.where(lengths > step, self._operation_of[steps[..., step]], -1).flatten()
            for number in chosen.unique().tolist():
                if number >= 0 and self.operations[number] is not None:
                    rows = (chosen == number).nonzero().flatten()
                    chains[rows] = self.operations[number](chains[rows])
        mixed = kept[:, None, None, None] * images
        for chain in range(CHAINS):
            mixed.add_(weights[:, chain, None, None, None] * chains[chain::CHAINS])
        return mixed.to(torch.uint8)


def draw(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    From uniform numbers `(batch, NUMBERS)`: the weight of the image `(batch,)`, the weights of its chains
    `(batch, 3)`, their lengths `(batch, 3)`, and the operation of each step `(batch, 3, 3)`, as an index of
    `operation_variants`.
    """
    kept = numbers[:, 0]
    # The gaps between sorted uniform numbers are uniform on the simplex: Dirichlet's distribution for alpha=1.
    cuts = numbers[:, 1:CHAINS].sort(dim=1).values
    weights = torch.diff(cuts, dim=1, prepend=torch.zeros(len(cuts), 1), append=torch.ones(len(cuts), 1))
    lengths = 1 + (numbers[:, CHAINS : 2 * CHAINS] * LONGEST).long()
    choices = numbers[:, 2 * CHAINS :].view(-1, CHAINS, LONGEST, 2)
    operation, variant = (choices[..., 0] * 9).long(), (choices[..., 1] * 2 * LEVELS).long()
    return kept, weights * (1 - kept[:, None]), lengths, operation * 2 * LEVELS + variant


def operation_variants(height: int, width: int) -> list[Operation | None]:
    """
    The nine operations, each in `2 * LEVELS` equally likely variants (three magnitudes, of either sign where there is
    one); `None` changes nothing.
    """
    bilinear = {"interpolation": InterpolationMode.BILINEAR}
    shear = partial(TF.affine, angle=0.0, translate=[0, 0], scale=1.0, center=[0, 0], **bilinear)
    shears = [math.degrees(math.atan(slope)) for slope in _signed(_magnitudes(0.0, 0.3))]
    posterize = [partial(TF.posterize, bits=round(bits)) for bits in _magnitudes(4.0, 0.0)]
    solarize = [partial(TF.solarize, threshold=255.0 * share) for share in _magnitudes(1.0, 0.0)]
    return [
        *(partial(shear, shear=[degrees, 0.0]) if degrees else None for degrees in shears),
        *(partial(shear, shear=[0.0, degrees]) if degrees else None for degrees in shears),
        *(partial(translate, right=int(pixels), down=0) for pixels in _signed(_magnitudes(0.0, width / 3.0))),
        *(partial(translate, right=0, down=int(pixels)) for pixels in _signed(_magnitudes(0.0, height / 3.0))),
        *(partial(TF.rotate, angle=a, **bilinear) if a else None for a in _signed(_magnitudes(0.0, 30.0))),
        *(operation for operation in posterize for _ in range(2)),
        *(operation for operation in solarize for _ in range(2)),
        *([TF.autocontrast] * 2 * LEVELS),
        *([TF.equalize] * 2 * LEVELS),
    ]


def _magnitudes(first: float, last: float) -> list[float]:
    return torch.linspace(first, last, BINS)[:LEVELS].tolist()


def _signed(magnitudes: list[float]) -> list[float]:
    return [sign * magnitude for magnitude in magnitudes for sign in (1, -1)]


def translate(images: Tensor, right: int, down: int) -> Tensor:
    """Images moved by whole pixels, black where nothing comes in."""
    height, width = images.shape[2:]
    moved = torch.zeros_like(images)
    moved[:, :, max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = images[
        :, :, max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)
    ]
    return moved
