"""T(x): mild perturbations of a batch of images, drawn per sample, on the device the batch is on.

All functions take images of shape `(batch, channels, height, width)`, leave them as they are and return new ones.
Noise and blur act wherever the images live (normalised inputs or pixels); [`perturb`] takes them there and back.
"""

import math
from collections.abc import Callable
from typing import NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from ..pixels import PixelStats, jpeg_round_trips
from .objective import Objective


OwnPerturbation = Callable[[Tensor, torch.Generator], Tensor]  # pixels in [0, 1] and a generator in, pixels out


def gaussian_noise(images: Tensor, std: float, generator: torch.Generator | None = None) -> Tensor:
    """`images` plus independent Gaussian noise of standard deviation `std`."""
    noise = torch.randn(images.shape, dtype=images.dtype, device=images.device, generator=generator)
    return images + noise.mul_(std)


def gaussian_blur(images: Tensor, sigma: Tensor) -> Tensor:
    """
    3x3 Gaussian blur with a standard deviation per sample (`sigma` of shape `(batch,)`, in pixels), edges reflected:
    for each sample what torchvision's `gaussian_blur(image, 3, sigma)` gives.
    """
    side = torch.exp(-0.5 / sigma.to(images.dtype).square())
    centre = 1 / (1 + 2 * side)
    side, centre = (side * centre).view(-1, 1, 1, 1), centre.view(-1, 1, 1, 1)
    # The kernel is separable and symmetric: two passes of shifted sums beat a convolution with a kernel per sample.
    padded = F.pad(images, (1, 1, 1, 1), mode="reflect")
    rows = torch.addcmul(centre * padded[:, :, 1:-1], side, padded[:, :, :-2] + padded[:, :, 2:])
    return torch.addcmul(centre * rows[..., 1:-1], side, rows[..., :-2] + rows[..., 2:])


def jpeg(pixels: Tensor, quality: Tensor) -> Tensor:
    """JPEG round trip of pixels in [0, 1], a quality in 1..100 per sample. Runs on the CPU, image by image."""
    return jpeg_round_trips((pixels * 255).round().to(torch.uint8), quality.tolist()).to(pixels.dtype) / 255


def rotate_translate(images: Tensor, degrees: Tensor, shift: Tensor) -> Tensor:
    """
    Each sample turned clockwise about its centre by `degrees` (shape `(batch,)`), then moved by `shift` pixels (shape
    `(batch, 2)`, right and down), bilinear, with what comes in from outside reflected.
    """
    height, width = images.shape[-2:]
    angle = degrees.to(images.dtype) * (math.pi / 180)
    cos, sin = torch.cos(angle), torch.sin(angle)
    shift = shift.to(images.dtype)
    # affine_grid asks where each output pixel comes from, in coordinates that run from -1 to 1 along each side: undo
    # the shift, then turn back, with the aspect ratio taken out so that the turn is rigid.
    dx, dy = shift[:, 0] * (2 / width), shift[:, 1] * (2 / height)
    aspect = height / width
    x_row = torch.stack([cos, sin * aspect, -cos * dx - sin * aspect * dy], dim=-1)
    y_row = torch.stack([-sin / aspect, cos, sin / aspect * dx - cos * dy], dim=-1)
    grid = F.affine_grid(torch.stack([x_row, y_row], dim=1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def name_of(function: OwnPerturbation) -> str:
    """The qualified name of a perturbation: what cards and the record of a run call it."""
    named = function if hasattr(function, "__qualname__") else type(function)  # an object that can be called
    return f"{named.__module__}.{named.__qualname__}"


def check_perturbation(function: OwnPerturbation, pixels: Tensor) -> None:
    """
    Refuse a perturbation of the user's own that does not give valid pixels, or draws from elsewhere than its
    generator, so that a run could not be repeated or resumed. Calls it twice, on `pixels` in [0, 1].
    """

    def refuse(problem: str) -> NoReturn:
        raise ValueError(f"perturbation={name_of(function)} {problem}")

    once, again = (function(pixels.clone(), torch.Generator(pixels.device).manual_seed(0)) for _ in range(2))
    if once.shape != pixels.shape:
        refuse(f"must keep the shape {tuple(pixels.shape)}, got {tuple(once.shape)}.")
    if not (once.min() >= 0 and once.max() <= 1):  # nor NaN
        refuse(f"must return pixels in [0, 1], got values from {once.min():.3g} to {once.max():.3g}: clamp them.")
    if not torch.equal(once, again):
        refuse(
            "gave two results with generators of one seed: draw all random numbers from the generator it is given, as "
            "in torch.rand(size, generator=generator, device=pixels.device)."
        )


def perturb(
    images: Tensor,
    objective: Objective,
    pixel_stats: PixelStats | None = None,
    generator: torch.Generator | None = None,
    function: OwnPerturbation | None = None,
) -> Tensor:
    """
    The perturbed view of normalised `images` that `objective` describes, with parameters drawn per sample.

    Args:
        images (`Tensor` of shape `(batch, channels, height, width)`): What the network is given.
        pixel_stats ([`PixelStats`], *optional*): How they were normalised; needed for JPEG, for
            `perturbation_space="pixel"` and for a `function`.
        generator (`torch.Generator`, *optional*): On the images' device.
        function (`Callable`, *optional*): Takes the place of the objective's perturbation: pixels in [0, 1], red,
            green and blue, and the generator in, pixels of the same shape out.
    """
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(
            f"images of shape {tuple(images.shape)} and type {images.dtype} must be floats of shape (batch, channels, "
            "height, width), as the network is given them."
        )
    if pixel_stats is None and (function is not None or objective.needs_pixel_stats):
        name = repr(objective.perturbation) if function is None else name_of(function)
        raise ValueError(
            f"perturbation={name} acts on pixels, but how images were normalised is not known. Pass the image "
            "processor as processing_class or pixel_stats=PixelStats(mean, std), or use noise or blur with "
            "perturbation_space='normalized'."
        )
    images = images.detach()
    if function is not None:
        return pixel_stats.normalize(function(pixel_stats.to_pixels(images), generator))

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(shape, device=images.device, generator=generator) * (high - low) + low

    size = len(images)
    if objective.perturbation == "geometric":
        turn, reach = objective.rotation_degrees, objective.translation_pixels
        return rotate_translate(images, uniform(-turn, turn, size), uniform(-reach, reach, size, 2))
    if objective.perturbation == "jpeg":
        lowest, highest = objective.jpeg_quality_min, objective.jpeg_quality_max
        quality = torch.randint(lowest, highest + 1, (size,), device=images.device, generator=generator)
        return pixel_stats.normalize(jpeg(pixel_stats.to_pixels(images), quality))

    in_pixels = objective.perturbation_space == "pixel"
    view = pixel_stats.to_pixels(images) if in_pixels else images
    if "noise" in objective.perturbation:
        view = gaussian_noise(view, objective.noise_std, generator)
        view = view.clamp_(0, 1) if in_pixels else view
    if "blur" in objective.perturbation:
        view = gaussian_blur(view, uniform(objective.blur_sigma_min, objective.blur_sigma_max, size))
    return pixel_stats.normalize(view) if in_pixels else view
