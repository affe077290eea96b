"""What visitors upload: an image, or a zip of class folders. Both are limited in size before anything is decoded."""

import re
import stat
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import datasets
from datasets import ClassLabel, Dataset, DatasetDict, Features
from PIL import Image

from ..data.sources import split_off
from ..data.transforms import to_rgb


MAX_IMAGE_BYTES = 30_000_000
MAX_IMAGE_PIXELS = 50_000_000
MAX_ARCHIVE_IMAGES = 50_000
MAX_ARCHIVE_BYTES = 2_000_000_000  # unpacked
IMAGES = {".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
# The decoders of these; others of Pillow's start programs, such as Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Names of folders that are splits, above those of the classes.
SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLITS |= dict.fromkeys(("val", "valid", "validation", "dev"), "validation")


class Member(NamedTuple):
    """An image in an archive."""

    info: zipfile.ZipInfo
    split: str | None
    label: str


def only_uploads(value: Any, folder: str | Path) -> Any:
    """
    What a browser sent for a field, if every file that it names lies in the folder of uploads.

    Gradio checks this for values that have a `meta` key only, fetches files from other servers, and decodes images in
    URLs before their size is known. So of a file nothing is kept but its place and its name.

    Args:
        value: Text, numbers, lists and dictionaries, as they came.
        folder (`str` or `Path`): Where uploads are stored.

    Raises:
        `ValueError`: If another file is named.
    """
    if isinstance(value, list):
        return [only_uploads(part, folder) for part in value]
    if not isinstance(value, dict):
        return value
    path, name = value.get("path"), value.get("orig_name")
    try:
        place = Path(path).resolve()
        uploaded = place.is_relative_to(Path(folder).resolve()) and place.is_file()
    except (TypeError, ValueError, OSError):
        uploaded = False
    if not uploaded:
        raise ValueError("A file was named that was not uploaded here. Drop it into the field.")
    name = name if isinstance(name, str) else None
    return {"path": str(place), "orig_name": name, "meta": {"_type": "gradio.FileData"}}


def read_image(path: str | Path) -> Image.Image:
    """
    An uploaded image, upright and in RGB.

    Raises:
        `ValueError`: If it is too large, or no image.
    """
    path = Path(path)
    if (size := path.stat().st_size) > MAX_IMAGE_BYTES:
        raise ValueError(f"The image has {size / 1e6:.0f} MB; at most {MAX_IMAGE_BYTES / 1e6:.0f} MB are read.")
    with _opened(path, "The image") as image:
        return _guarded(to_rgb, image, "The image")


def unpack(
    archive: str | Path, folder: str | Path, *, calibrate: bool, step: Callable[[], None] = lambda: None
) -> str:
    """
    A zip of class folders as a dataset on disk, which [`load_data`] reads.

    Images lie in a folder with the name of their class. Above these there may be folders for splits (`train`,
    `validation`, `test`), and anything else. Without a test and a validation split, all images are tested on; or half
    of them, drawn at random within each class, if the others are to fit a temperature.

    Args:
        archive (`str` or `Path`): The zip.
        folder (`str` or `Path`): Where the dataset goes.
        calibrate (`bool`): Whether images to fit a temperature on are needed too.
        step (`Callable`, *optional*): Called before each image; what it raises ends the work.

    Returns:
        `str`: The path of the dataset.

    Raises:
        `ValueError`: If it is no such archive, too large, or its names lead out of it.
    """
    target = Path(folder, "dataset")
    try:
        with zipfile.ZipFile(archive) as opened, TemporaryDirectory(dir=folder) as unpacked:
            splits = _extracted(opened, _members(opened), Path(unpacked), step)
            splits = _test_and_validation(splits, calibrate)
            DatasetDict(splits).save_to_disk(str(target))  # with the bytes of the images in it
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"The file is not a zip that can be read ({error}).") from error
    return str(target)


def _members(archive: zipfile.ZipFile) -> list[Member]:
    members, size = [], 0
    for info in archive.infolist():
        path = PurePosixPath(info.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", info.filename):
            raise ValueError(f"The zip names a file outside of itself, {info.filename!r}, and is not unpacked.")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise ValueError(f"The zip holds a link, {info.filename!r}, and is not unpacked.")
        hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
        if info.is_dir() or hidden or path.suffix.lower() not in IMAGES:
            continue
        if info.flag_bits & 1:
            raise ValueError("The zip is encrypted. Make one without a password.")
        if len(path.parts) < 2:
            raise ValueError(
                f"{info.filename!r} is in no folder. Put the images of each class into a folder with the class's name."
            )
        size += info.file_size
        if info.file_size > MAX_IMAGE_BYTES:
            raise ValueError(f"{info.filename!r} has more than {MAX_IMAGE_BYTES / 1e6:.0f} MB unpacked.")
        if size > MAX_ARCHIVE_BYTES or len(members) == MAX_ARCHIVE_IMAGES:
            raise ValueError(
                f"The zip holds more than {MAX_ARCHIVE_BYTES / 1e9:.0f} GB or {MAX_ARCHIVE_IMAGES:,} images unpacked. "
                "Leave some out."
            )
        split = SPLITS.get(path.parts[-3].lower()) if len(path.parts) > 2 else None
        members.append(Member(info, split, path.parts[-2]))
    if len(labels := {member.label for member in members}) < 2:
        raise ValueError(
            f"The zip holds {len(members)} images in {len(labels)} class folders. It needs a folder of images for "
            "each of at least two classes."
        )
    return members


def _extracted(
    archive: zipfile.ZipFile, members: list[Member], folder: Path, step: Callable[[], None]
) -> dict[str | None, Dataset]:
    names = sorted({member.label for member in members})
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=names)})
    rows: dict[str | None, dict[str, list]] = {}
    for number, member in enumerate(members):
        step()
        path = folder / f"{number}-{_plain_name(member.info.filename)}"
        # `zipfile` reads no more than the size that was added up, and checks it.
        path.write_bytes(archive.read(member.info))
        _opened(path, repr(member.info.filename)).close()
        columns = rows.setdefault(member.split, {"image": [], "label": []})
        columns["image"].append(str(path))
        columns["label"].append(names.index(member.label))
    return {split: Dataset.from_dict(columns, features=features) for split, columns in rows.items()}


def _test_and_validation(splits: dict[str | None, Dataset], calibrate: bool) -> dict[str, Dataset]:
    if None in splits and len(splits) > 1:
        raise ValueError("Some images of the zip lie below a split (train, validation, test) and others do not.")
    if "test" in splits and len(splits) > 1:
        return splits
    if len(splits) > 1:
        return splits | {"test": splits.pop("validation")}
    (images,) = splits.values()
    if not calibrate:
        return {"test": images}
    validation, test = split_off(images, "label", 0.5)
    return {"validation": validation, "test": test}


def _plain_name(name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    return re.sub(r"[^\w-]", "_", path.stem, flags=re.ASCII)[:60] + path.suffix.lower()


def _opened(path: Path, what: str) -> Image.Image:
    """The image, of which only the header was read."""
    image = _guarded(partial(Image.open, formats=FORMATS), path, what)
    width, height = image.size
    if width * height > MAX_IMAGE_PIXELS:
        image.close()
        raise ValueError(
            f"{what} has {width} x {height} pixels; at most {MAX_IMAGE_PIXELS / 1e6:.0f} million are read."
        )
    return image


def _guarded(read: Callable[[Any], Image.Image], source: Any, what: str) -> Image.Image:
    try:
        return read(source)
    except Exception as error:  # broken files make decoders raise nearly anything
        raise ValueError(f"{what} cannot be read: it is not an image, or damaged.") from error
