"""What 32 pixels at the severities of `cifar` do not show of pixelation, against PIL; saturation of grey."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from macs_hf.corruptions import corrupt
from macs_hf.corruptions.digital import PIXELATE

from .test_blur import random_images


def to_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.movedim(0, -1).numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).movedim(-1, 0)


@pytest.mark.parametrize("params", ["cifar", "imagenet"])
@pytest.mark.parametrize(("height", "width"), [(50, 37), (224, 224)])
def test_pixelate_equals_pil(height: int, width: int, params: str) -> None:
    image = random_images(1, height, width)
    for severity, factor in enumerate(PIXELATE[params], start=1):
        small = to_pil(image[0]).resize((int(width * factor), int(height * factor)), Image.Resampling.BOX)
        expected = from_pil(small.resize((width, height), Image.Resampling.BOX))
        assert torch.equal(corrupt(image, "pixelate", severity, params=params)[0], expected)


def test_saturate_tints_grey_red() -> None:
    grey = torch.full((1, 3, 32, 32), 100, dtype=torch.uint8)
    assert corrupt(grey, "saturate", 5)[0, :, 0, 0].tolist() == [100, 80, 80]
