"""What processors do to images, evaluation as `pipeline` serves it, and augmentation of that."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from transformers import ImageClassificationPipeline, ViTImageProcessor

from macs_hf.data.decoding import decode
from macs_hf.data.transforms import EvalTransform, TrainTransform, input_size
from macs_hf.models.loading import load_classifier
from macs_hf.pixels import PixelStats, preparation

from .pictures import BLUE, IMAGENET, RED, scene, timm_processor


# ---- What processors do ----

CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
HALF = ((0.5,) * 3, (0.5,) * 3)
RGB, BGR = (0, 1, 2), (2, 1, 0)
PROCESSORS: dict[str, tuple[str, dict[str, Any], int, tuple, tuple]] = {
    "vit": ("ViTImageProcessor", {}, 224, RGB, HALF),
    "vit, not normalised": ("ViTImageProcessor", {"do_normalize": False}, 224, RGB, ((0.0,) * 3, (1.0,) * 3)),
    "vit, bytes": (
        "ViTImageProcessor",
        {"do_normalize": False, "do_rescale": False},
        224,
        RGB,
        ((0.0,) * 3, (1 / 255,) * 3),
    ),
    "deit": ("DeiTImageProcessor", {}, 224, RGB, HALF),
    "beit": ("BeitImageProcessor", {}, 224, RGB, HALF),
    "bit": ("BitImageProcessor", {}, 224, RGB, CLIP),
    "convnext": ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}, "crop_pct": 0.875}, 224, RGB, HALF),
    "convnext, warped": ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}, 384, RGB, HALF),
    "efficientnet": ("EfficientNetImageProcessor", {}, 346, RGB, ((0.5,) * 3, (0.25,) * 3)),
    "efficientnet, headless": ("EfficientNetImageProcessor", {"include_top": False}, 346, RGB, HALF),
    "levit": ("LevitImageProcessor", {}, 224, RGB, IMAGENET),
    "mobilenet_v1": ("MobileNetV1ImageProcessor", {}, 224, RGB, HALF),
    "mobilenet_v2": ("MobileNetV2ImageProcessor", {}, 224, RGB, HALF),
    "mobilevit": ("MobileViTImageProcessor", {}, 256, BGR, ((0.0,) * 3, (1.0,) * 3)),
    "perceiver": ("PerceiverImageProcessor", {}, 224, RGB, IMAGENET),
    "poolformer": ("PoolFormerImageProcessor", {}, 224, RGB, IMAGENET),
    "pp_lcnet": ("PPLCNetImageProcessor", {}, 224, BGR, IMAGENET),
    "pvt": ("PvtImageProcessor", {}, 224, RGB, IMAGENET),
    "segformer": ("SegformerImageProcessor", {}, 512, RGB, IMAGENET),
    "siglip": ("SiglipImageProcessor", {}, 224, RGB, HALF),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_a_processor_does(name: str) -> None:
    cls, settings, size, channels, (mean, std) = PROCESSORS[name]
    found = preparation(getattr(transformers, cls)(**settings))
    assert (found.size, found.channels) == ((size, size), channels)
    assert found.mean == pytest.approx(mean, abs=1e-6)
    assert found.std == pytest.approx(std, abs=1e-6)


def test_what_timm_does() -> None:
    found = preparation(timm_processor(48))
    assert found == ((48, 48), RGB, *IMAGENET)
    assert PixelStats.from_processor(timm_processor()) == PixelStats(*IMAGENET)


def test_size_in_height_and_width() -> None:
    assert input_size(ViTImageProcessor(size={"height": 24, "width": 40})) == (24, 40)


def test_processors_that_cannot_fill_a_batch() -> None:
    with pytest.raises(ValueError, match=r"TextNetImageProcessor gives each image another size .*height and a width"):
        input_size(transformers.TextNetImageProcessor(size={"shortest_edge": 64}))
    with pytest.raises(ValueError, match=r"Siglip2ImageProcessor cannot prepare training images"):
        input_size(transformers.Siglip2ImageProcessor())
    assert PixelStats.from_processor(transformers.Siglip2ImageProcessor()) is None


# ---- Evaluation sees what `pipeline` serves ----


@pytest.mark.parametrize("kind", ["tiny", "timm", "convnext", "mobilevit", "efficientnet"])
def test_evaluation_equals_the_pipeline(kind: str, tmp_path: Path) -> None:
    model, processor = load_classifier("tiny", ["a", "b"])
    if kind == "timm":
        processor = timm_processor()
    elif kind != "tiny":
        cls, settings, *_ = PROCESSORS[kind]
        processor = getattr(transformers, cls)(**settings)
    pipe = ImageClassificationPipeline(model=model, image_processor=processor, device="cpu")
    exif = Image.Exif()
    exif[0x0112] = 8
    images = {
        "colour.png": scene(60, 40),
        "grey.png": scene(40, 60).convert("L"),
        "alpha.png": scene().convert("RGBA"),
        "cmyk.jpg": scene().convert("CMYK"),
        "turned.jpg": scene(64, 32),
    }
    for name, image in images.items():
        path = tmp_path / name
        image.save(path, **({"exif": exif} if name == "turned.jpg" else {}))
        served = pipe.preprocess(str(path))["pixel_values"][0]
        measured = EvalTransform(processor)(decode({"bytes": path.read_bytes(), "path": None}))["pixel_values"]
        assert torch.equal(measured, served), name


@pytest.mark.parametrize("kind", [*PROCESSORS, "timm"])
def test_batches_and_pixels_that_were_kept_equal_the_processor_bit_for_bit(kind: str) -> None:
    if kind == "timm":
        processor = timm_processor(48)
    else:
        cls, settings, *_ = PROCESSORS[kind]
        processor = getattr(transformers, cls)(**settings)
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


@pytest.mark.parametrize("kind", ["vit", "convnext", "efficientnet", "mobilevit", "pp_lcnet", "timm", "tiny"])
def test_training_images_have_the_size_channels_and_statistics_of_the_processor(kind: str) -> None:
    if kind in ("timm", "tiny"):
        processor = timm_processor() if kind == "timm" else load_classifier("tiny", ["a", "b"])[1]
    else:
        cls, settings, *_ = PROCESSORS[kind]
        processor = getattr(transformers, cls)(**settings)
    plain = Image.new("RGB", (300, 300), RED)
    served = EvalTransform(processor)(plain)["pixel_values"]
    trained = TrainTransform(processor)(plain)["pixel_values"]
    assert trained.shape == served.shape and trained.dtype == torch.float32 and type(trained) is torch.Tensor
    middle = trained.shape[1] // 2
    torch.testing.assert_close(trained[:, middle, middle], served[:, middle, middle], atol=2e-2, rtol=0)


def halves(size: int = 32) -> Image.Image:
    image = Image.new("RGB", (size, size), RED)
    image.paste(BLUE, (size // 2, 0, size, size))
    return image


def test_flips_where_mirroring_keeps_the_meaning_and_nowhere_else() -> None:
    processor = load_classifier("tiny", ["a", "b"])[1]
    for flip, expected in ((True, {True, False}), (False, {True})):
        transform = TrainTransform(processor, horizontal_flip=flip)
        torch.manual_seed(0)
        images = [transform(halves())["pixel_values"] for _ in range(40)]
        red_is_left = {bool(image[0, 16, 8] > image[0, 16, 24]) for image in images}
        assert red_is_left == expected


def test_small_images_are_shifted_by_up_to_an_eighth() -> None:
    transform = TrainTransform(load_classifier("tiny", ["a", "b"])[1], horizontal_flip=False)
    torch.manual_seed(0)
    shifts = set()
    for _ in range(200):
        image = transform(halves())["pixel_values"]
        row = image[0, 16]  # red is 200 on the left, 10 on the right; -1 where padded
        shifts.add(int((row > 0).sum()) - 16 + int((row[:8] == -1).sum()))
    assert max(shifts) == 4 and min(shifts) == -4


def test_large_images_get_random_crops() -> None:
    transform = TrainTransform(ViTImageProcessor(), horizontal_flip=False)
    torch.manual_seed(0)
    first, second = (transform(scene(300, 260))["pixel_values"] for _ in range(2))
    assert first.shape == second.shape == (3, 224, 224)
    assert not torch.allclose(first, second, atol=0.1)


def test_augmix_views() -> None:
    processor = load_classifier("tiny", ["a", "b"])[1]
    torch.manual_seed(0)
    item = TrainTransform(processor, augmix=True)(scene(32, 32))
    views = item["augmix_pixel_values"]
    assert views.shape == (2, 3, 32, 32) and type(views) is torch.Tensor
    assert views.abs().max() <= 1  # mean and std are 0.5, so pixels lie in [-1, 1]
    assert not torch.equal(views[0], views[1])
    assert not torch.equal(views[0], item["pixel_values"])
    # Mild enough to show the same image.
    correlation = torch.corrcoef(torch.stack([views[0].flatten(), item["pixel_values"].flatten()]))[0, 1]
    assert correlation > 0.3
    assert "augmix_pixel_values" not in TrainTransform(processor)(scene())
