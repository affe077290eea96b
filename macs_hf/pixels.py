"""What an image processor does to an image, found by giving it plain ones.

Its attributes alone mislead: EfficientNet's divides by the standard deviation twice, MobileViT's leaves
`do_normalize=None` and swaps red and blue, Perceiver's crops before it resizes, ConvNeXT's has no crop size but crops.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor


# Portrait and landscape: a processor whose output depends on the shape of the image cannot fill a batch.
PROBES = ((64, 48), (48, 64))
# Measured values this close to the attributes are replaced by them, which float32 has not rounded.
TOLERANCE = 1e-4


class Preparation(NamedTuple):
    """
    An image processor as a function of pixels in [0, 1]: resize to `size`, reorder channels, `(x - mean) / std`.

    Args:
        size: Height and width; `None` if it depends on the image.
        channels: Which of red (0), green (1) and blue (2) each channel of the output shows.
        mean: Per channel of the output.
        std: Per channel of the output.
    """

    size: tuple[int, int] | None
    channels: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def preparation(processor: Any) -> Preparation:
    """
    Measure what `processor` does.

    Raises:
        `ValueError`: if it does not turn an RGB image into three channels, each a scaled and shifted one of the image.
    """
    try:
        shapes = {tuple(_process(processor, (0, 0, 0), size).shape[-2:]) for size in PROBES}
        black, white, *colours = (
            _centre(_process(processor, colour))
            for colour in ((0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255))
        )
        scale = white - black
        # Row: colour; column: channel of the output; 1 where the channel shows all of the colour.
        shown = (torch.stack(colours) - black) / scale
        order = shown.argmax(0)
        if not torch.allclose(shown, torch.eye(3, dtype=shown.dtype)[:, order], atol=1e-2):
            raise ValueError("its output channels are not those of the image")
    except Exception as error:
        raise ValueError(
            f"The image processor {type(processor).__name__} cannot prepare training images ({error}). Use one that "
            "turns an RGB image into `pixel_values` of three channels, such as ViTImageProcessor."
        ) from error
    mean, std = (-black / scale).tolist(), (1 / scale).tolist()
    stated = _stated(processor)
    if stated is not None and np.allclose(stated, (mean, std), atol=TOLERANCE):
        mean, std = stated
    size = shapes.pop() if len(shapes) == 1 else None
    return Preparation(size, tuple(order.tolist()), tuple(mean), tuple(std))


def level_table(processor: Any) -> torch.Tensor:
    """
    What `processor` makes of each of the 256 levels of a pixel, per channel of its output: a table `(3, 256)`, in the
    type of its `pixel_values`.
    """
    greys = [Image.new("RGB", (48, 48), (level, level, level)) for level in range(256)]
    pieces = (greys[start : start + 32] for start in range(0, 256, 32))
    prepared = (processor(piece, return_tensors="pt")["pixel_values"] for piece in pieces)
    return torch.cat([images[:, :, images.shape[2] // 2, images.shape[3] // 2] for images in prepared]).T.contiguous()


@dataclass(frozen=True)
class PixelStats:
    """
    How an image processor normalised pixels in [0, 1].

    Args:
        mean (`tuple[float, ...]`): Per channel of the network's input, or one for all channels.
        std (`tuple[float, ...]`): Likewise.
        channels (`tuple[int, ...]`, *optional*): Which of red (0), green (1) and blue (2) each channel of the input
            shows, such as `(2, 1, 0)` for a network that takes BGR; by default the order stays.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        mean, std = (torch.as_tensor(values, dtype=torch.float64) for values in (self.mean, self.std))
        valid = mean.isfinite().all() and std.isfinite().all() and (std > 0).all() and mean.shape == std.shape
        if not valid or (self.channels is not None and sorted(self.channels) != list(range(len(self.channels)))):
            raise ValueError(
                f"PixelStats of mean={self.mean}, std={self.std}, channels={self.channels}: mean and std are finite, "
                "one per channel or one for all, and std is above 0; channels has red (0), green (1) and blue (2) "
                "once. Pass `image_mean` and `image_std` of the image processor, or PixelStats((0.0,), (1.0,)) if "
                "pixels in [0, 1] were not normalised."
            )

    @classmethod
    def from_processor(cls, processor: object) -> "PixelStats | None":
        """Of a transformers image processor or timm's wrapper, as measured; `None` if it does not give scaled RGB."""
        try:
            prepared = preparation(processor)
        except ValueError:
            return None
        if min(prepared.std) < 0.01:
            return None  # left in bytes, up to 255, or turned into a negative
        channels = None if prepared.channels == (0, 1, 2) else prepared.channels
        if set(prepared.mean) == {0.0} and set(prepared.std) == {1.0}:
            return cls((0.0,), (1.0,), channels)
        return cls(prepared.mean, prepared.std, channels)

    def to_pixels(self, images: Tensor) -> Tensor:
        """The network's input as valid pixels in [0, 1], in the order red, green, blue."""
        pixels = (images * self._per_channel(self.std, images) + self._per_channel(self.mean, images)).clamp_(0, 1)
        if self.channels is None:
            return pixels
        return _take_channels(pixels, [self.channels.index(colour) for colour in range(len(self.channels))])

    def normalize(self, pixels: Tensor) -> Tensor:
        """The network's input of pixels in [0, 1], in the order red, green, blue."""
        if self.channels is not None:
            pixels = _take_channels(pixels, list(self.channels))
        return (pixels - self._per_channel(self.mean, pixels)) / self._per_channel(self.std, pixels)

    @staticmethod
    def _per_channel(values: tuple[float, ...], like: Tensor) -> Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1)


def _take_channels(images: Tensor, channels: list[int]) -> Tensor:
    return images.index_select(-3, torch.tensor(channels, device=images.device))


def _process(processor: Any, colour: tuple[int, int, int], size: tuple[int, int] = (48, 48)) -> torch.Tensor:
    image = Image.new("RGB", size, colour)
    return processor(image, return_tensors="pt")["pixel_values"][0]


def _centre(image: torch.Tensor) -> torch.Tensor:
    """Away from padding, which some processors put around small images."""
    channels, height, width = image.shape
    if channels != 3:
        raise ValueError(f"it gives {channels} channels")
    return image[:, height // 2, width // 2].double()


def _stated(processor: Any) -> list[list[float]] | None:
    """Mean and standard deviation as the attributes have them, if they do."""
    own = {"mean": getattr(processor, "image_mean", None), "std": getattr(processor, "image_std", None)}
    config = getattr(processor, "data_config", None) or own  # timm's
    values = [config["mean"], config["std"]]
    if None in values:
        return None
    if not getattr(processor, "do_normalize", True):
        return [[0.0] * 3, [1.0] * 3]
    values = [list(value) if isinstance(value, list | tuple) else [value] * 3 for value in values]
    return values if all(len(value) == 3 for value in values) else None


def jpeg_round_trips(images: Tensor, qualities: Iterable[int]) -> Tensor:
    """
    What JPEG leaves of images, with colour at half the resolution. On the CPU, image by image.

    Args:
        images (`Tensor` of shape `(batch, 3, height, width)`): uint8, RGB.
        qualities (`Iterable[int]`): One for each image, in 1..100.
    """
    pixels = images.cpu().movedim(1, -1).contiguous().numpy()
    decoded = np.empty_like(pixels)
    for result, image, quality in zip(decoded, pixels, qualities, strict=True):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        result[:] = Image.open(file, formats=("JPEG",))
    return torch.from_numpy(decoded).movedim(-1, 1).contiguous().to(images.device)
