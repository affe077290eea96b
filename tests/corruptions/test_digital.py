"""Contrast, elastic transform, pixelation, JPEG and saturation against PIL, SciPy and the standard library."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from macs_hf.corruptions import corrupt
from macs_hf.corruptions.digital import JPEG_COMPRESSION, PIXELATE, elastic_transform


def random_images(count: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


def to_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.movedim(0, -1).numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).movedim(-1, 0)


@pytest.mark.parametrize("params", ["cifar", "imagenet"])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (50, 37), (224, 224)])
def test_pixelate_equals_pil(height: int, width: int, params: str) -> None:
    image = random_images(1, height, width)
    for severity, factor in enumerate(PIXELATE[params], start=1):
        small = to_pil(image[0]).resize((int(width * factor), int(height * factor)), Image.Resampling.BOX)
        expected = from_pil(small.resize((width, height), Image.Resampling.BOX))
        assert torch.equal(corrupt(image, "pixelate", severity, params=params)[0], expected)


@pytest.mark.parametrize("params", ["cifar", "imagenet"])
def test_jpeg_equals_pil(params: str) -> None:
    image = random_images(1, 40, 36)
    for severity, quality in enumerate(JPEG_COMPRESSION[params], start=1):
        file = io.BytesIO()
        to_pil(image[0]).save(file, "JPEG", quality=quality)
        assert torch.equal(corrupt(image, "jpeg_compression", severity, params=params)[0], from_pil(Image.open(file)))


def test_saturate_tints_grey_red() -> None:
    grey = torch.full((1, 3, 32, 32), 100, dtype=torch.uint8)
    assert corrupt(grey, "saturate", 5)[0, :, 0, 0].tolist() == [100, 80, 80]


def test_elastic_displacement_equals_scipy() -> None:
    images = random_images(1, 32, 36)
    field = torch.rand(1, 2, 32, 36, generator=torch.Generator().manual_seed(0)) * 2 - 1
    parameter = (1, 0.3, 0.06, 0.1)
    ours = elastic_transform(images, parameter, torch.zeros(1, 3, 2), field)[0]
    smooth = ndimage.gaussian_filter(field[0].double().numpy(), (0, 0.06 * 32, 0.06 * 32), mode="reflect", truncate=3)
    dx, dy = smooth * 0.3 * 32
    y, x = np.mgrid[:32, :36]
    for channel in range(3):
        plane = images[0, channel].double().numpy()
        expected = ndimage.map_coordinates(plane, [y + dy, x + dx], order=1, mode="reflect")
        difference = np.abs(ours[channel].numpy() - np.trunc(expected))
        assert difference.max() <= 1 and (difference == 0).mean() > 0.99
