"""What visitors upload: an image, or a zip of class folders. Both are limited in size before anything is decoded."""

import re
import stat
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

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
    name = value.get("orig_name")
    try:
        place = Path(value.get("path")).resolve()
        uploaded = place.is_relative_to(Path(folder).resolve()) and place.is_file()
    except (TypeError, ValueError, OSError):
        uploaded = False
    if not uploaded:
        raise ValueError("A file was named that was not uploaded here. Drop it into the field.")
    name = name if isinstance(name, str) else None
    return {"path": str(place), "orig_name": name, "meta": {"_type": "gradio.FileData"}}


def read_image(path: str | Path) -> Image.Image:
    """An uploaded image, upright and in RGB; a `ValueError` if it is too large, or no image."""
    if (size := Path(path).stat().st_size) > MAX_IMAGE_BYTES:
        raise ValueError(f"The image has {size / 1e6:.0f} MB; at most {MAX_IMAGE_BYTES / 1e6:.0f} MB are read.")
    with _opened(path, "The image") as image:
        return _guarded(to_rgb, image, "The image")


def unpack(archive: str | Path, folder: str | Path, *, calibrate: bool, check: Callable = lambda: None) -> str:
    """
    A zip of class folders as a dataset on disk, which [`load_data`] reads; a `ValueError` if it is no such archive,
    too large, or its names lead out of it.

    Images lie in a folder with the name of their class. Above these there may be folders for splits (`train`,
    `validation`, `test`), and anything else. Without a test and a validation split, all images are tested on; or half
    of them, drawn at random within each class, if the others are to fit a temperature.

    Args:
        archive (`str` or `Path`): The zip.
        folder (`str` or `Path`): Where the dataset goes.
        calibrate (`bool`): Whether images to fit a temperature on are needed too.
        check (`Callable`, *optional*): Called before each image; what it raises ends the work.
    """
    target = Path(folder, "dataset")
    try:
        with zipfile.ZipFile(archive) as opened, TemporaryDirectory(dir=folder) as unpacked:
            splits = _splits(opened, Path(unpacked), check)
            DatasetDict(_test_and_validation(splits, calibrate)).save_to_disk(target)  # with the bytes of the images
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"The file is not a zip that can be read ({error}).") from error
    return str(target)


def _splits(archive: zipfile.ZipFile, folder: Path, check: Callable) -> dict[str | None, Dataset]:
    """The images by split, unpacked into `folder` under names of our own."""
    members = _members(archive)
    names = sorted({path.parts[-2] for path, _ in members})
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=names)})
    rows: dict[str | None, dict[str, list]] = {}
    for number, (path, info) in enumerate(members):
        check()
        plain = re.sub(r"[^\w-]", "_", path.stem, flags=re.ASCII)[:60]
        place = folder / f"{number}-{plain}{path.suffix.lower()}"
        # `zipfile` reads no more than the size that was added up, and checks it.
        place.write_bytes(archive.read(info))
        _opened(place, repr(info.filename)).close()
        split = SPLITS.get(path.parts[-3].lower()) if len(path.parts) > 2 else None
        columns = rows.setdefault(split, {"image": [], "label": []})
        columns["image"].append(str(place))
        columns["label"].append(names.index(path.parts[-2]))
    return {split: Dataset.from_dict(columns, features=features) for split, columns in rows.items()}


def _members(archive: zipfile.ZipFile) -> list[tuple[PurePosixPath, zipfile.ZipInfo]]:
    """The images of an archive that is safe to unpack: checked by what it says it holds, before anything is read."""
    members, size = [], 0
    for info in archive.infolist():
        name, path = info.filename, PurePosixPath(info.filename.replace("\\", "/"))
        outside = path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name)
        if outside or stat.S_ISLNK(info.external_attr >> 16):
            raise ValueError(f"The zip leads out of itself, by {name!r}, and is not unpacked.")
        hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
        if info.is_dir() or hidden or path.suffix.lower() not in IMAGES:
            continue
        if len(path.parts) < 2:
            raise ValueError(f"{name!r} is in no folder. Put the images of each class into a folder with its name.")
        size += info.file_size
        members.append((path, info))
        if info.file_size > MAX_IMAGE_BYTES:
            raise ValueError(f"{name!r} has more than {MAX_IMAGE_BYTES / 1e6:.0f} MB unpacked.")
        if size > MAX_ARCHIVE_BYTES or len(members) > MAX_ARCHIVE_IMAGES:
            most = f"{MAX_ARCHIVE_BYTES / 1e9:.0f} GB or {MAX_ARCHIVE_IMAGES:,} images"
            raise ValueError(f"The zip holds more than {most} unpacked. Leave some out.")
    if (classes := len({path.parts[-2] for path, _ in members})) < 2:
        found = f"{len(members)} images in {classes} class folders"
        raise ValueError(f"The zip holds {found}. It needs a folder of images for each of at least two classes.")
    return members


def _test_and_validation(splits: dict[str | None, Dataset], calibrate: bool) -> dict[str, Dataset]:
    if len(splits) > 1:
        if None in splits:
            raise ValueError("Some images of the zip lie below a split (train, validation, test) and others do not.")
        return splits if "test" in splits else splits | {"test": splits.pop("validation")}
    (images,) = splits.values()
    if not calibrate:
        return {"test": images}
    validation, test = split_off(images, "label", 0.5)
    return {"validation": validation, "test": test}


def _opened(path: str | Path, what: str) -> Image.Image:
    """The image, of which only the header was read."""
    image = _guarded(partial(Image.open, formats=FORMATS), path, what)
    width, height = image.size
    if width * height > MAX_IMAGE_PIXELS:
        image.close()
        most = f"{MAX_IMAGE_PIXELS / 1e6:.0f} million"
        raise ValueError(f"{what} has {width} x {height} pixels; at most {most} are read.")
    return image


def _guarded(read: Callable[[Any], Image.Image], source: Any, what: str) -> Image.Image:
    try:
        return read(source)
    except Exception as error:  # broken files make decoders raise nearly anything
        raise ValueError(f"{what} cannot be read: it is not an image, or damaged.") from error
