"""Images as stored become what the network is given: the same as `pipeline` gives it, or an augmentation of that."""

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from datasets import ClassLabel, Dataset, Features
from PIL import Image
from transformers import ImageClassificationPipeline, TimmWrapperImageProcessor, ViTImageProcessor

from macs_hf.data.images import (
    EvalTransform,
    ImageDataset,
    TrainTransform,
    decode,
    drop_unreadable,
    input_size,
    is_readable,
    undecoded,
)
from macs_hf.data.sources import source_of
from macs_hf.data.splits import load_splits
from macs_hf.models.loading import load_classifier
from macs_hf.pixels import PixelStats, preparation


RED, GREEN, BLUE = (200, 30, 40), (20, 190, 50), (10, 60, 210)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def stored(image: Image.Image, kind: str = "PNG", **options: Any) -> dict[str, Any]:
    return {"bytes": encoded(image, kind, **options), "path": None}


def scene(width: int = 40, height: int = 30, seed: int = 0) -> Image.Image:
    """Smooth random colours, which survive JPEG."""
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def pixels_of(item: Any) -> np.ndarray:
    return np.asarray(decode(item)).astype(int)


# ---- Decoding ----


def test_grey_images_repeat_their_channel() -> None:
    grey = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)
    np.testing.assert_array_equal(pixels_of(stored(grey)), np.asarray(grey)[..., None].repeat(3, axis=2))


def test_alpha_is_left_out() -> None:
    image = Image.new("RGBA", (3, 2), (*RED, 128))
    assert (pixels_of(stored(image)) == RED).all()
    assert (pixels_of(stored(Image.new("LA", (3, 2), (77, 0)))) == 77).all()


def test_palettes_are_looked_up() -> None:
    image = Image.new("RGB", (4, 2), RED)
    image.paste(GREEN, (2, 0, 4, 2))
    for kind in ("PNG", "GIF"):
        found = pixels_of(stored(image.quantize(2), kind))
        assert (found[:, :2] == RED).all() and (found[:, 2:] == GREEN).all()


def test_cmyk_is_converted() -> None:
    image = scene()
    found = pixels_of(stored(image.convert("CMYK"), "JPEG", quality=100, subsampling=0))
    assert np.abs(found - np.asarray(image)).max() < 12


def test_sixteen_bits_keep_their_upper_eight() -> None:
    deep = np.array([[0, 255, 256, 32768, 65535]], dtype=np.uint16)
    expected = np.array([0, 0, 1, 128, 255])
    image = Image.fromarray(deep)
    for item in (stored(image), stored(image, "TIFF"), image):
        np.testing.assert_array_equal(pixels_of(item)[0, :, 0], expected)
    big_endian = Image.frombytes("I;16B", (5, 1), deep.astype(">u2").tobytes())
    np.testing.assert_array_equal(pixels_of(big_endian)[0, :, 0], expected)


def test_one_bit_images() -> None:
    assert sorted(set(pixels_of(stored(Image.fromarray(np.eye(4, dtype=bool)))).ravel())) == [0, 255]


def test_rotated_by_exif() -> None:
    image = Image.new("RGB", (16, 8), RED)
    image.paste(BLUE, (0, 0, 8, 8))  # the left half, which orientation 6 (turn clockwise) puts on top
    exif = Image.Exif()
    exif[0x0112] = 6
    found = pixels_of(stored(image, "PNG", exif=exif))
    assert found.shape == (16, 8, 3)
    assert (found[:8] == BLUE).all() and (found[8:] == RED).all()


def test_a_path_instead_of_bytes(tmp_path: Path) -> None:
    scene().save(tmp_path / "scene.png")
    found = pixels_of({"bytes": None, "path": str(tmp_path / "scene.png")})
    np.testing.assert_array_equal(found, np.asarray(scene()))


# ---- Images that cannot be read ----


def broken_rows() -> list[dict[str, Any]]:
    whole = encoded(scene(64, 64), "JPEG")
    good = [{"bytes": whole, "path": None}] * 2
    truncated = {"bytes": whole[: len(whole) // 2], "path": None}
    return [good[0], truncated, good[1], {"bytes": b"<html>404</html>", "path": None}, {"bytes": b"", "path": None}]


def broken_dataset() -> Dataset:
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=["a", "b"])})
    return Dataset.from_dict({"image": broken_rows(), "label": [0, 1, 1, 0, 1]}, features=features)


def test_what_can_be_read() -> None:
    assert [is_readable(row) for row in broken_rows()] == [True, False, True, False, False]
    assert not is_readable(None)


def test_an_unreadable_image_is_named_by_index_and_split() -> None:
    data = ImageDataset(broken_dataset(), "image", "label", lambda image: {"pixel_values": image.size}, "train")
    assert data[0] == {"pixel_values": (64, 64), "labels": 0}
    assert data[2]["labels"] == 1
    for index in (1, 3, 4):
        message = f"Image {index} of split 'train' cannot be read.*--skip_bad_images"
        with pytest.raises(ValueError, match=message):
            data[index]


def test_an_unreadable_file_is_named_by_its_path(tmp_path: Path) -> None:
    scene().save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"<html>404</html>")
    paths = [str(tmp_path / "good.png"), str(tmp_path / "bad.png")]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=["a", "b"])})
    data = Dataset.from_dict({"image": paths, "label": [0, 1]}, features=features)
    rows = ImageDataset(data, "image", "label", lambda image: {}, "test")
    for look in (lambda: rows[1], rows.check_headers):
        with pytest.raises(
            ValueError, match=r"Image 1 of split 'test' cannot be read \(file '.*bad.png'\): .*skip_bad"
        ):
            look()


def test_headers_are_checked_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encoded(scene(64, 64), "PNG")
    wrong_checksum = bytearray(whole)
    wrong_checksum[-13] ^= 1  # the last byte of the checksum before the closing chunk, which decoding does not look at
    rows = [whole, bytes(wrong_checksum), whole[: len(whole) // 2], whole]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=["a", "b"])})
    stored = [{"bytes": row, "path": None} for row in rows]
    data = Dataset.from_dict({"image": stored, "label": [0, 1, 1, 0]}, features=features)

    def rows_of(*indices: int) -> ImageDataset:
        return ImageDataset(data.select(indices), "image", "label", lambda image: {}, "test")

    rows_of(0, 1, 3).check_headers()
    rows_of(0, 2, 3, 3).check_headers(at_most=2)  # the first and the third
    with pytest.raises(ValueError, match="Image 1 of split 'test' cannot be read"):
        rows_of(0, 2, 3, 3).check_headers(at_most=4)
    monkeypatch.setattr("macs_hf.data.images.decode", None)
    rows_of(0, 3).check_headers()
    rows_of().check_headers()


def test_unreadable_images_are_dropped_in_one_cached_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_dataset().save_to_disk(tmp_path)
    transformers.utils.logging.enable_propagation()
    try:
        first = drop_unreadable(datasets.load_from_disk(tmp_path), "image", "train")
        before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache-*")}
        # A second look would need this.
        monkeypatch.setattr("macs_hf.data.images.decode", None)
        second = drop_unreadable(datasets.load_from_disk(tmp_path), "image", "train")
    finally:
        transformers.utils.logging.disable_propagation()
    assert list(first["label"]) == list(second["label"]) == [0, 1]
    assert len(before) == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache-*")} == before
    assert caplog.text.count("train: dropped 3 of 5 images that cannot be read") == 2
    assert first.features == datasets.load_from_disk(tmp_path).features


# ---- What processors do ----

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
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


def timm_processor(size: int = 32, **settings: Any) -> TimmWrapperImageProcessor:
    config = {"input_size": (3, size, size), "mean": IMAGENET[0], "std": IMAGENET[1], "crop_pct": 0.9}
    return TimmWrapperImageProcessor(pretrained_cfg=config | settings)


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


# ---- Rows as the trainer takes them ----


def test_digits_as_tensors() -> None:
    splits = load_splits(source_of("digits"))
    processor = load_classifier("tiny", splits.label_names)[1]
    data = ImageDataset(splits.test, splits.image_column, splits.label_column, EvalTransform(processor), "test")
    assert len(data) == 450
    item = data[3]
    expected = processor(splits.test[3]["image"].convert("RGB"), return_tensors="pt")["pixel_values"][0]
    assert torch.equal(item["pixel_values"], expected)
    assert item["labels"] == splits.test[3]["label"]
    twin = ImageDataset(splits.test, "image", "label", TrainTransform(processor), "test")
    other = ImageDataset(splits.train, "image", "label", TrainTransform(processor), "train")
    assert data._fingerprint == twin._fingerprint != other._fingerprint


def test_undecoded_leaves_the_dataset_as_it_is() -> None:
    data = broken_dataset()
    assert undecoded(data, "image")[0]["image"]["bytes"] == broken_rows()[0]["bytes"]
    assert data.features["image"].decode
