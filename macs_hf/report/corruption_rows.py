"""The results of each image under each corruption: one row per image, one column per corruption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .corruption_names import CORRUPTIONS, SEVERITIES


ImageScore = Literal["accuracy", "nll", "scaled_nll"]
NOT_MEASURED = 255  # in `hits`: this image was not seen under this corruption
# Columns in a file of samples: if each image was seen under one corruption, its name and what was found; otherwise one
# column for each corruption, with a prefix, such as `hits_fog`.
ONE = "corruption"
HITS, NLL, SCALED_NLL = "hits_", "nll_", "scaled_nll_"


@dataclass(frozen=True, eq=False)
class CorruptionRows:
    """
    Results image by image, so that two models can be compared on the same corrupted images.

    Args:
        index (`np.ndarray` of shape `(images,)`, int64): Positions of the images in the test split, ascending.
        names (`tuple[str, ...]`): The corruptions, one per column of the arrays below.
        hits (`np.ndarray` of shape `(images, corruptions)`, uint8): At how many of the five severities the prediction
            was right; `NOT_MEASURED` where the image was not seen under the corruption.
        nll (`np.ndarray` of that shape, float32, *optional*): Mean negative log-likelihood over the severities; NaN
            where not measured.
        scaled_nll (`np.ndarray` of that shape, float32, *optional*): The same with the table's temperature.
    """

    index: np.ndarray
    names: tuple[str, ...]
    hits: np.ndarray
    nll: np.ndarray | None = None
    scaled_nll: np.ndarray | None = None

    def __post_init__(self) -> None:
        shape = (len(self.index), len(self.names))
        for name in ("hits", "nll", "scaled_nll"):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ValueError(f"{name} has the shape {array.shape} in place of {shape}: one row per image")
        if unknown := sorted(set(self.names) - set(CORRUPTIONS)):
            raise ValueError(f"there is no corruption {unknown[0]!r}")
        if len(self.index) and (self.index[0] < 0 or (np.diff(self.index) <= 0).any()):
            raise ValueError("index must hold positions in the test split, each once, in ascending order")
        wrong = (self.hits > len(SEVERITIES)) & (self.hits != NOT_MEASURED)
        if wrong.any():
            raise ValueError(f"hits of {self.hits[wrong][0]}: there are {len(SEVERITIES)} severities")

    def __len__(self) -> int:
        return len(self.index)

    def scores(self, score: ImageScore, names: Sequence[str]) -> np.ndarray:
        """`(images, len(names))`, the mean over the severities; NaN where not measured."""
        if score == "accuracy":
            return self.accuracy(names)
        array = {"nll": self.nll, "scaled_nll": self.scaled_nll}[score]
        if array is None:
            raise ValueError(f"the rows hold no {score}: measure the model again, with a temperature for scaled_nll")
        return array[:, [self.names.index(name) for name in names]].astype(np.float64)

    def accuracy(self, names: Sequence[str]) -> np.ndarray:
        """`(images, len(names))`: the share of severities that were right; NaN where not measured."""
        hits = self.hits[:, [self.names.index(name) for name in names]]
        return np.where(hits == NOT_MEASURED, np.nan, hits / len(SEVERITIES))

    def to_columns(self, n: int) -> dict[str, np.ma.MaskedArray]:
        """Columns of a table of all `n` test images, masked where nothing was measured."""
        arrays = {HITS: self.hits, NLL: self.nll, SCALED_NLL: self.scaled_nll}
        arrays = {prefix: array for prefix, array in arrays.items() if array is not None}
        seen = self.hits != NOT_MEASURED
        columns = {}
        if len(self) and (seen.sum(axis=1) == 1).all():
            which = seen.argmax(axis=1)
            columns[ONE] = _spread(np.array(self.names)[which], self.index, n)
            for prefix, array in arrays.items():
                columns[f"{prefix}{ONE}"] = _spread(array[np.arange(len(self)), which], self.index, n)
            return columns
        for prefix, array in arrays.items():
            for column, name in enumerate(self.names):
                here = seen[:, column]
                columns[f"{prefix}{name}"] = _spread(array[here, column], self.index[here], n)
        return columns

    @classmethod
    def from_columns(cls, columns: Mapping[str, np.ma.MaskedArray]) -> CorruptionRows | None:
        """The inverse of [`to_columns`](CorruptionRows.to_columns); `None` if there are no such columns."""
        if ONE in columns:
            return cls._from_one(columns)
        names = tuple(name for name in CORRUPTIONS if f"{HITS}{name}" in columns)
        if not names:
            return None
        measured = np.stack([~np.ma.getmaskarray(columns[f"{HITS}{name}"]) for name in names], axis=1)
        index = np.flatnonzero(measured.any(axis=1))

        def stacked(prefix: str, kind: type, missing: float) -> np.ndarray | None:
            if f"{prefix}{names[0]}" not in columns:
                return None
            parts = [np.ma.filled(columns[f"{prefix}{name}"].astype(kind), missing)[index] for name in names]
            return np.stack(parts, axis=1)

        hits = stacked(HITS, np.uint8, NOT_MEASURED)
        return cls(index, names, hits, stacked(NLL, np.float32, np.nan), stacked(SCALED_NLL, np.float32, np.nan))

    @classmethod
    def _from_one(cls, columns: Mapping[str, np.ma.MaskedArray]) -> CorruptionRows:
        if f"{HITS}{ONE}" not in columns:
            raise ValueError(f"it has a column {ONE!r}, but no {HITS + ONE!r}")
        index = np.flatnonzero(~np.ma.getmaskarray(columns[ONE]))
        seen = [str(name) for name in columns[ONE].data[index]]
        if unknown := sorted(set(seen) - set(CORRUPTIONS)):
            raise ValueError(f"there is no corruption {unknown[0]!r}")
        names = tuple(name for name in CORRUPTIONS if name in set(seen))
        place = np.arange(len(index)), np.array([names.index(name) for name in seen], dtype=np.int64)

        def placed(prefix: str, kind: type, missing: float) -> np.ndarray | None:
            if f"{prefix}{ONE}" not in columns:
                return None
            array = np.full((len(index), len(names)), missing, dtype=kind)
            array[place] = np.ma.filled(columns[f"{prefix}{ONE}"].astype(kind), missing)[index]
            return array

        hits = placed(HITS, np.uint8, NOT_MEASURED)
        return cls(index, names, hits, placed(NLL, np.float32, np.nan), placed(SCALED_NLL, np.float32, np.nan))


def _spread(values: np.ndarray, index: np.ndarray, n: int) -> np.ma.MaskedArray:
    """`n` values, those at `index` given and the others masked."""
    whole = np.ma.masked_all(n, dtype=values.dtype)
    whole[index] = values
    return whole
