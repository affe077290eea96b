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


PNG = png(picture(0, 0))


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
    read = uploads.read_image(tmp_path / "image.jpg")
    assert (read.size, read.mode) == ((2, 4), "RGB")


@pytest.mark.parametrize(("limit", "value"), [("MAX_IMAGE_PIXELS", 300 * 300 - 1), ("MAX_IMAGE_BYTES", 100)])
def test_a_large_image_is_not_decoded(limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (300, 300)).save(tmp_path / "image.png")
    assert uploads.read_image(tmp_path / "image.png").size == (300, 300)
    monkeypatch.setattr(uploads, limit, value)
    monkeypatch.setattr(uploads, "to_rgb", lambda _: pytest.fail("decoded"))
    with pytest.raises(ValueError, match="at most"):
        uploads.read_image(tmp_path / "image.png")


@pytest.mark.parametrize("content", [b"", b"<svg onload=alert(1)>", PNG[:200], b"%!PS-Adobe-3.0 EPSF-3.0\n", None])
def test_what_is_no_image_is_refused(content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "image.png").write_bytes(PNG if content is None else content)
    if content is None:  # what Pillow itself takes for a bomb
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match="cannot be read"):
        uploads.read_image(tmp_path / "image.png")


# ---- Archives ----


@pytest.mark.parametrize("above", ["", "photos/2024/"])
def test_class_folders_become_a_dataset(above: str, tmp_path: Path, folder: Path) -> None:
    path = uploads.unpack(save_zip(tmp_path / "a.zip", each=4, above=above), folder, calibrate=False)
    splits = load_data(path, ("test",))
    assert (splits.label_names, len(splits.test)) == (CLASSES, 12)
    expected = np.asarray(picture(2, 201))
    assert any(np.array_equal(np.asarray(row["image"]), expected) for row in splits.test if row["label"] == 2)
    assert {entry.name for entry in folder.iterdir()} == {"dataset"}


def test_half_of_each_class_fits_the_temperature(tmp_path: Path, folder: Path) -> None:
    path = uploads.unpack(save_zip(tmp_path / "a.zip", each=10), folder, calibrate=True)
    splits = load_data(path, ("validation", "test"))
    for role in (splits.validation, splits.test):
        assert np.bincount(role["label"]).tolist() == [5, 5, 5]
    pixels = [{np.asarray(image).tobytes() for image in role["image"]} for role in (splits.validation, splits.test)]
    assert not pixels[0] & pixels[1]


def test_splits_and_names_of_classes_are_kept_as_they_are(tmp_path: Path, folder: Path) -> None:
    names = ["<b>*[1]?<b>", "Zürich ☂", "{{7*7}}"]
    files = {f"x/{split}/{name}/{i}.png": PNG for split in ("val", "Test") for name in names for i in "12"}
    del files["x/val/{{7*7}}/2.png"]
    path = uploads.unpack(archive(tmp_path / "a.zip", files), folder, calibrate=True)
    splits = load_data(path, ("validation", "test"))
    assert (splits.label_names, len(splits.validation), len(splits.test)) == (sorted(names), 5, 6)


PAIR = {"ant/1.png": PNG, "bee/1.png": PNG}
OUTSIDE = ("../evil/1.png", "a/../../evil/1.png", "/tmp/evil/1.png", "C:\\evil\\1.png", "a\\..\\..\\evil\\1.png")
LINK = zipfile.ZipInfo("bee/passwd.png")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16
REFUSED = [PAIR | {name: PNG} for name in OUTSIDE] + [
    {},
    {"ant/1.png": PNG, "ant/2.png": PNG},
    {"1.png": PNG} | PAIR,
    {"ant/1.png": b"x", "bee/1.png": PNG},
    {"ant/notes.txt": b"x", "__MACOSX/ant/1.png": PNG, ".git/a/1.png": PNG},
    {"test/a/1.png": PNG, "b/1.png": PNG},
    PAIR | {LINK: b"/etc/passwd"},
]


@pytest.mark.parametrize("files", REFUSED)
def test_what_is_no_archive_of_class_folders_is_refused(files: dict, tmp_path: Path, folder: Path) -> None:
    path = archive(tmp_path / "a.zip", files)
    for content in (path.read_bytes(), b"no zip"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"zip|folder|ant"):
            uploads.unpack(path, folder, calibrate=False)
        assert not list(folder.iterdir())
        assert {entry.name for entry in tmp_path.iterdir()} == {"a.zip", "visitor"}


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_ARCHIVE_BYTES", 2_000_000), ("MAX_ARCHIVE_IMAGES", 81), ("MAX_IMAGE_BYTES", 20_000)]
)
def test_a_bomb_is_refused_by_what_it_says_it_holds(
    limit: str, value: int, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, limit, value)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    path = archive(tmp_path / "a.zip", {f"{name}/{i}.png": bytes(25_000) for name in "ab" for i in range(41)})
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match="more than"):
        uploads.unpack(path, folder, calibrate=False)


def test_what_a_zip_does_not_say_is_found_out(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "a.zip", {"a/1.png": bytes(1_000_000), "b/1.png": bytes(1_000_000)})
    path.write_bytes(path.read_bytes().replace((1_000_000).to_bytes(4, "little"), (1_000).to_bytes(4, "little")))
    with pytest.raises(ValueError, match="not a zip that can be read"):  # no more is read than it said
        uploads.unpack(path, folder, calibrate=False)
    monkeypatch.setattr(uploads, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match=r"'ant/1.png' has 32 x 32 pixels"):
        uploads.unpack(archive(tmp_path / "a.zip", PAIR), folder, calibrate=False)
