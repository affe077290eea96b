"""One call for all corruptions: validation, the keys of the random draws, and work in pieces that fit the cache."""

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..randomness import image_keys
from ..report.rows import CORRUPTIONS, SEVERITIES
from . import blur, digital, noise, weather


class Corruption(NamedTuple):
    """`apply(images, parameter, *draws)` is pure; `draw(keys, images, parameter)` makes the numbers it needs."""

    apply: Callable[..., Tensor]
    parameters: dict[str, tuple]
    draw: Callable[..., tuple[Tensor, ...]] | None = None
    piece: int = 1 << 18  # elements that a CPU works on at a time: few fit its cache, many need fewer calls


TABLE = {
    "gaussian_noise": Corruption(noise.gaussian_noise, noise.GAUSSIAN_NOISE, noise.draw_noise),
    "shot_noise": Corruption(noise.shot_noise, noise.SHOT_NOISE, noise.draw_counts),
    "impulse_noise": Corruption(noise.impulse_noise, noise.IMPULSE_NOISE, noise.draw_impulses),
    "defocus_blur": Corruption(blur.defocus_blur, blur.DEFOCUS_BLUR),
    "glass_blur": Corruption(blur.glass_blur, blur.GLASS_BLUR, blur.draw_shifts),
    "motion_blur": Corruption(blur.motion_blur, blur.MOTION_BLUR, blur.draw_angles, 1 << 20),
    "zoom_blur": Corruption(blur.zoom_blur, blur.ZOOM_BLUR, piece=1 << 20),
    "snow": Corruption(weather.snow, weather.SNOW, weather.draw_snow, 1 << 20),
    "frost": Corruption(weather.frost, weather.FROST, weather.draw_crops),
    "fog": Corruption(weather.fog, weather.FOG, weather.draw_fractal, 1 << 20),
    "brightness": Corruption(weather.brightness, weather.BRIGHTNESS),
    "contrast": Corruption(digital.contrast, digital.CONTRAST),
    "elastic_transform": Corruption(digital.elastic_transform, digital.ELASTIC_TRANSFORM, digital.draw_elastic),
    "pixelate": Corruption(digital.pixelate, digital.PIXELATE),
    "jpeg_compression": Corruption(digital.jpeg_compression, digital.JPEG_COMPRESSION),
    "speckle_noise": Corruption(noise.speckle_noise, noise.SPECKLE_NOISE, noise.draw_noise),
    "gaussian_blur": Corruption(blur.gaussian_blur, blur.GAUSSIAN_BLUR),
    "spatter": Corruption(weather.spatter, weather.SPATTER, weather.draw_liquid, 1 << 20),
    "saturate": Corruption(digital.saturate, digital.SATURATE),
}

STOCHASTIC: tuple[str, ...] = tuple(name for name, corruption in TABLE.items() if corruption.draw)
PARAMETER_SETS = ("cifar", "imagenet")
LARGEST_CIFAR = 64  # pixels of the shorter side, up to which "auto" means "cifar"
SMALLEST = 32

_ACCELERATOR_PIECE = 1 << 24


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    params: Literal["auto", "cifar", "imagenet"] = "auto",
    seed: int = 0,
    indices: Sequence[int] | Tensor | None = None,
    frost_textures: str | Path | None = None,
) -> Tensor:
    """Corrupts a batch of images as the CIFAR-C and ImageNet-C benchmarks do.

    Random numbers come from a counter-based generator (see `macs_hf.randomness`): those of an image depend
    only on (`seed`, `name`, `severity`, its index), never on the batch it is in, the order, the process or the
    device. Float images are rounded to 8 bits first and the result is a multiple of 1/255, so uint8
    images and the same divided by 255 give the same pixels. The input is not modified.

    Args:
        images (`Tensor`): `(N, 3, H, W)`, RGB, uint8 or float in [0, 1], each side at least 32.
        name (`str`): One of `CORRUPTIONS`.
        severity (`int`): 1 to 5.
        params (`str`, *optional*, defaults to `"auto"`): Whose severities: `"cifar"`, those of CIFAR-10-C, or
            `"imagenet"`, those of ImageNet-C, which are much stronger; `"auto"` takes the former up to 64 pixels and
            the latter above. Lengths are in pixels as published, whatever the size of the images; only the elastic
            transform, published in units of the image, scales with it.
        seed (`int`, *optional*, defaults to 0): Seed of the random corruptions.
        indices (`Sequence[int]` or `Tensor`, *optional*, defaults to `0 .. N-1`): The images' positions in their
            dataset.
        frost_textures (`str` or `Path`, *optional*): A folder with the original frost photographs, or `"procedural"`;
            see `frost_source`.

    Returns:
        `Tensor`: Of the shape, dtype and device of `images`.

    Example:

    ```python
    >>> import torch
    >>> from macs_hf.corruptions import corrupt
    >>> images = torch.full((2, 3, 32, 32), 128, dtype=torch.uint8)
    >>> corrupt(images, "brightness", 3).unique()
    tensor([166], dtype=torch.uint8)
    >>> alone = corrupt(images[1:], "gaussian_noise", 3, indices=[1])
    >>> torch.equal(alone, corrupt(images, "gaussian_noise", 3)[1:])
    True

    ```
    """
    check_cell(name, severity, params)
    check_images(images)
    positions = _positions(indices, len(images), images.device)
    if len(images) == 0:
        return images.clone()
    levels = to_levels(images)
    corruption = TABLE[name]
    parameter = corruption.parameters[parameter_set(params, *images.shape[2:])][severity - 1]
    extra = ()
    if name == "frost":
        extra = (weather.frost_textures(parameter[-1], *images.shape[2:], images.device, frost_textures),)
    keys = image_keys(operator.index(seed), name, severity, positions)
    elements = corruption.piece if images.device.type == "cpu" else _ACCELERATOR_PIECE
    size = max(1, elements // images[0].numel())
    pieces = []
    for piece, piece_keys in zip(levels.split(size), keys.split(size), strict=True):
        draws = corruption.draw(piece_keys, piece, parameter, *extra) if corruption.draw else ()
        pieces.append(corruption.apply(piece, parameter, *extra, *draws))
    result = torch.cat(pieces)
    return result if images.dtype == torch.uint8 else (result.float() / 255).to(images.dtype)


def parameter_set(params: str, height: int, width: int) -> str:
    """The parameter set for images of this size: the one that is named, or the one that `"auto"` means."""
    fitting = "cifar" if min(height, width) <= LARGEST_CIFAR else "imagenet"
    return fitting if params == "auto" else params


def check_cell(name: str, severity: int, params: str) -> None:
    """Raises a `ValueError` unless there is such a corruption, severity and parameter set."""
    if name not in TABLE:
        raise ValueError(f"Unknown corruption {name!r}: choose from {', '.join(CORRUPTIONS)}.")
    if severity not in SEVERITIES:
        raise ValueError(f"severity={severity!r} is not one of 1, 2, 3, 4, 5.")
    if params not in ("auto", *PARAMETER_SETS):
        raise ValueError(f"params={params!r} is not a parameter set: choose 'auto', 'cifar' or 'imagenet'.")


def check_images(images: Tensor) -> None:
    """Raises an error that says what to do unless `images` is a batch that can be corrupted."""
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a torch.Tensor (N, 3, H, W), got {type(images).__name__}: convert it first.")
    shape = tuple(images.shape)
    if len(shape) != 4 or shape[1] != 3 or min(shape[2:]) < SMALLEST:
        raise ValueError(
            f"images must be RGB, channels first, of at least {SMALLEST} x {SMALLEST} pixels, (N, 3, H, W), got shape "
            f"{shape}: add a batch axis with images[None], move the channels with images.movedim(-1, 1), or resize."
        )
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise TypeError(f"images must be uint8 in 0 .. 255 or float in [0, 1], got {images.dtype}.")
    if images.numel() and not (images.amin() >= 0 and images.amax() <= 1):  # also true of NaN
        raise ValueError(
            f"float images must lie in [0, 1], found values from {images.amin():g} to {images.amax():g}: undo the "
            "normalisation, or pass uint8."
        )


def to_levels(images: Tensor) -> Tensor:
    """Whole levels, uint8, of uint8 images or of float images in [0, 1]."""
    return images if images.dtype == torch.uint8 else (images.float() * 255).round().to(torch.uint8)


def _positions(indices: Sequence[int] | Tensor | None, count: int, device: torch.device) -> Tensor:
    if indices is None:
        return torch.arange(count, device=device)
    positions = torch.as_tensor(indices, device=device)
    if positions.is_floating_point() or positions.dtype == torch.bool or tuple(positions.shape) != (count,):
        found = f"{positions.dtype} of shape {tuple(positions.shape)}"
        raise ValueError(f"indices must hold one integer per image, {count}, got {found}.")
    return positions.long()
