"""Crops and flips have torchvision's distributions, and JPEGs decoded small show the same crop."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torchvision.transforms import v2

from macs_hf.data.augment import BOX_NUMBERS, random_box, read_random_crop, shift_and_flip
from macs_hf.data.decoding import decode
from macs_hf.randomness import fresh_keys, uniform

from .pictures import scene, stored


def numbers(count: int, size: int) -> torch.Tensor:
    torch.manual_seed(0)
    return uniform(fresh_keys(count), (size,))


def test_shifts_are_those_of_a_padded_crop() -> None:
    images = torch.randint(1, 256, (400, 3, 12, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    drawn = numbers(400, 2)
    flips = torch.arange(400) % 2 == 0
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    places = Counter()
    for image, expected, (down, right), flip in zip(
        shift_and_flip(images, 2, drawn, flips), padded, drawn.tolist(), flips, strict=True
    ):
        top, left = math.floor(down * 5), math.floor(right * 5)
        crop = expected[:, top : top + 12, left : left + 10]
        assert torch.equal(image, crop.flip(-1) if flip else crop)
        places[top, left] += 1
    assert len(places) == 25  # as RandomCrop: all 5 x 5 places, equally likely
    assert stats.chisquare(list(places.values())).pvalue > 1e-3


@pytest.mark.parametrize("size", [(500, 375), (224, 224), (60, 700), (900, 40)])
def test_boxes_have_the_distribution_of_random_resized_crop(size: tuple[int, int]) -> None:
    width, height = size
    ours = np.array([random_box(width, height, row) for row in numbers(3000, BOX_NUMBERS).tolist()])
    torch.manual_seed(1)
    crop, image = v2.RandomResizedCrop(224), torch.empty(3, height, width)
    drawn = [crop.make_params([image]) for _ in range(3000)]
    theirs = np.array([[row[name] for name in ("left", "top", "width", "height")] for row in drawn])
    for column in range(4):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
    area = [boxes[:, 2] * boxes[:, 3] for boxes in (ours, theirs)]
    assert stats.ks_2samp(*area).pvalue > 1e-3


@pytest.mark.parametrize("size", [(300, 20), (20, 300)])
def test_an_image_too_long_for_any_box_gives_its_middle(size: tuple[int, int]) -> None:
    crop, image = v2.RandomResizedCrop(224, scale=(1.0, 1.0)), torch.empty(3, size[1], size[0])
    expected = crop.make_params([image])
    box = random_box(*size, [0.999999] * BOX_NUMBERS)
    assert box._asdict() == {name: expected[name] for name in ("left", "top", "width", "height")}


def test_a_crop_is_what_torchvision_gives_for_its_box() -> None:
    image = scene(300, 260)
    for row in numbers(5, BOX_NUMBERS).tolist():
        left, top, width, height = random_box(300, 260, row)
        expected = v2.functional.resized_crop(
            v2.functional.pil_to_tensor(image), top, left, height, width, [72, 80], v2.InterpolationMode.BICUBIC
        )
        assert torch.equal(read_random_crop(stored(image), (72, 80), row), expected)
        assert torch.equal(read_random_crop(image, (72, 80), row), expected)


def photo(width: int, height: int, **options: Any) -> dict[str, Any]:
    detail = np.random.default_rng(0).normal(0, 8, (height, width, 3))
    return stored(
        Image.fromarray((np.asarray(scene(width, height)) + detail).clip(0, 255).astype(np.uint8)), "JPEG", **options
    )


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_large_jpegs_are_decoded_small_and_show_the_same_crop(
    orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = photo(1203, 907, exif=exif)
    whole = decode(file)
    sizes = []
    transposed = Image.Image.load
    monkeypatch.setattr(Image.Image, "load", lambda self: (sizes.append(self.size), transposed(self))[1])
    differences = []
    for row in numbers(20, BOX_NUMBERS).tolist():
        sizes.clear()
        small = read_random_crop(file, (72, 72), row)
        box = random_box(*whole.size, row)
        # Of the crop at least twice as many pixels as are wanted are decoded.
        share = max(max(size) for size in sizes) / 1203
        assert share * min(box.width, box.height) >= 2 * 72 - 2 or share == 1
        full = read_random_crop(whole, (72, 72), row)
        differences.append((small.float() - full.float()).abs().mean().item())
    assert max(differences) < 2 and np.mean(differences) < 1  # of 255


def test_an_image_about_as_large_as_wanted_is_decoded_as_in_evaluation() -> None:
    file = photo(240, 200)
    for row in numbers(5, BOX_NUMBERS).tolist():
        assert torch.equal(read_random_crop(file, (72, 72), row), read_random_crop(decode(file), (72, 72), row))
