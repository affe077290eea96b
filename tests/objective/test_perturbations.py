"""Perturbations against torchvision, closed forms and fixed-seed statistics."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as TF

from macs_hf.objective.objective import PERTURBATIONS, Objective
from macs_hf.objective.perturbations import gaussian_blur, gaussian_noise, jpeg, perturb, rotate_translate
from macs_hf.pixels import PixelStats


STATS = PixelStats((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


def pixels(size: int = 6, height: int = 24, width: int = 32, seed: int = 0) -> Tensor:
    """Smooth images in [0, 1]: JPEG and bilinear interpolation are made for such."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.rand(size, 3, height // 4, width // 4, generator=generator)
    return torch.nn.functional.interpolate(small, (height, width), mode="bilinear")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_noise_has_the_asked_sigma_on_network_inputs() -> None:
    images = STATS.normalize(pixels(32, 64, 64))
    noise = perturb(images, Objective(perturbation="noise", noise_std=0.1), generator=seeded()) - images
    count = noise.numel()
    # Four standard errors of a Gaussian sample's mean and standard deviation.
    assert abs(noise.mean().item()) < 4 * 0.1 / math.sqrt(count)
    assert noise.std().item() == pytest.approx(0.1, rel=4 / math.sqrt(2 * count))
    assert ((noise / 0.1) ** 4).mean().item() == pytest.approx(3, abs=4 * math.sqrt(96 / count))
    # Independent between images, channels and neighbours.
    for other in (noise.roll(1, 0), noise.roll(1, 1), noise.roll(1, 3)):
        assert abs((noise * other).mean().item()) < 4 * 0.01 / math.sqrt(count)


def test_pixel_noise_is_sigma_over_std_in_each_channel_away_from_the_clamp() -> None:
    grey = torch.full((32, 3, 64, 64), 0.5)
    objective = Objective(perturbation="noise", perturbation_space="pixel", noise_std=0.05)
    noise = perturb(STATS.normalize(grey), objective, STATS, seeded()) - STATS.normalize(grey)
    for channel, std in zip(noise.unbind(1), STATS.std, strict=True):
        assert channel.std().item() == pytest.approx(0.05 / std, rel=4 / math.sqrt(2 * channel.numel()))


@pytest.mark.parametrize("perturbation", ["noise", "noise+blur", "jpeg"])
def test_pixel_space_gives_valid_pixels(perturbation: str) -> None:
    objective = Objective(perturbation=perturbation, perturbation_space="pixel", noise_std=0.5)
    images = STATS.normalize((pixels() * 2 - 0.5).clamp(0, 1))
    view = perturb(images, objective, STATS, seeded())
    back = view * torch.tensor(STATS.std).view(3, 1, 1) + torch.tensor(STATS.mean).view(3, 1, 1)
    assert back.min() > -1e-6 and back.max() < 1 + 1e-6
    if perturbation == "noise":
        expected = (STATS.to_pixels(images) + 0.5 * torch.randn(images.shape, generator=seeded())).clamp(0, 1)
        torch.testing.assert_close(back, expected)
        assert (expected == 0).any() and (expected == 1).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blur_is_torchvisions_for_each_sigma(dtype: torch.dtype) -> None:
    images = torch.randn(6, 3, 17, 23, generator=seeded()).to(dtype)
    sigma = torch.tensor([0.1, 0.3, 0.5, 1.0, 1.5, 2.0], dtype=dtype)
    expected = torch.stack([TF.gaussian_blur(i, [3, 3], [s]) for i, s in zip(images, sigma.tolist(), strict=True)])
    torch.testing.assert_close(gaussian_blur(images, sigma), expected, atol=2e-6, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 5.0), st.integers(2, 9), st.integers(2, 9), st.integers(0, 10**6))
def test_blur_keeps_constants_and_range(sigma: float, height: int, width: int, seed: int) -> None:
    images = torch.rand(2, 3, height, width, generator=seeded(seed), dtype=torch.float64)
    blurred = gaussian_blur(images, torch.full((2,), sigma, dtype=torch.float64))
    assert images.min() - 1e-12 <= blurred.min() and blurred.max() <= images.max() + 1e-12
    constant = torch.full_like(images, 0.7)
    torch.testing.assert_close(gaussian_blur(constant, torch.full((2,), sigma)), constant)


def test_noise_comes_before_blur() -> None:
    images = STATS.normalize(pixels())
    objective = Objective(blur_sigma_min=1.3, blur_sigma_max=1.3)
    noisy = gaussian_noise(images, 0.1, seeded())
    expected = torch.stack([TF.gaussian_blur(image, [3, 3], [1.3]) for image in noisy])
    torch.testing.assert_close(perturb(images, objective, generator=seeded()), expected, atol=2e-6, rtol=1e-5)


def test_jpeg_is_torchvisions_at_each_quality() -> None:
    images = (pixels() * 255).round().to(torch.uint8)
    quality = torch.tensor([1, 20, 50, 75, 95, 100])
    expected = torch.stack([TF.jpeg(image, int(q)) for image, q in zip(images, quality, strict=True)])
    assert torch.equal((jpeg(images / 255, quality) * 255).round().to(torch.uint8), expected)


@pytest.mark.parametrize(("height", "width"), [(24, 32), (32, 24), (25, 25)])
def test_rotation_and_translation_are_torchvisions_inside_the_frame(height: int, width: int) -> None:
    images = pixels(5, height, width).double()
    degrees, shift = torch.tensor([5.0, -5.0, 2.5, 0.0, 0.0]), torch.tensor([[0, 0], [2, -1], [0, 2], [1, 2], [-2, 0]])
    ours = rotate_translate(images, degrees, shift.double())
    for mine, image, angle, move in zip(ours, images, degrees.tolist(), shift.tolist(), strict=True):
        theirs = TF.affine(image, angle, move, 1.0, [0.0, 0.0], interpolation=InterpolationMode.BILINEAR)
        torch.testing.assert_close(mine[:, 5:-5, 5:-5], theirs[:, 5:-5, 5:-5], atol=1e-5, rtol=1e-5)


def test_shifts_to_the_right_and_down() -> None:
    images, none = torch.randn(1, 3, 8, 10, generator=seeded(), dtype=torch.float64), torch.zeros(1)
    torch.testing.assert_close(rotate_translate(images, none, torch.zeros(1, 2)), images, atol=1e-5, rtol=0)
    moved = rotate_translate(images, none, torch.tensor([[2.0, 1.0]]))
    torch.testing.assert_close(moved[..., 1:, 2:], images[..., :-1, :-2])
    torch.testing.assert_close(moved[..., 0, 2:], images[..., 0, :-2])  # what comes in is the mirror image
    torch.testing.assert_close(moved[..., 1:, :2], images[..., :-1, :2].flip(-1))
    ramp = torch.arange(12.0, dtype=torch.float64).expand(1, 1, 12, 12)
    between = rotate_translate(ramp, none, torch.tensor([[1.25, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(between[..., 2:-2], ramp[..., 2:-2] - 1.25)


@pytest.mark.parametrize("space", ["normalized", "pixel"])
@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_parameters_differ_within_a_batch_and_follow_the_seed(perturbation: str, space: str) -> None:
    objective = Objective(perturbation=perturbation, perturbation_space=space)
    images = STATS.normalize(pixels(1).expand(4, -1, -1, -1)).contiguous()
    before, global_state = images.clone(), torch.get_rng_state()
    view = perturb(images, objective, STATS, seeded(1))

    assert view.shape == images.shape and view.dtype == images.dtype and not torch.equal(view, images)
    assert torch.equal(images, before) and view.data_ptr() != images.data_ptr()
    assert torch.equal(perturb(images, objective, STATS, seeded(1)), view)
    assert not torch.equal(perturb(images, objective, STATS, seeded(2)), view)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert len({tuple(sample.flatten().tolist()) for sample in view}) == 4


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_views_of_half_precision_images_stay_so_and_carry_no_gradient(perturbation: str) -> None:
    images = STATS.normalize(pixels(2)).to(torch.bfloat16).requires_grad_()
    view = perturb(images, Objective(perturbation=perturbation), STATS, seeded())
    assert view.dtype == torch.bfloat16 and view.isfinite().all() and not view.requires_grad


@pytest.mark.parametrize(("perturbation", "space"), [("jpeg", "normalized"), ("noise+blur", "pixel")])
def test_pixels_without_statistics_are_refused(perturbation: str, space: str) -> None:
    objective = Objective(perturbation=perturbation, perturbation_space=space)
    with pytest.raises(ValueError, match=re.escape(f"perturbation={perturbation!r} ")):
        perturb(pixels(), objective)
