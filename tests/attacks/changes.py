"""What attacks do to the files of their world beforehand: functions of its folder, made from a few words."""

import json
import os
import pickle
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow
from datasets import DatasetDict
from PIL import Image
from pyarrow import parquet
from safetensors.torch import load_file, save_file


Change = Callable[[Path], None]
EXECUTED = "executed"  # a file that hostile code makes


def write(name: str, content: str | bytes) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def remove(*names: str) -> Change:
    def change(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def truncate(name: str, share: float = 0.5) -> Change:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return change


def both(*changes: Change) -> Change:
    def change(folder: Path) -> None:
        for each in changes:
            each(folder)

    return change


def only(name: str, content: str | bytes) -> Change:
    """Nothing but one file in the folder of photos."""
    return both(remove("photos"), write(f"photos/{name}", content))


def edit(name: str, **values: Any) -> Change:
    """Values of a JSON file, by `a__b` for `{"a": {"b": ...}}`; `...` removes one."""

    def change(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        for key, value in values.items():
            *parents, last = key.split("__")
            part = data
            for parent in parents:
                part = part[parent]
            if value is ...:
                del part[last]
            else:
                part[last] = value
        (folder / name).write_text(json.dumps(data))

    return change


def rename(old: str, new: str) -> Change:
    return lambda folder: (folder / old).rename(folder / new)


def link(name: str, target: str) -> Change:
    """A symbolic link, in place of a file that may be there."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def picture(name: str, image: Image.Image, share: float = 1.0) -> Change:
    def change(folder: Path) -> None:
        image.save(folder / name)
        truncate(name, share)(folder)

    return change


def saved(of_splits: Callable[[DatasetDict], DatasetDict]) -> Change:
    """Changed splits of `data`, in place of `photos`."""

    def change(folder: Path) -> None:
        splits = of_splits(datasets.load_from_disk(str(folder / "data")))
        shutil.rmtree(folder / "photos")
        splits.save_to_disk(str(folder / "photos"), num_shards=dict.fromkeys(splits, 1))

    return change


def each_split(of_split: Callable[[datasets.Dataset], datasets.Dataset]) -> Change:
    return saved(lambda splits: DatasetDict({name: of_split(split) for name, split in splits.items()}))


def labels(values: list[Any] | Any) -> Change:
    """Another column of labels in each split: one value for all rows, or values over and over."""

    def replaced(split: datasets.Dataset) -> datasets.Dataset:
        column = [values[row % len(values)] if isinstance(values, list) else values for row in range(len(split))]
        return split.remove_columns("label").add_column("label", column)

    return each_split(replaced)


def label_outside(splits: DatasetDict) -> DatasetDict:
    """A test split whose labels are beyond the classes that its features name."""
    numbers = splits["test"].cast_column("label", datasets.Value("int64")).map(lambda row: {"label": 5})
    table = numbers.data.table
    info = datasets.DatasetInfo(features=splits["test"].features)
    return DatasetDict({**splits, "test": datasets.Dataset(table, info=info)})


def weights(change_tensors: Callable[[dict], dict]) -> Change:
    def change(folder: Path) -> None:
        path = folder / "model" / "model.safetensors"
        save_file(change_tensors(load_file(path)), path, metadata={"format": "pt"})

    return change


def bomb() -> bytes:
    """A PNG of 60,000 by 60,000 pixels in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def pipes(folder: Path) -> None:
    """Tables in place of the photos, whose images are a pipe that nobody writes to."""
    os.mkfifo(folder / "pipe.png")
    shutil.rmtree(folder / "photos")
    kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    images = pyarrow.array([{"bytes": None, "path": str(folder / "pipe.png")}] * 12, kind)
    features = {"image": {"_type": "Image"}, "label": {"dtype": "string", "_type": "Value"}}
    table = pyarrow.table({"image": images, "label": ["ant", "bee"] * 6})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    for name in ("train", "test"):
        (folder / "photos").mkdir(exist_ok=True)
        parquet.write_table(table, folder / "photos" / f"{name}.parquet")


class _Hostile:
    def __reduce__(self) -> tuple:
        return os.system, (f"touch {EXECUTED}",)


def hostile_pickle() -> bytes:
    return pickle.dumps(_Hostile())


HOSTILE_CODE = f"open({EXECUTED!r}, 'w')\n"


def without_first_image(split: datasets.Dataset) -> datasets.Dataset:
    return split.map(lambda row, place: {"image": row["image"] if place else None}, with_indices=True)


def two_labels(split: datasets.Dataset) -> datasets.Dataset:
    names = split.features["label"]
    return split.rename_column("label", "a").add_column("b", list(split["label"])).cast_column("b", names)


def of_test(of_split: Callable[[datasets.Dataset], datasets.Dataset]) -> Change:
    return saved(lambda splits: DatasetDict({**splits, "test": of_split(splits["test"])}))


def emptied(name: str) -> Change:
    return both(remove(name), lambda folder: (folder / name).mkdir())
