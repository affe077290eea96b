"""What 32 pixels at the severities of `cifar` do not show of blurs: against SciPy and against plain loops."""

import math

import pytest
import torch
from scipy import ndimage
from torch import Tensor

from macs_hf.corruptions import corrupt
from macs_hf.corruptions.blur import GLASS_BLUR, _disk, _glass_sources, draw_shifts, zoom_blur
from macs_hf.corruptions.filters import gaussian_blur
from macs_hf.randomness import image_keys


def random_images(count: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(("border", "truncate"), [("nearest", 4.0), ("reflect", 3.0)])
@pytest.mark.parametrize(("height", "width", "sigma"), [(32, 32, 0.4), (33, 48, 2.5), (128, 100, 1.5), (130, 97, 6.0)])
def test_gaussian_filter_equals_scipy(height: int, width: int, sigma: float, border: str, truncate: float) -> None:
    images = random_images(2, height, width).float()
    expected = ndimage.gaussian_filter(images.double().numpy(), (0, 0, sigma, sigma), mode=border, truncate=truncate)
    ours = gaussian_blur(images, sigma, truncate=truncate, border=border)
    assert (ours - torch.from_numpy(expected)).abs().max() < 1e-3


def test_disk_sums_to_one_and_keeps_its_shape() -> None:
    # Disks that reach the edge of the grid are smoothed over its mirror image, which adds a little light.
    for radius, sigma, total in ((0.3, 0.4, 1), (3, 0.1, 1), (6, 0.5, 1), (8, 0.5, 1.013), (10, 0.5, 1.0108)):
        disk = _disk(radius, sigma)
        assert math.isclose(disk.sum(), total, abs_tol=1e-4)
        assert torch.allclose(disk, disk.T) and torch.allclose(disk, disk.flip(0))
    three = _disk(3, 0.1)  # sigma too small to smooth: 29 whole pixels within radius 3
    assert three.shape == (7, 7) and torch.allclose(three[three > 1e-6], torch.tensor(1 / 29))


def test_defocus_correlates_with_the_disk() -> None:
    images = random_images(2, 40, 36)
    expected = ndimage.correlate(images.double().numpy(), _disk(6, 0.5).double().numpy()[None, None], mode="mirror")
    ours = corrupt(images, "defocus_blur", 3, params="imagenet")
    assert (ours.double() - torch.from_numpy(expected).floor()).abs().max() <= 1


def test_zoom_blur_is_the_same_by_matrix_and_by_interpolation(monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(2, 64, 64)
    by_matrix = zoom_blur(images, (11, 0.02))
    monkeypatch.setattr("macs_hf.corruptions.blur.LARGEST_ZOOM_MATRIX", 0)
    assert (by_matrix.int() - zoom_blur(images, (11, 0.02)).int()).abs().max() <= 1


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("params", ["cifar", "imagenet"])
def test_glass_copies_as_the_published_loop_does(params: str, severity: int) -> None:
    height, width = 34, 40
    parameter = GLASS_BLUR[params][severity - 1]
    _, reach, sweeps = parameter
    keys = image_keys(0, "glass_blur", severity, torch.arange(3))
    down, right = draw_shifts(keys, torch.zeros(3, 3, height, width), parameter)
    assert down.min() == right.min() == -reach and down.max() == right.max() == reach - 1
    ours = _glass_sources(down, right, reach, height, width)
    for image in range(3):
        values = torch.arange(height * width).view(height, width) + image * height * width
        for sweep in range(sweeps):
            for y in range(height - reach, reach, -1):
                for x in range(width - reach, reach, -1):
                    dy, dx = (int(shift[image, sweep, y - reach - 1, x - reach - 1]) for shift in (down, right))
                    values[y, x] = values[y + dy, x + dx]
        assert torch.equal(ours[image].long(), values)
        assert len(values.unique()) < values.numel()  # a swap would keep them all
