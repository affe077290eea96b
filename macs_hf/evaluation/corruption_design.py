"""Which images of a dataset the corruption benchmark sees, and under which corruptions.

- Crossed: every image under every corruption. The results of one image under 19 corruptions are so alike that 500
  images with 9,500 results are worth hardly more than 500 independent results.
- Spread: every image under one corruption, at all severities. The corruptions have images of their own, so that the
  mean over corruptions has the variance `sum over c of variance[c] / n[c] / 19^2`; for the same number of forward
  passes there are 16 to 19 times as many images.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch

from ..corruptions.corrupt import check_cell, check_seed
from ..randomness import mix_seed
from ..report.corruption_names import CORRUPTIONS, SEVERITIES
from ..report.rows import SampleRows
from .byte_images import ByteImages
from .corruption_counts import CLEAN, Key


Design = Literal["crossed", "spread"]
DESIGNS: tuple[Design, ...] = ("crossed", "spread")
SPREAD_FROM = 1900  # images: 100 for each of the 19 corruptions


@dataclass(frozen=True)
class CorruptionBenchmark:
    """
    Which corruptions of which images are measured.

    Args:
        params (`str`, *optional*, defaults to `"auto"`): Parameter set, see `corrupt`; `"auto"` goes by the size that
            the network sees, and the table names the set that was taken.
        seed (`int`, *optional*, defaults to 0): Seed of the corruptions, of the subset and of the spread design.
        corruptions, severities (sequences, *optional*): What to measure, by default all 19 x 5.
        samples (`int`, *optional*): At most this many images, a fixed random subset; all, if not given.
        design (`str`, *optional*, defaults to `"auto"`):
            - `"crossed"`: every image under every corruption, 96 forward passes per image.
            - `"spread"`: every image under one corruption, drawn at random and balanced over the classes, 6 forward
              passes per image. For the same passes it sees 16 times as many images, and its means are far more
              certain, as images differ more than corruptions of one image do.
            - `"auto"`: spread from 1,900 images on, crossed below, see [`default_design`].
        when (`str`, *optional*, defaults to `"after_resize"`): Corrupt images as the network receives them, so that
            severities mean the same for every dataset, and CIFAR-10-C is this at 32 pixels. With `"before_resize"`
            the original image is corrupted and then resized, which weakens noise and fine blur where it is shrunk.
        frost_textures (`str` or `Path`, *optional*): See `frost_source`.
    """

    params: Literal["auto", "cifar", "imagenet"] = "auto"
    seed: int = 0
    corruptions: Sequence[str] = CORRUPTIONS
    severities: Sequence[int] = SEVERITIES
    samples: int | None = None
    design: Literal["auto", "crossed", "spread"] = "auto"
    when: Literal["after_resize", "before_resize"] = "after_resize"
    frost_textures: str | Path | None = None

    def __post_init__(self) -> None:
        for name in self.corruptions:
            for severity in self.severities:
                check_cell(name, severity, self.params)
        check_seed(self.seed)
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"samples={self.samples} must be at least 1, or None for all.")
        for field, known in (("design", ("auto", *DESIGNS)), ("when", ("after_resize", "before_resize"))):
            if getattr(self, field) not in known:
                raise ValueError(f"{field}={getattr(self, field)!r} is none of {', '.join(map(repr, known))}.")

    def cells(self, names: Sequence[str]) -> list[Key]:
        return [(name, severity) for name in names for severity in self.severities]


class Plan(NamedTuple):
    """Which images are seen in which cells: `groups` of positions and their cells, or `None` for a stream."""

    design: Design
    keys: list[Key]
    index: np.ndarray | None
    groups: list[tuple[np.ndarray, list[Key]]] | None

    def steps(self, batch_size: int, rank: int, world: int) -> int | None:
        """The forward passes of one process, if they are known."""
        if self.groups is None:
            return None
        return sum(-(-len(positions[rank::world]) // batch_size) * len(keys) for positions, keys in self.groups)


def planned(benchmark: CorruptionBenchmark, images: ByteImages, clean_rows: Sequence[SampleRows] | None) -> Plan:
    clean = [CLEAN] if clean_rows is None else []
    keys = clean + benchmark.cells(benchmark.corruptions)
    if images.is_stream:
        if benchmark.samples is not None or benchmark.design == "spread":
            asked = "design='spread'" if benchmark.samples is None else f"samples={benchmark.samples}"
            raise ValueError(f"{asked} needs a dataset with a length: images of a stream cannot be drawn at random.")
        return Plan("crossed", keys, None, None)
    index = np.array(subset(len(images), benchmark.samples, benchmark.seed), np.int64)
    if (default_design(len(index)) if benchmark.design == "auto" else benchmark.design) == "crossed":
        return Plan("crossed", keys, index, [(index, keys)])
    if len(index) < 2 * len(benchmark.corruptions):
        raise ValueError(
            f"design='spread' needs at least two images for each of the {len(benchmark.corruptions)} corruptions, but "
            f"there are {len(index)} in all: use design='crossed'."
        )
    labels = images.labels() if clean_rows is None else clean_rows[0].label
    assigned = spread_assignment(labels[index], len(benchmark.corruptions), benchmark.seed)
    groups = [
        (index[assigned == number], clean + benchmark.cells([name]))
        for number, name in enumerate(benchmark.corruptions)
    ]
    return Plan("spread", keys, index, groups)


def default_design(n: int) -> Design:
    """`"spread"` if `n` images give each of the 19 corruptions 100 or more of its own, else `"crossed"`."""
    return "spread" if n >= SPREAD_FROM else "crossed"


def spread_assignment(labels: Sequence[int] | np.ndarray, corruptions: int, seed: int = 0) -> np.ndarray:
    """
    The number of the corruption, from 0, that each image is seen under in the spread design.

    A random order of the images of each class is dealt out to a random order of the corruptions, and the next class
    goes on where the last one stopped. So every image is equally likely to get each corruption, and the corruptions
    have the same number of images, of each class and in all, give or take one.

    Args:
        labels (sequence of `int`): Class of each image.
        corruptions (`int`): Number of corruptions.
        seed (`int`, *optional*, defaults to 0): The same seed and labels give the same assignment.
    """
    labels = torch.as_tensor(np.asarray(labels, dtype=np.int64))
    generator = torch.Generator().manual_seed(mix_seed(seed % 2**64, corruptions))
    shuffled = torch.randperm(len(labels), generator=generator)
    dealt = shuffled[labels[shuffled].argsort(stable=True)]
    order = torch.randperm(corruptions, generator=generator)
    assigned = torch.empty(len(labels), dtype=torch.int64)
    assigned[dealt] = order[torch.arange(len(labels)) % corruptions]
    return assigned.numpy()


def subset(count: int, samples: int | None, seed: int) -> list[int]:
    """The positions of a fixed random subset, in order; all of them if `samples` is `None` or larger."""
    if samples is not None and samples < 1:
        raise ValueError(f"samples={samples} must be at least 1, or None for all.")
    if samples is None or samples >= count:
        return list(range(count))
    generator = torch.Generator().manual_seed(check_seed(seed))
    return torch.randperm(count, generator=generator)[:samples].sort().values.tolist()
