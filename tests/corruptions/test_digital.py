"""Contrast, elastic transform, pixelation, JPEG and saturation against PIL, SciPy and the standard library."""

import colorsys
import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from macs_hf.corruptions import corrupt
from macs_hf.corruptions.digital import JPEG_COMPRESSION, PIXELATE, SATURATE, contrast, elastic_transform, saturate


def random_images(count: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


def to_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.movedim(0, -1).numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).movedim(-1, 0)


def test_contrast_pulls_to_the_mean() -> None:
    images = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    images[0, 0] = torch.tensor([[0, 100], [100, 200]])
    ours = contrast(images, 0.5)
    assert ours[0, 0].tolist() == [[50, 100], [100, 150]] and not ours[0, 1:].any()


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


@pytest.mark.parametrize("parameter", SATURATE["cifar"] + SATURATE["imagenet"][2:])
def test_saturate_equals_colorsys(parameter: tuple[float, float]) -> None:
    colours = random_images(1, 20, 25)
    colours[0, :, 0, :4] = torch.tensor([[0, 7, 255, 128], [0, 7, 255, 128], [0, 7, 255, 64]])
    ours = saturate(colours, parameter).view(3, 500).T
    factor, summand = parameter
    for colour, got in zip(colours.view(3, 500).T.tolist(), ours.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(c / 255 for c in colour))
        expected = [int(c * 255) for c in colorsys.hsv_to_rgb(h, min(s * factor + summand, 1), v)]
        assert max(abs(a - b) for a, b in zip(got, expected, strict=True)) <= 1


def test_saturate_tints_grey_red() -> None:
    grey = torch.full((1, 3, 32, 32), 100, dtype=torch.uint8)
    assert corrupt(grey, "saturate", 5)[0, :, 0, 0].tolist() == [100, 80, 80]


def test_elastic_identity_and_translation() -> None:
    images = random_images(1, 32, 40)
    none = torch.zeros(1, 2, 32, 40)
    still = elastic_transform(images, (1, 0, 0, 0.1), torch.zeros(1, 3, 2), none)
    assert (still.int() - images.int()).abs().max() <= 1  # truncation
    # All points move by (2, 1) pixels: so does the image.
    points = torch.tensor([2.0, 1.0]).expand(1, 3, 2) / 3.2
    moved = elastic_transform(images, (1, 0, 0, 0.1), points, none)
    difference = (moved[..., 1:, 2:].int() - images[..., :-1, :-2].int()).abs()
    assert difference.max() <= 1 and (difference == 0).float().mean() > 0.5


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
