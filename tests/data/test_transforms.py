"""Images on their way into the network: decoded, as `pipeline` serves them, cropped, flipped, mixed by AugMix."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from scipy import stats
from torch import Tensor
from torchvision.transforms import v2
from transformers import ConvNextImageProcessor, ImageClassificationPipeline, ViTImageProcessor

from macs_hf.data.transforms import (
    BOX_NUMBERS,
    LEVELS,
    AugMix,
    EvalTransform,
    TrainTransform,
    decode,
    draw,
    drop_unreadable,
    input_size,
    is_readable,
    operation_variants,
    random_box,
    read_random_crop,
    shift_and_flip,
)
from macs_hf.models.loading import load_classifier
from macs_hf.pixels import PixelStats, preparation
from macs_hf.randomness import fresh_keys, uniform

from .small_datasets import BLUE, IMAGENET, RED, broken_files, rows_of, scene, stored, timm_processor


def pixels_of(item: Any) -> np.ndarray:
    return np.asarray(decode(item)).astype(int)


# ---- Decoding ----


@pytest.mark.parametrize(
    ("image", "kind", "expected"),
    [
        (Image.new("L", (3, 2), 40), "PNG", (40, 40, 40)),
        (Image.new("1", (3, 2), 1), "PNG", (255, 255, 255)),
        (Image.new("RGBA", (3, 2), (*RED, 128)), "PNG", RED),  # alpha is left out
        (Image.new("LA", (3, 2), (77, 0)), "PNG", (77, 77, 77)),
        (Image.new("RGB", (3, 2), RED).quantize(2), "PNG", RED),
        (Image.new("RGB", (3, 2), RED).quantize(2), "GIF", RED),
    ],
)
def test_modes_become_rgb(image: Image.Image, kind: str, expected: tuple[int, ...], tmp_path: Path) -> None:
    assert (pixels_of(stored(image, kind)) == expected).all()
    image.save(tmp_path / "image", kind)
    assert (pixels_of({"bytes": None, "path": str(tmp_path / "image")}) == expected).all()


def test_sixteen_bits_keep_their_upper_eight() -> None:
    deep = np.array([[0, 255, 256, 32768, 65535]], dtype=np.uint16)
    expected = np.array([0, 0, 1, 128, 255])
    image = Image.fromarray(deep)
    big_endian = Image.frombytes("I;16B", (5, 1), deep.astype(">u2").tobytes())
    for item in (stored(image), stored(image, "TIFF"), image, big_endian):
        np.testing.assert_array_equal(pixels_of(item)[0, :, 0], expected)


def test_rotated_by_exif() -> None:
    image = Image.new("RGB", (16, 8), RED)
    image.paste(BLUE, (0, 0, 8, 8))  # the left half, which orientation 6 (turn clockwise) puts on top
    exif = Image.Exif()
    exif[0x0112] = 6
    found = pixels_of(stored(image, "PNG", exif=exif))
    assert found.shape == (16, 8, 3)
    assert (found[:8] == BLUE).all() and (found[8:] == RED).all()


# ---- Images that cannot be read ----


def test_unreadable_images_are_dropped_in_one_cached_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_readable(None)
    rows_of(*broken_files()).save_to_disk(tmp_path)
    first = drop_unreadable(datasets.load_from_disk(tmp_path), "image", "train")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache-*")}
    # A second look would need this.
    monkeypatch.setattr("macs_hf.data.transforms.decode", None)
    second = drop_unreadable(datasets.load_from_disk(tmp_path), "image", "train")
    assert list(first["label"]) == list(second["label"]) == [0, 2]
    assert len(before) == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache-*")} == before
    assert caplog.text.count("3 of 5") == 2
    assert first.features == datasets.load_from_disk(tmp_path).features


# ---- What processors do ----


CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
HALF = ((0.5,) * 3, (0.5,) * 3)
RGB, BGR = (0, 1, 2), (2, 1, 0)
PROCESSORS: dict[str, tuple[Any, int, tuple, tuple]] = {
    "vit": (ViTImageProcessor(), 224, RGB, HALF),
    "vit, not normalised": (ViTImageProcessor(do_normalize=False), 224, RGB, ((0.0,) * 3, (1.0,) * 3)),
    "vit, bytes": (ViTImageProcessor(do_normalize=False, do_rescale=False), 224, RGB, ((0.0,) * 3, (1 / 255,) * 3)),
    "bit": (transformers.BitImageProcessor(), 224, RGB, CLIP),
    "convnext": (ConvNextImageProcessor(size={"shortest_edge": 224}, crop_pct=0.875), 224, RGB, HALF),
    "convnext, warped": (ConvNextImageProcessor(size={"shortest_edge": 384}), 384, RGB, HALF),
    "efficientnet": (transformers.EfficientNetImageProcessor(), 346, RGB, ((0.5,) * 3, (0.25,) * 3)),
    "efficientnet, headless": (transformers.EfficientNetImageProcessor(include_top=False), 346, RGB, HALF),
    "mobilevit": (transformers.MobileViTImageProcessor(), 256, BGR, ((0.0,) * 3, (1.0,) * 3)),
    "perceiver": (transformers.PerceiverImageProcessor(), 224, RGB, IMAGENET),
    "pp_lcnet": (transformers.PPLCNetImageProcessor(), 224, BGR, IMAGENET),
    "siglip": (transformers.SiglipImageProcessor(), 224, RGB, HALF),
    "timm": (timm_processor(48), 48, RGB, IMAGENET),
    "tiny": (load_classifier("tiny", ["a", "b"])[1], 32, RGB, HALF),
}


def processor_of(kind: str) -> Any:
    return PROCESSORS[kind][0]


@pytest.mark.parametrize(("processor", "size", "channels", "statistics"), PROCESSORS.values(), ids=PROCESSORS)
def test_what_a_processor_does(processor: Any, size: int, channels: tuple, statistics: tuple) -> None:
    found = preparation(processor)
    assert (found.size, found.channels) == ((size, size), channels)
    assert np.allclose((found.mean, found.std), statistics, atol=1e-6)


def test_processors_of_any_shape_and_of_none() -> None:
    assert PixelStats.from_processor(timm_processor()) == PixelStats(*IMAGENET)
    assert input_size(ViTImageProcessor(size={"height": 24, "width": 40})) == (24, 40)
    with pytest.raises(ValueError, match="size"):
        input_size(transformers.TextNetImageProcessor(size={"shortest_edge": 64}))
    with pytest.raises(ValueError, match="Siglip2ImageProcessor"):
        input_size(transformers.Siglip2ImageProcessor())


# ---- Evaluation sees what `pipeline` serves ----


@pytest.mark.parametrize("kind", ["tiny", "timm", "convnext", "mobilevit", "efficientnet"])
def test_evaluation_equals_the_pipeline(kind: str, tmp_path: Path) -> None:
    model, processor = load_classifier("tiny", ["a", "b"])[0], processor_of(kind)
    pipe = ImageClassificationPipeline(model=model, image_processor=processor, device="cpu")
    exif = Image.Exif()
    exif[0x0112] = 8
    images = {
        "colour.png": scene(60, 40),
        "grey.png": scene(40, 60).convert("L"),
        "alpha.png": scene().convert("RGBA"),
    }
    images |= {"cmyk.jpg": scene().convert("CMYK"), "turned.jpg": scene(64, 32)}
    for name, image in images.items():
        path = tmp_path / name
        image.save(path, **({"exif": exif} if name == "turned.jpg" else {}))
        served = pipe.preprocess(str(path))["pixel_values"][0]
        measured = EvalTransform(processor)(decode({"bytes": path.read_bytes(), "path": None}))["pixel_values"]
        assert torch.equal(measured, served), name


@pytest.mark.parametrize("kind", PROCESSORS)
def test_batches_and_pixels_that_were_kept_equal_the_processor_bit_for_bit(kind: str) -> None:
    processor = processor_of(kind)
    transform = EvalTransform(processor)
    images = [scene(*size, seed=seed) for seed, size in enumerate([(60, 40), (32, 32), (60, 40), (300, 260)])]
    expected = torch.stack([processor(image, return_tensors="pt")["pixel_values"][0] for image in images])
    assert transform._batches_exactly
    assert torch.equal(transform.batch(images)["pixel_values"], expected)
    pixels = transform.to_pixels(images)
    assert pixels.dtype == torch.uint8
    kept = transform.from_pixels(pixels)["pixel_values"]
    assert kept.dtype == expected.dtype and torch.equal(kept, expected)


def test_a_processor_whose_values_depend_on_the_batch_is_called_image_by_image() -> None:
    class BatchDependent(ViTImageProcessor):
        def __call__(self, images: Any, **kwargs: Any) -> Any:
            prepared = super().__call__(images, **kwargs)
            prepared["pixel_values"] = prepared["pixel_values"] * (1 + 1e-3 * (len(prepared["pixel_values"]) - 1))
            return prepared

    transform = EvalTransform(BatchDependent(size={"height": 32, "width": 32}))
    images = [scene(seed=seed) for seed in range(3)]
    assert not transform._batches_exactly
    for values, image in zip(transform.batch(images)["pixel_values"], images, strict=True):
        assert torch.equal(values, transform(image)["pixel_values"])


def test_a_processor_without_a_fixed_size_still_prepares_images() -> None:
    transform = EvalTransform(transformers.TextNetImageProcessor(size={"shortest_edge": 64}))
    values = transform.batch([scene(128, 64), scene(64, 64)])["pixel_values"]
    assert [tuple(value.shape) for value in values] == [(3, 64, 128), (3, 64, 64)]


# ---- Augmentation ----


@pytest.mark.parametrize("kind", ["convnext", "efficientnet", "mobilevit", "timm", "tiny"])
def test_training_images_have_the_size_channels_and_statistics_of_the_processor(kind: str) -> None:
    processor = processor_of(kind)
    plain = Image.new("RGB", (300, 300), RED)
    served = EvalTransform(processor)(plain)["pixel_values"]
    trained = TrainTransform(processor)(plain)["pixel_values"]
    assert trained.shape == served.shape and trained.dtype == torch.float32 and type(trained) is torch.Tensor
    middle = trained.shape[1] // 2
    torch.testing.assert_close(trained[:, middle, middle], served[:, middle, middle], atol=2e-2, rtol=0)


def test_flips_where_mirroring_keeps_the_meaning_and_nowhere_else() -> None:
    image = Image.new("RGB", (32, 32), RED)
    image.paste(BLUE, (16, 0, 32, 32))
    for flip, expected in ((True, {True, False}), (False, {True})):
        transform = TrainTransform(processor_of("tiny"), horizontal_flip=flip)
        torch.manual_seed(0)
        images = [transform(image)["pixel_values"] for _ in range(40)]
        red_is_left = {bool(image[0, 16, 8] > image[0, 16, 24]) for image in images}
        assert red_is_left == expected


def test_augmix_views() -> None:
    processor = processor_of("tiny")
    item = TrainTransform(processor, augmix=True)(scene(32, 32))
    views = item["augmix_pixel_values"]
    assert views.shape == (2, 3, 32, 32) and type(views) is torch.Tensor
    assert views.abs().max() <= 1  # mean and std are 0.5, so pixels lie in [-1, 1]
    assert not torch.equal(views[0], views[1])
    assert not torch.equal(views[0], item["pixel_values"])
    assert "augmix_pixel_values" not in TrainTransform(processor)(scene())


def numbers(count: int, size: int) -> Tensor:
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


@pytest.mark.parametrize("size", [(500, 375), (60, 700)])
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


def test_an_image_too_long_for_any_box_gives_its_middle() -> None:
    for width, height in ((300, 20), (20, 300)):
        expected = v2.RandomResizedCrop(224, scale=(1.0, 1.0)).make_params([torch.empty(3, height, width)])
        box = random_box(width, height, [0.999999] * BOX_NUMBERS)
        assert list(box) == [expected[name] for name in ("left", "top", "width", "height")]


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


@pytest.mark.parametrize("orientation", [1, 6])
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
        *_, width, height = random_box(*whole.size, row)
        # Of the crop at least twice as many pixels as are wanted are decoded.
        share = max(max(size) for size in sizes) / 1203
        assert share * min(width, height) >= 2 * 72 - 2 or share == 1
        full = read_random_crop(whole, (72, 72), row)
        differences.append((small.float() - full.float()).abs().mean().item())
    assert max(differences) < 2 and np.mean(differences) < 1  # of 255


# ---- AugMix is torchvision's, in batches ----


NAMES = list(v2.AugMix._PARTIAL_AUGMENTATION_SPACE)


def mixed_images(count: int, size: tuple[int, int] = (32, 32)) -> Tensor:
    """Noise on a ramp, with flat, dark and bright ones among them."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 60, (count, 3, *size), generator=generator)
    made = (noise + torch.linspace(0, 190, size[1]).long()).to(torch.uint8)
    made[::4] = torch.randint(0, 256, (len(made[::4]), 3, *size), generator=generator).to(torch.uint8)
    made[1] = 77
    made[2, 0] = 255
    return made


@pytest.mark.parametrize("size", [(32, 32), (72, 48)])
def test_each_variant_equals_torchvisions_operation_pixel_for_pixel(size: tuple[int, int]) -> None:
    reference, batch = v2.AugMix(all_ops=False), mixed_images(5, size)
    variants = operation_variants(*size)
    assert len(variants) == len(NAMES) * 2 * LEVELS
    for number, name in enumerate(NAMES):
        magnitudes, signed = reference._PARTIAL_AUGMENTATION_SPACE[name]
        values = magnitudes(10, *size)
        for level in range(LEVELS):
            for position, sign in enumerate((1, -1)):
                magnitude = 0.0 if values is None else float(values[level]) * (sign if signed else 1)
                operation = variants[(number * LEVELS + level) * 2 + position]
                expected = reference._apply_image_or_video_transform(
                    batch, name, magnitude, interpolation=v2.InterpolationMode.BILINEAR, fill={}
                )
                assert torch.equal(batch if operation is None else operation(batch), expected), (name, magnitude)


def test_operations_and_lengths_are_equally_likely() -> None:
    _, _, lengths, steps = draw(numbers(5000, AugMix.NUMBERS))
    for values, kinds in ((lengths - 1, 3), (steps // (2 * LEVELS), len(NAMES)), (steps % (2 * LEVELS), 2 * LEVELS)):
        counts = torch.bincount(values.flatten(), minlength=kinds)
        assert len(counts) == kinds and stats.chisquare(counts).pvalue > 1e-3
    flat = steps.flatten(1)
    assert np.abs(np.corrcoef(flat.T) - np.eye(9)).max() < 0.06  # steps are independent


def test_a_view_is_the_mixture_of_its_chains() -> None:
    batch, drawn = mixed_images(6), numbers(6, AugMix.NUMBERS)
    variants = operation_variants(32, 32)
    kept, weights, lengths, steps = draw(drawn)
    for i, view in enumerate(AugMix((32, 32))(batch, drawn)):
        mixed = kept[i] * batch[i]
        for chain in range(3):
            image = batch[i : i + 1]
            for step in range(lengths[i, chain]):
                operation = variants[steps[i, chain, step]]
                image = image if operation is None else operation(image)
            mixed = mixed + weights[i, chain] * image[0]
        assert torch.equal(view, mixed.to(torch.uint8))


def test_views_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, drawn, augmix = mixed_images(20), numbers(20, AugMix.NUMBERS), AugMix((32, 32))
    views = augmix(batch, drawn)
    assert torch.equal(torch.cat([augmix(batch[i : i + 1], drawn[i : i + 1]) for i in range(20)]), views)
    assert torch.equal(augmix(batch[[7, 3]], drawn[[7, 3]]), views[[7, 3]])
    monkeypatch.setattr("macs_hf.data.transforms.AUGMIX_PIECE", 3 * 3072 * 4)
    assert torch.equal(augmix(batch, drawn), views)
    assert augmix(batch[:0], drawn[:0]).shape == (0, 3, 32, 32)
