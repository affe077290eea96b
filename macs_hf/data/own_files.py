"""Files of a dataset on this disk: only its own are opened, and class folders are what they are called."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import datasets
import numpy as np
from datasets import Dataset
from datasets.data_files import SPLIT_KEYWORDS
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from huggingface_hub import constants
from pyarrow import compute

from ..hub import is_local


# ---- Files that a dataset names ----
# Tables, a README or links may name any file that this process can read.


ARCHIVES = tuple(f"{kind}://" for kind in ("zip", "tar", "gzip", "bz2", "xz", "zstd", "lz4"))
MADE_OF_FILES = "imagefolder"  # its rows name files that `datasets` found, downloaded or unpacked itself


class OwnFiles:
    """
    The files that are a dataset's own: below its folder, or in its repository or that one's cache.

    Args:
        dataset (`str`): Its folder or its id.
        builder_name (`str`, *optional*): What `datasets` read it with.
    """

    def __init__(self, dataset: str, builder_name: str | None = None) -> None:
        self.dataset, self.is_local = dataset, is_local(dataset)
        if self.is_local:
            folder = Path(os.path.realpath(dataset))
            is_cache = folder.parent.name == "snapshots" and folder.parents[1].name.startswith("datasets--")
            folders = [folder.parents[1] if is_cache else folder]  # the Hub's cache has links to files beside them
        else:
            folders = [Path(constants.HF_HUB_CACHE, "datasets--" + dataset.replace("/", "--"))]
        if builder_name == MADE_OF_FILES:
            folders += [datasets.config.DOWNLOADED_DATASETS_PATH, datasets.config.EXTRACTED_DATASETS_PATH]
        self.folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
        self._real: dict[str, str] = {}  # folders, links followed: many files have the same

    def __contains__(self, place: str) -> bool:
        """Whether a path, an address, or a chain of them into archives (`zip://...::...`) leads to one of them."""
        *inside, file = place.split("::")
        if not all(hop.startswith(ARCHIVES) for hop in inside):
            return False
        if "://" in file:
            repo = f"hf://datasets/{self.dataset}"
            return not self.is_local and file.startswith((f"{repo}@", f"{repo}/")) and ".." not in file.split("/")
        folder, name = os.path.split(os.path.abspath(file))
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        real = os.path.join(self._real[folder], name)
        return (os.path.realpath(real) if os.path.islink(real) else real).startswith(self.folders)

    def check(self, *files: str, row: str = "") -> None:
        """Refuse any other file; `row` says where it is named."""
        for file in files:
            if file not in self:
                raise ForeignFileError(
                    f"Dataset {self.dataset!r} names the file {file!r}{row}, which is not its own, so it is not "
                    "opened. Put a copy of the file, not a link, into the dataset; or choose another dataset."
                )

    def check_images(self, split: Dataset, name: str) -> None:
        """Refuse a split with a row whose image is a file elsewhere."""
        for column in (key for key, feature in split.features.items() if isinstance(feature, datasets.Image)):
            stored = split.with_format("arrow", columns=[column])[:].column(column)
            paths = compute.struct_field(stored, "path")
            is_file = compute.and_(compute.is_null(compute.struct_field(stored, "bytes")), compute.is_valid(paths))
            for row, path in zip(np.flatnonzero(is_file), paths.filter(is_file).to_pylist(), strict=True):
                self.check(path, row=f" in row {row} of split {name!r}")


class ForeignFileError(ValueError):
    """A dataset names a file that is not its own."""


# ---- Class folders ----


def check_class_folders(folder: str, files: Mapping[str, Sequence[str]]) -> None:
    """Refuse class folders that `datasets` takes for splits, or does not see, because of their names."""
    read = {
        split: {os.path.relpath(os.path.dirname(file), folder) for file in found} for split, found in files.items()
    }
    everywhere = set().union(*read.values())
    parents = set(map(os.path.dirname, everywhere))
    lost = [place for place in _image_folders(folder) - everywhere if os.path.dirname(place) in parents]
    if any(os.path.basename(file).startswith("metadata.") for found in files.values() for file in found):
        lost = []  # that file says what is read
    for split, places in read.items():
        for place in places:
            above, *below = place.split(os.sep)
            meant = {name for name in files if _names_split(above, str(name))}
            if below and meant and split not in meant:
                lost.append(place)
    if lost:
        raise ValueError(
            f"The images in {min(lost)!r} of {folder!r} would be left out or become part of another split: a folder's "
            "name has a line break or the name of a split in it, such as 'train'. Rename that folder; or sort all "
            "class folders into train and test."
        )


def _names_split(folder: str, split: str) -> bool:
    """Whether `datasets` takes a folder for a split."""
    words = "|".join(SPLIT_KEYWORDS.get(split, [split]))
    return re.fullmatch(rf"(.*[-._ 0-9])?({words})([-._ 0-9].*)?", folder, re.DOTALL) is not None


def _image_folders(folder: str) -> set[str]:
    """The folders below `folder` with images directly in them, but for those that are hidden."""
    found = set()
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        if any(os.path.splitext(file)[1].lower() in ImageFolder.EXTENSIONS for file in files):
            found.add(os.path.relpath(where, folder))
    return found


def only_class(folder: str) -> str | None:
    """The name of the class folders in `folder`, if all have the same; `datasets` makes no labels of one class."""
    places = _image_folders(folder)
    names = {os.path.basename(place) for place in places}
    return names.pop() if len(names) == 1 and "." not in places else None
