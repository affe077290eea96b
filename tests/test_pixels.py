"""Statistics of pixels: there and back, in the network's order of channels."""

import math
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

from macs_hf.corruptions import corrupt
from macs_hf.pixels import PixelStats, level_table, preparation


BGR = {
    "MobileViTImageProcessor": {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}},
    "PPLCNetImageProcessor": {"size": {"height": 32, "width": 32}, "do_center_crop": False, "resize_short": 32},
}


def picture() -> Image.Image:
    pixels = torch.randint(0, 256, (32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Image.fromarray(pixels.numpy())


@pytest.mark.parametrize("name", BGR)
def test_a_processor_that_swaps_red_and_blue(name: str) -> None:
    processor = getattr(transformers, name)(**BGR[name])
    stats = PixelStats.from_processor(processor)
    assert stats.channels == preparation(processor).channels == (2, 1, 0)
    image = picture()
    values = processor(image, return_tensors="pt")["pixel_values"]
    levels = torch.tensor(list(image.getdata()), dtype=torch.uint8).view(32, 32, 3).permute(2, 0, 1)[None]
    torch.testing.assert_close(stats.to_pixels(values), levels.float() / 255, atol=1e-6, rtol=0)  # red first
    torch.testing.assert_close(stats.normalize(levels.float() / 255), values, atol=1e-5, rtol=0)
    # So a corruption acts on the colours of the image, and the network is given them in its own order.
    snowy = corrupt(levels, "snow", 3)
    through = processor(Image.fromarray(snowy[0].permute(1, 2, 0).numpy()), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(stats.normalize(snowy.float() / 255), through, atol=1e-5, rtol=0)


def test_there_and_back_for_any_order() -> None:
    stats = PixelStats((0.5, 0.4, 0.3), (0.2, 0.3, 0.25), channels=(1, 2, 0))
    pixels = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    values = stats.normalize(pixels)
    torch.testing.assert_close(stats.to_pixels(values), pixels)
    torch.testing.assert_close(stats.to_pixels(values[0]), pixels[0])  # one image too
    torch.testing.assert_close(values[:, 0], (pixels[:, 1] - 0.5) / 0.2)  # the first channel shows green
    torch.testing.assert_close(values[:, 2], (pixels[:, 0] - 0.3) / 0.25)
    assert stats.to_pixels(torch.full((1, 3, 2, 2), 100.0)).eq(1).all()


@pytest.mark.parametrize(
    ("mean", "std", "channels"),
    [((0.5, 0.5, 0.5), (0.2, 0.0, 0.2), None), ((math.nan,), (0.5,), None), ((0.5,), (0.5,), (0, 0, 1))],
)
def test_statistics_that_cannot_be(mean: Any, std: Any, channels: Any) -> None:
    with pytest.raises(ValueError, match="PixelStats"):
        PixelStats(mean, std, channels)


def test_statistics_of_processors() -> None:
    processor = transformers.ViTImageProcessor
    found = PixelStats.from_processor(processor(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]))
    assert found == PixelStats((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert PixelStats.from_processor(processor(do_normalize=False)) == PixelStats((0.0,), (1.0,))
    assert PixelStats.from_processor(processor(do_normalize=False, do_rescale=False)) is None
    assert PixelStats.from_processor(processor(image_mean=[0.5] * 3, image_std=[0.5, 0.5, -0.5])) is None  # a negative
    assert PixelStats.from_processor(None) is None


def test_levels_as_a_processor_shows_them() -> None:
    table = level_table(transformers.ViTImageProcessor(size={"height": 16, "width": 16}))
    torch.testing.assert_close(table, (torch.arange(256) / 127.5 - 1).expand(3, -1), atol=1e-6, rtol=0)
    table = level_table(transformers.ViTImageProcessor(do_normalize=False, do_rescale=False))
    assert table.dtype == torch.uint8 and table[1].tolist() == list(range(256))
