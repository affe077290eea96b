"""What visitors upload is limited in size before it is decoded, and never leads out of its folder."""

import io
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from macs_hf.app import uploads
from macs_hf.data.preparing import load_data

from .small_run import CLASSES, picture, save_zip


def png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "visitor").mkdir()
    return tmp_path / "visitor"


# ---- Images ----


def test_an_image_is_read_upright_and_in_colour(tmp_path: Path) -> None:
    image = Image.new("L", (4, 2), 100)
    exif = image.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    image.save(tmp_path / "image.jpg", exif=exif)
    assert (uploads.read_image(tmp_path / "image.jpg").size, uploads.read_image(tmp_path / "image.jpg").mode) == (
        (2, 4),
        "RGB",
    )


def test_an_image_with_too_many_pixels_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (300, 300)).save(tmp_path / "image.png")
    monkeypatch.setattr(uploads, "MAX_IMAGE_PIXELS", 300 * 300)
    assert uploads.read_image(tmp_path / "image.png").size == (300, 300)
    monkeypatch.setattr(uploads, "MAX_IMAGE_PIXELS", 300 * 300 - 1)
    monkeypatch.setattr(uploads, "to_rgb", lambda _: pytest.fail("decoded"))
    with pytest.raises(ValueError, match="300 x 300 pixels"):
        uploads.read_image(tmp_path / "image.png")


def test_an_image_of_too_many_bytes_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "image.png").write_bytes(b"0" * 2_000_001)
    monkeypatch.setattr(uploads, "MAX_IMAGE_BYTES", 2_000_000)
    with pytest.raises(ValueError, match="has 2 MB; at most 2 MB"):
        uploads.read_image(tmp_path / "image.png")


def test_a_bomb_of_pillows_own_kind_is_a_sentence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (500, 500)).save(tmp_path / "image.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match="not an image, or damaged"):
        uploads.read_image(tmp_path / "image.png")


@pytest.mark.parametrize("content", [b"", b"<svg onload=alert(1)>", png(picture(0, 0))[:200]])
def test_what_is_no_image_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read"):
        uploads.read_image(tmp_path / "image.png")


# ---- Archives ----


@pytest.mark.parametrize("above", ["", "photos/", "photos/2024/"])
def test_class_folders_become_a_dataset(above: str, tmp_path: Path, folder: Path) -> None:
    path = uploads.unpack(save_zip(tmp_path / "a.zip", each=4, above=above), folder, calibrate=False)
    splits = load_data(path, ("test",))
    assert (splits.label_names, len(splits.test)) == (CLASSES, 12)
    expected = np.asarray(picture(2, 201))
    places = [row for row in splits.test if row["label"] == 2]
    assert any(np.array_equal(np.asarray(row["image"]), expected) for row in places)
    assert {entry.name for entry in folder.iterdir()} == {"dataset"}


def test_half_of_each_class_fits_the_temperature(tmp_path: Path, folder: Path) -> None:
    path = uploads.unpack(save_zip(tmp_path / "a.zip", each=10), folder, calibrate=True)
    splits = load_data(path, ("validation", "test"))
    for role in (splits.validation, splits.test):
        assert np.bincount(role["label"]).tolist() == [5, 5, 5]
    pixels = [{np.asarray(image).tobytes() for image in role["image"]} for role in (splits.validation, splits.test)]
    assert not pixels[0] & pixels[1]


def test_splits_in_the_archive_are_kept(tmp_path: Path, folder: Path) -> None:
    image = png(picture(0, 0))
    files = {f"x/{split}/{name}/{i}.png": image for split in ("val", "Test") for name in "ab" for i in "12"}
    del files["x/val/a/2.png"]
    path = uploads.unpack(archive(tmp_path / "a.zip", files), folder, calibrate=True)
    splits = load_data(path, ("validation", "test"))
    assert (len(splits.validation), len(splits.test)) == (3, 4)


def test_names_of_classes_are_kept_as_they_are(tmp_path: Path, folder: Path) -> None:
    names = ["<b>*[1]?</b>", "{{7*7}}", "Zürich ☂"]
    files = {f"{name.replace('/', '')}/1.png": png(picture(0, 1)) for name in names}
    path = uploads.unpack(archive(tmp_path / "a.zip", files), folder, calibrate=False)
    assert load_data(path, ("test",)).label_names == sorted(name.replace("/", "") for name in names)


@pytest.mark.parametrize(
    "name", ["../evil/1.png", "a/../../evil/1.png", "/tmp/evil/1.png", "C:\\evil\\1.png", "a\\..\\..\\evil\\1.png"]
)
def test_nothing_is_written_outside(name: str, tmp_path: Path, folder: Path) -> None:
    image = png(picture(0, 0))
    path = archive(tmp_path / "a.zip", {"ant/1.png": image, "bee/1.png": image, name: image})
    with pytest.raises(ValueError, match="outside of itself"):
        uploads.unpack(path, folder, calibrate=False)
    assert not list(folder.iterdir())
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.zip", "visitor"}


def test_links_are_refused(tmp_path: Path, folder: Path) -> None:
    path = archive(tmp_path / "a.zip", {"ant/1.png": b"", "bee/1.png": b""})
    link = zipfile.ZipInfo("bee/passwd.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    with pytest.raises(ValueError, match="holds a link"):
        uploads.unpack(path, folder, calibrate=False)


def test_a_bomb_is_refused_by_what_it_says_it_holds(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_ARCHIVE_BYTES", 2_000_000)
    zeros = bytes(25_000)
    path = archive(tmp_path / "a.zip", {f"{name}/{i}.png": zeros for name in "ab" for i in range(41)})
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match="unpacked"):
        uploads.unpack(path, folder, calibrate=False)
    assert not list(folder.iterdir())


def test_a_bomb_that_lies_about_its_size_is_read_no_further_than_that(tmp_path: Path, folder: Path) -> None:
    path = archive(tmp_path / "a.zip", {"a/1.png": bytes(1_000_000), "b/1.png": bytes(1_000_000)})
    content = path.read_bytes().replace((1_000_000).to_bytes(4, "little"), (1_000).to_bytes(4, "little"))
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a zip that can be read"):
        uploads.unpack(path, folder, calibrate=False)


def test_too_many_images_or_pixels_are_refused(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_zip(tmp_path / "a.zip", each=2)
    monkeypatch.setattr(uploads, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match=r"'photos/ant/0.png' has 32 x 32 pixels"):
        uploads.unpack(path, folder, calibrate=False)
    monkeypatch.setattr(uploads, "MAX_ARCHIVE_IMAGES", 5)
    with pytest.raises(ValueError, match="or 5 images"):
        uploads.unpack(path, folder, calibrate=False)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "0 images in 0 class folders"),
        ({"ant/1.png": b"x", "ant/2.png": b"x"}, "2 images in 1 class folders"),
        ({"1.png": b"x"}, "is in no folder"),
        ({"ant/1.png": b"x", "bee/1.png": b"x"}, "'ant/1.png' cannot be read"),
        ({"ant/notes.txt": b"x", "__MACOSX/ant/1.png": b"x", ".git/a/1.png": b"x"}, "0 images"),
        ({"test/a/1.png": png(picture(0, 0)), "b/1.png": png(picture(0, 0))}, "others do not"),
    ],
)
def test_other_archives_are_refused_with_a_reason(
    files: dict[str, bytes], reason: str, tmp_path: Path, folder: Path
) -> None:
    with pytest.raises(ValueError, match=reason):
        uploads.unpack(archive(tmp_path / "a.zip", files), folder, calibrate=False)


def test_what_is_no_archive_is_refused(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="not a zip that can be read"):
        uploads.unpack(tmp_path / "a.zip", folder, calibrate=False)
