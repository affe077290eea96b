"""Files of a dataset on this disk: only its own are opened, and class folders are what they are called."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import datasets
import numpy as np
from datasets import Dataset
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from huggingface_hub import DatasetCard, constants
from huggingface_hub.errors import EntryNotFoundError
from pyarrow import compute

from ..exceptions import ArgumentError
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
        self.dataset, self.addresses = dataset, ()
        if is_local(dataset):
            folder = Path(os.path.realpath(dataset))
            is_cache = folder.parent.name == "snapshots" and folder.parents[1].name.startswith("datasets--")
            folders = [folder.parents[1] if is_cache else folder]  # the Hub's cache has links to files beside them
        else:
            folders = [Path(constants.HF_HUB_CACHE, "datasets--" + dataset.replace("/", "--"))]
            self.addresses = (f"hf://datasets/{dataset}@", f"hf://datasets/{dataset}/")
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
            return file.startswith(self.addresses) and ".." not in file.split("/")
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


def addresses_in_readme(dataset: str) -> list[str]:
    """Addresses that a dataset's README gives for its files, which `datasets` would ask before anybody sees them."""
    readme = os.path.join(dataset, "README.md")
    if is_local(dataset) and not os.path.isfile(readme):
        return []
    try:
        card = DatasetCard.load(readme if is_local(dataset) else dataset, ignore_metadata_errors=True)
    except EntryNotFoundError:
        return []
    named = [config.get("data_files") for config in card.data.get("configs") or []]
    return re.findall(r"[\w:.-]*://[^\s'\"]*", str(named))


# ---- Class folders ----


def check_class_folders(folder: str, files: Sequence[str]) -> None:
    """Refuse class folders that `datasets` reads twice, takes for a split, or does not see, because of their names."""
    top, found = Path(os.path.abspath(folder)), Counter(Path(os.path.abspath(file)) for file in files)
    read = {file.parent for file in found}
    lost = {file.parent for file, times in found.items() if times > 1}
    if not any(file.name.startswith("metadata.") for file in found):  # that file says what is read
        beside = {place for parent in {place.parent for place in read - {top}} for place in parent.iterdir()}
        lost |= {place for place in beside - read if _has_images(place)}
    if lost:
        message = (
            f"would lose the images in {str(min(lost).relative_to(top))!r}, or have them in another split: the folder "
            "is a link, or a folder's name has a line break or the name of a split in it, such as 'train'. Put a copy "
            "in its place; rename it; or sort all class folders into train and test."
        )
        raise ArgumentError("dataset", message, folder)


def _has_images(place: Path) -> bool:
    if place.name.startswith((".", "__")) or not place.is_dir():
        return False
    return any(file.suffix.lower() in ImageFolder.EXTENSIONS for file in place.iterdir())
