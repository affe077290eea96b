"""The published corrupted datasets, with the same report as generated ones.

Three layouts are read:

- CIFAR-10-C and CIFAR-100-C: a folder of `<corruption>.npy`, `(5 n, 32, 32, 3)` uint8, the severities one after the
  other, and `labels.npy`;
- ImageNet-C: a folder of `<corruption>/<severity>/<class>/<image>`, possibly below folders for the families; the
  classes are numbered in the order of their names;
- copies on the Hub: a `datasets.Dataset` with an image, a label, a corruption and a severity column, or the id of a
  dataset that has them or that keeps the `.npy` files.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import datasets
import numpy as np
import torch
from accelerate import Accelerator
from huggingface_hub import snapshot_download
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import pil_to_tensor
from tqdm.auto import tqdm

from ..data.images import decode
from ..report.corruption_table import CORRUPTIONS, SEVERITIES, CorruptionTable
from .corruption_benchmark import Forward
from .corruption_counts import CorruptionCounts
from .corruption_design import subset


CORRUPTION_COLUMNS = ("corruption", "corruption_name", "corruption_type")
SEVERITY_COLUMNS = ("severity", "corruption_level", "corruption_severity", "level")
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label")


class Slice(NamedTuple):
    """One corruption at one severity: `read(positions)` gives uint8 images `(3, H, W)` and their labels."""

    count: int
    read: Callable[[Sequence[int]], tuple[list[Tensor], list[int]]]


def evaluate_published(
    forward: Forward,
    data: str | Path | datasets.Dataset,
    *,
    params: Literal["cifar", "imagenet"],
    samples: int | None = None,
    seed: int = 0,
    resize: Callable[[Tensor], Tensor] | None = None,
    temperature: float | None = None,
    batch_size: int = 128,
    accelerator: Accelerator | None = None,
    progress: bool = True,
) -> CorruptionTable:
    """
    Accuracy, NLL and ECE on published corrupted images, as `evaluate_corruptions` gives them on generated ones.

    Args:
        forward (`Callable`): Maps uint8 images `(B, 3, H, W)` to logits `(B, classes)`; see `forward_of`.
        data (`str`, `Path` or `datasets.Dataset`): A folder, a Hub id, or a loaded dataset; see the module.
        params (`str`): Whose severities the data have: `"cifar"` for CIFAR-10-C and CIFAR-100-C, `"imagenet"` for
            ImageNet-C.
        samples (`int`, *optional*): Measure the same random subset of images in every cell, chosen by `seed`.
        resize (`Callable`, *optional*): Maps one uint8 image `(3, H, W)` to the network's input size, uint8.
        temperature, batch_size, accelerator, progress: As in `evaluate_corruptions`.
    """
    slices = published_slices(data)
    counts = {piece.count for piece in slices.values()}
    if len(counts) > 1:
        raise ValueError(f"The cells of {_name(data)} differ in size ({sorted(counts)}): the copy is incomplete.")
    rank, world = (accelerator.process_index, accelerator.num_processes) if accelerator is not None else (0, 1)
    index = np.array(subset(counts.pop(), samples, seed), np.int64)
    mine = index[rank::world].tolist()
    tally, size = CorruptionCounts(list(slices), temperature), None
    for key, piece in tqdm(slices.items(), unit="cell", desc=_name(data), disable=not progress or rank > 0):
        for start in range(0, len(mine), batch_size):
            images, labels = piece.read(mine[start : start + batch_size])
            batch = torch.stack([resize(image) for image in images] if resize is not None else images)
            size = tuple(batch.shape[2:])
            positions = torch.tensor(mine[start : start + batch_size])
            tally.update(key, positions, forward(batch), torch.tensor(labels))
    cells, rows, errors, gaps = tally.totals(index, accelerator)
    names = [name for name in CORRUPTIONS if any(key[0] == name for key in cells)]
    return CorruptionTable(
        params=params,
        source=_name(data),
        n=next(iter(cells.values())).n,
        cells={name: {s: cells[name, s] for s in SEVERITIES if (name, s) in cells} for name in names},
        when="before_resize" if resize is not None else "after_resize",
        seed=None if samples is None else seed,
        frost="original" if "frost" in names else None,
        temperature=temperature,
        standard_error=errors,
        confidence_gap=gaps,
        size=size,
        rows=rows,
    )


def published_slices(data: str | Path | datasets.Dataset) -> dict[tuple[str, int], Slice]:
    """The cells that a published copy holds, in the canonical order; nothing is read yet but sizes and names."""
    if isinstance(data, datasets.Dataset):
        slices = dict(_hub_slices(data))
    elif Path(data).is_dir():
        slices = dict(_npy_slices(Path(data))) or dict(_folder_slices(Path(data)))
    elif isinstance(data, str) and data.count("/") == 1 and not data.startswith((".", "/")):
        folder = snapshot_download(data, repo_type="dataset", allow_patterns=["*.npy"])
        slices = dict(_npy_slices(Path(folder))) or dict(_hub_slices(datasets.load_dataset(data, split="test")))
    else:
        raise ValueError(f"{str(data)!r} is neither a folder nor a Hub id owner/name nor a datasets.Dataset.")
    if not slices:
        raise ValueError(
            f"{_name(data)} holds no corrupted images: expected <corruption>.npy with labels.npy, or "
            f"<corruption>/<severity>/<class>/ folders, with names such as {CORRUPTIONS[0]!r}."
        )
    return {(name, s): slices[name, s] for name in CORRUPTIONS for s in SEVERITIES if (name, s) in slices}


def _name(data: str | Path | datasets.Dataset) -> str:
    if isinstance(data, datasets.Dataset):
        return data.info.dataset_name or "datasets.Dataset"
    return Path(data).name if Path(data).is_dir() else str(data)


def _npy_slices(folder: Path) -> Iterator[tuple[tuple[str, int], Slice]]:
    found = {path.stem: path for path in sorted(folder.rglob("*.npy")) if path.stem in CORRUPTIONS}
    for name, path in found.items():
        labels_path = path.with_name("labels.npy")
        if not labels_path.is_file():
            raise ValueError(f"{labels_path} is missing: it belongs to the published files.")
        images, labels = np.load(path, mmap_mode="r"), np.load(labels_path)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or len(images) % 5:
            raise ValueError(f"{path} holds {images.dtype} {images.shape}, expected uint8 (5 n, H, W, 3).")
        count = len(images) // 5
        if len(labels) not in (count, len(images)):
            raise ValueError(f"{labels_path} has {len(labels)} labels for {len(images)} images of {path.name}.")
        for severity in SEVERITIES:
            first = (severity - 1) * count

            def read(
                positions: Sequence[int], images: np.ndarray = images, labels: np.ndarray = labels, first: int = first
            ) -> tuple[list[Tensor], list[int]]:
                picked = torch.from_numpy(images[[first + p for p in positions]]).movedim(-1, 1).contiguous()
                return list(picked), labels[list(positions)].tolist()

            yield (name, severity), Slice(count, read)


def _folder_slices(folder: Path) -> Iterator[tuple[tuple[str, int], Slice]]:
    for name in CORRUPTIONS:
        for place in (folder / name, *sorted(folder.glob(f"*/{name}"))):
            for severity in SEVERITIES:
                if not (place / str(severity)).is_dir():
                    continue
                classes = sorted(path for path in (place / str(severity)).iterdir() if path.is_dir())
                files = [(f, number) for number, where in enumerate(classes) for f in sorted(where.iterdir())]

                def read(
                    positions: Sequence[int], files: list[tuple[Path, int]] = files
                ) -> tuple[list[Tensor], list[int]]:
                    images = [pil_to_tensor(decode(Image.open(files[p][0]))) for p in positions]
                    return images, [files[p][1] for p in positions]

                yield (name, severity), Slice(len(files), read)


def _hub_slices(dataset: datasets.Dataset) -> Iterator[tuple[tuple[str, int], Slice]]:
    def column(names: tuple[str, ...], what: str) -> str:
        found = next((name for name in names if name in dataset.column_names), None)
        if found is None:
            raise ValueError(f"The dataset has no {what} column ({', '.join(names)}) but {dataset.column_names}.")
        return found

    image, label = column(IMAGE_COLUMNS, "image"), column(LABEL_COLUMNS, "label")
    corruption, severity = column(CORRUPTION_COLUMNS, "corruption"), column(SEVERITY_COLUMNS, "severity")
    feature = dataset.features[corruption]
    rows: dict[tuple[str, int], list[int]] = {}
    for row, (name, level) in enumerate(zip(dataset[corruption], dataset[severity], strict=True)):
        name = feature.int2str(name) if isinstance(feature, datasets.ClassLabel) else str(name)
        rows.setdefault((name.lower().replace(" ", "_"), int(level)), []).append(row)
    for key, places in rows.items():

        def read(positions: Sequence[int], places: list[int] = places) -> tuple[list[Tensor], list[int]]:
            picked: dict[str, Any] = dataset[[places[p] for p in positions]]
            return [pil_to_tensor(decode(value)) for value in picked[image]], [int(value) for value in picked[label]]

        yield key, Slice(len(places), read)
