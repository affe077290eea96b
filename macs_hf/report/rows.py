"""Per-sample rows: all that the metrics need to know about a prediction, in 24 bytes instead of all logits.

With p = softmax(z), label y and prediction k = argmax z:

    confidence = p[k]                                   nll    = -log p[y]
    brier      = sum over j of (p[j] - [j = y])^2       margin = z[y] - max over j != y of z[j]

Below: rows from logits, rows of corrupted images, and the Parquet file that has both.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..exceptions import check_labels


if TYPE_CHECKING:
    import datasets
    import pandas
    import pyarrow
    import torch
    from torch import Tensor


# Columns and their types.
COLUMNS = {
    "label": np.int32,
    "prediction": np.int32,
    "confidence": np.float32,
    "nll": np.float32,
    "brier": np.float32,
    "margin": np.float32,
}
# Columns that say which sample it is; each may be missing.
ORIGIN = ("name", "index", "group")
# The range of each, but for rounding.
BOUNDS = {"confidence": (0.0, 1.0), "nll": (0.0, np.inf), "brier": (0.0, 2.0), "margin": (-np.inf, np.inf)}
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class SampleRows:
    """
    One row per sample, as columns of shape `(n,)`, in the order of the dataset.

    Args:
        label, prediction (`np.ndarray`, int32): Class ids.
        confidence, nll, brier, margin (`np.ndarray`, float32): See the equations of this module.
        name (`np.ndarray` of `str`, *optional*): What each sample is called, such as its file.
        index (`np.ndarray`, int64, *optional*): Where each sample is in the split of the dataset; if not given, its
            position among the rows is.
        group (`np.ndarray` of `str`, *optional*): Its group, such as the camera that took it.

    Example:

    ```python
    >>> import torch
    >>> rows = SampleRows.from_logits(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    >>> rows.correct, rows.margin
    (array([ True, False]), array([2., 0.], dtype=float32))

    ```
    """

    label: np.ndarray
    prediction: np.ndarray
    confidence: np.ndarray
    nll: np.ndarray
    brier: np.ndarray
    margin: np.ndarray
    name: np.ndarray | None = None
    index: np.ndarray | None = None
    group: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in (*self._given, *COLUMNS):
            if not isinstance(getattr(self, name), np.ndarray):
                raise TypeError(f"{name} must be a NumPy array, got {type(getattr(self, name)).__name__}")
        shapes = {getattr(self, name).shape for name in (*self._given, *COLUMNS)}
        if len(shapes) > 1 or len(self.label.shape) != 1 or not len(self.label):
            raise ValueError(f"rows need columns of one shape (n,) with n > 0, got {sorted(shapes)}")
        for name, (low, high) in BOUNDS.items():
            column = getattr(self, name)
            _refuse(name, column, ~np.isfinite(column), "a finite number: its logits hold NaN or infinity")
            wanted = f"at least {low:g}" if high == np.inf else f"within [{low:g}, {high:g}]"
            _refuse(name, column, (column < low - ROUNDING) | (column > high + ROUNDING), wanted)
        for name in ("label", "prediction"):
            column = getattr(self, name)
            if not np.issubdtype(column.dtype, np.integer):
                raise ValueError(f"{name} must hold class ids, whole numbers, got {column.dtype}")
            _refuse(name, column, column < 0, "a class id, which begin at 0")

    @property
    def _given(self) -> list[str]:
        return [name for name in ORIGIN if getattr(self, name) is not None]

    @classmethod
    def from_array(cls, rows: np.ndarray) -> SampleRows:
        """From an array `(n, 6)` as [`sample_rows`] makes it."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != len(COLUMNS):
            raise ValueError(f"expected an array of shape (n, {len(COLUMNS)}), got {rows.shape}")
        columns = dict(zip(COLUMNS, rows.T, strict=True))
        for name in ("label", "prediction"):
            _refuse(name, columns[name], columns[name] % 1 != 0, "a class id, a whole number")
        return cls(**{name: np.ascontiguousarray(columns[name], dtype=kind) for name, kind in COLUMNS.items()})

    @classmethod
    def from_logits(cls, logits: Tensor, labels: Tensor) -> SampleRows:
        """From logits `(n, classes)` and class ids `(n,)`; of probabilities, pass the logarithm."""
        import torch  # rows that were saved are read and compared without it

        logits, labels = torch.as_tensor(logits), torch.as_tensor(labels).cpu()
        rows = cls.from_array(sample_rows(logits, labels).cpu().numpy())
        if (logits >= 0).all() and ((logits.sum(dim=1) - 1).abs() <= 4e-3).all():
            warnings.warn("logits look like probabilities: pass probabilities.log() to from_logits", stacklevel=2)
        return rows

    def to_table(self) -> pyarrow.Table:
        """The columns as an Arrow table: those of `name`, `index` and `group` that are known, then all others."""
        import pyarrow  # slow to import, and not needed to measure

        columns = {name: getattr(self, name) for name in (*self._given, *COLUMNS)}
        return pyarrow.table({name: x.astype(object) if x.dtype.kind == "U" else x for name, x in columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """The columns as a table of pandas, such as to sort and filter them."""
        return self.to_table().to_pandas()

    def to_dataset(self) -> datasets.Dataset:
        """The columns as a `datasets.Dataset`."""
        from datasets import Dataset

        return Dataset(self.to_table())

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> np.ndarray:
        return self.prediction == self.label


def _refuse(name: str, column: np.ndarray | Sequence[float], wrong: np.ndarray, wanted: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{name} of row {row} must be {wanted}, got {column[row]}")


# ---- From logits to rows ----


MOST_CLASSES = 2**24  # whole numbers up to here are exact in float32


def sample_rows(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    Reduces logits to rows on their device, without waiting for it: for `Trainer.preprocess_logits_for_metrics`.

    Args:
        logits (`torch.Tensor` of shape `(n, classes)`): Of any floating type, at least two classes.
        labels (`torch.Tensor` of shape `(n,)`): Class ids.

    Returns:
        `torch.Tensor` of shape `(n, 6)`, float32 (exact for class ids below 2^24): label, prediction, confidence, nll,
        brier, margin. NaN logits give NaN; [`SampleRows.from_array`] names the row.
    """
    import torch

    if logits.ndim != 2 or logits.shape[1] < 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must be (n, classes) with at least two classes and labels (n,), got {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}"
        )
    if logits.shape[1] > MOST_CLASSES:
        raise ValueError(f"{logits.shape[1]} classes are too many: rows hold class ids up to {MOST_CLASSES} exactly")
    labels = class_ids(labels, logits.shape[1])
    logits = logits.detach()
    logits = logits if logits.dtype == torch.float64 else logits.float()
    index = labels.to(logits.device)[:, None]
    log_probs = logits.log_softmax(dim=1)
    prediction = argmax(logits)
    label_logit, label_log_prob = logits.gather(1, index)[:, 0], log_probs.gather(1, index)[:, 0]
    probs = log_probs.exp()
    confidence = probs.gather(1, prediction[:, None])[:, 0]
    # 1 - 2 p[y] + sum of squares, arranged so that a confident, right prediction does not cancel
    label_prob = label_log_prob.exp()
    brier = (1 - label_prob) ** 2 + probs.square_().scatter_(1, index, 0.0).sum(dim=1)
    margin = label_logit - logits.scatter(1, index, -torch.inf).amax(dim=1)
    columns = (labels, prediction, confidence, label_log_prob.abs(), brier, margin)  # abs: no negative zero
    return torch.stack([column.to(logits.device, torch.float32) for column in columns], dim=1)


def class_ids(labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Labels as int64 class ids. Their range is checked on the CPU only, so as not to wait for an accelerator."""
    import torch

    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels must be whole class ids, got {labels.dtype}: convert them with labels.long()")
    labels = labels.to(torch.int64)
    if labels.device.type == "cpu":
        check_labels(labels, classes)
    return labels


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """The first largest entry of each row; on CPU by NumPy, which takes a quarter of the time."""
    import torch

    return torch.from_numpy(logits.numpy().argmax(axis=1)) if logits.device.type == "cpu" else logits.argmax(dim=1)


# ---- Corruptions ----
# The names of the benchmark: 19 corruptions in five families, five severities.


FAMILIES: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}
CORRUPTIONS: tuple[str, ...] = tuple(name for family in FAMILIES.values() for name in family)
STANDARD_15: tuple[str, ...] = CORRUPTIONS[:15]
MEANS = {"mean15": STANDARD_15, "mean19": CORRUPTIONS}
SEVERITIES = (1, 2, 3, 4, 5)


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
        array = {"accuracy": self.hits, "nll": self.nll, "scaled_nll": self.scaled_nll}[score]
        if array is None:
            raise ValueError(f"the rows hold no {score}: measure the model again, with a temperature for scaled_nll")
        array = array[:, [self.names.index(name) for name in names]]
        if score == "accuracy":
            return np.where(array == NOT_MEASURED, np.nan, array / len(SEVERITIES))
        return array.astype(np.float64)

    def to_columns(self, n: int) -> dict[str, np.ma.MaskedArray]:
        """Columns of a table of all `n` test images, masked where nothing was measured."""
        seen = self.hits != NOT_MEASURED
        if len(self) and (seen.sum(axis=1) == 1).all():
            columns = {ONE: _spread(np.array(self.names)[seen.argmax(axis=1)], self.index, n)}
            parts = {ONE: np.nonzero(seen)}
        else:
            columns = {}
            parts = {name: (np.flatnonzero(seen[:, k]), k) for k, name in enumerate(self.names)}
        for prefix, array in {HITS: self.hits, NLL: self.nll, SCALED_NLL: self.scaled_nll}.items():
            for name, (image, which) in parts.items() if array is not None else ():
                columns[f"{prefix}{name}"] = _spread(array[image, which], self.index[image], n)
        return columns

    @classmethod
    def from_columns(cls, columns: Mapping[str, np.ma.MaskedArray]) -> CorruptionRows | None:
        """The inverse of [`to_columns`](CorruptionRows.to_columns); `None` if there are no such columns."""
        if ONE in columns and f"{HITS}{ONE}" not in columns:
            raise ValueError(f"it has a column {ONE!r}, but no {HITS + ONE!r}")
        names = tuple(name for name in CORRUPTIONS if f"{HITS}{name}" in columns)
        keys = (ONE,) if ONE in columns else names
        if not keys:
            return None
        images = {key: np.flatnonzero(~np.ma.getmaskarray(columns[f"{HITS}{key}"])) for key in keys}
        if ONE in columns:
            seen = [str(name) for name in columns[ONE].data[images[ONE]]]
            names = tuple(name for name in CORRUPTIONS if name in set(seen))
            if unknown := sorted(set(seen) - set(names)):
                raise ValueError(f"there is no corruption {unknown[0]!r}")
        else:
            seen = [name for name in names for _ in images[name]]
        index, row = np.unique(np.concatenate(list(images.values())), return_inverse=True)
        places = {name: place for place, name in enumerate(names)}
        column = np.array([places[name] for name in seen], dtype=np.int64)

        def array(prefix: str, kind: type, missing: float) -> np.ndarray | None:
            if any(f"{prefix}{key}" not in columns for key in keys):
                return None
            parts = [np.ma.filled(columns[f"{prefix}{key}"].astype(kind), missing)[images[key]] for key in keys]
            found = np.full((len(index), len(names)), missing, dtype=kind)
            found[row, column] = np.concatenate(parts)
            return found

        hits = array(HITS, np.uint8, NOT_MEASURED)
        return cls(index, names, hits, array(NLL, np.float32, np.nan), array(SCALED_NLL, np.float32, np.nan))


def _spread(values: np.ndarray, index: np.ndarray, n: int) -> np.ma.MaskedArray:
    """`n` values, those at `index` given and the others masked."""
    whole = np.ma.masked_all(n, dtype=values.dtype)
    whole[index] = values
    return whole


# ---- The file of rows ----
# Its columns: those of SampleRows for the model as it is published; `before_confidence`, `before_nll` and
# `before_brier` of the model before its temperature T, whose predictions are the same and whose margins are T times as
# large; and those of CorruptionRows, empty for images that were not measured under corruption.


BEFORE = "before_"
SCALED = ("confidence", "nll", "brier")  # columns that a temperature changes in another way than by a factor
N_BINS = 15  # of the reported ECE


def write_rows(
    path: str | PathLike[str],
    rows: SampleRows,
    before: SampleRows | None = None,
    corrupted: CorruptionRows | None = None,
    *,
    compact: bool = False,
) -> None:
    """
    Write a Parquet file of rows.

    Args:
        path (`str` or `Path`): The file.
        rows ([`SampleRows`]): Of the model as it is published.
        before ([`SampleRows`], *optional*): Of the model before its temperature.
        corrupted ([`CorruptionRows`], *optional*): Of corrupted images.
        compact (`bool`, *optional*, defaults to `False`): Store each score to about 3 %, in less than half of the
            space: the rounding errors vanish in the mean over images.
    """
    import pyarrow.parquet  # slow to import, and not needed to measure

    table = rows.to_table()
    for name in SCALED if before is not None else ():
        table = table.append_column(f"{BEFORE}{name}", pyarrow.array(getattr(before, name)))
    for name, column in corrupted.to_columns(len(rows)).items() if corrupted is not None else ():
        table = table.append_column(name, pyarrow.array(column.data, mask=np.ma.getmaskarray(column)))
    if compact:
        table = _halved(table)
    scores = [column.name for column in table.schema if pyarrow.types.is_floating(column.type)]
    pyarrow.parquet.write_table(
        table,
        path,
        compression="brotli" if compact else "zstd",
        compression_level=11 if compact else None,
        use_dictionary=[name for name in table.column_names if name not in scores],
        use_byte_stream_split=scores,
        write_statistics=False,
    )


def read_rows(
    path: str | PathLike[str], temperature: float | None = None
) -> tuple[SampleRows, SampleRows | None, CorruptionRows | None]:
    """The rows that [`write_rows`] wrote, checked; those before the temperature if it is given."""
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"it is damaged, or not a Parquet file: {error}") from error
    origin = {name: table[name].to_numpy() for name in ORIGIN if name in table.column_names}
    rows = SampleRows(**{name: _column(table, name, kind) for name, kind in COLUMNS.items()}, **origin)
    before = None if temperature is None else _rows_before(table, rows, temperature)
    corrupted = [name for name in table.column_names if name.startswith((HITS, NLL, SCALED_NLL)) or name == ONE]
    return rows, before, CorruptionRows.from_columns({name: _masked(table[name]) for name in corrupted})


# By what share of its mean a score of 16 bits is rounded at most: see `_halved`.
COMPACT = {"confidence": 2.0**-7, "nll": 2.0**-5, "brier": 2.0**-5, "margin": 2.0**-5}


def means(rows: SampleRows, edges: Sequence[float], *, stored: SampleRows) -> dict[str, tuple[float, float]]:
    """
    The metrics that a report computes from rows, each with by how much that may differ from the report's, since scores
    are rounded where they are stored.

    Args:
        rows ([`SampleRows`]): Of the model, with or without its temperature.
        edges (sequence of `float`): The upper ends of the bins of the calibration error.
        stored ([`SampleRows`]): The columns as they are in the file, which tell how they were stored.
    """
    columns = {name: getattr(rows, name).astype(np.float64) for name in COMPACT}
    index = np.minimum(np.searchsorted(np.asarray(edges), columns["confidence"]), len(edges) - 1)
    gaps = np.bincount(index, weights=columns["confidence"] - rows.correct, minlength=len(edges))
    values = {"confidence": np.abs(gaps).sum() / len(rows)}
    values |= {name: column.mean() for name, column in columns.items() if name != "confidence"}
    found = {"accuracy": (float(rows.correct.mean()), 0.5 / len(rows))}
    for name, value in values.items():
        column = getattr(stored, name)
        with np.errstate(over="ignore"):
            is_compact = (column == column.astype(np.float16)).all()
        slack = (COMPACT[name] if is_compact else ROUNDING) * np.abs(columns[name]).mean() + 1e-6
        found[{"confidence": "ece", "margin": "logit_margin"}.get(name, name)] = float(value), float(slack)
    return found


def _rows_before(table: pyarrow.Table, rows: SampleRows, temperature: float) -> SampleRows:
    scaled = {name: _column(table, f"{BEFORE}{name}", COLUMNS[name]) for name in SCALED}
    try:
        return replace(rows, **scaled, margin=rows.margin * np.float32(temperature))
    except ValueError as error:
        raise ValueError(f"{BEFORE}{error}") from None


def _column(table: pyarrow.Table, name: str, kind: type) -> np.ndarray:
    if name not in table.column_names:
        raise ValueError(f"it has no column {name!r}")
    values, whole = table[name].to_numpy(), np.issubdtype(kind, np.integer)
    if values.dtype == object or (whole and not np.issubdtype(values.dtype, np.integer)):
        raise ValueError(f"{name} must hold {'whole ' if whole else ''}numbers, got {table[name].type}")
    if whole and not np.array_equal(values, values.astype(kind)):
        raise ValueError(f"{name} must hold class ids, got {values[values != values.astype(kind)][0]}")
    return values.astype(kind)


def _masked(column: pyarrow.ChunkedArray) -> np.ma.MaskedArray:
    empty = column.is_null().to_numpy()
    values = np.zeros(len(column), dtype=column.type.to_pandas_dtype())
    values[~empty] = column.drop_null().to_numpy()
    return np.ma.MaskedArray(values, mask=empty)


def _halved(table: pyarrow.Table) -> pyarrow.Table:
    """With scores of 16 bits and few digits, where they are not too large for it."""
    import pyarrow

    for place, name in enumerate(table.column_names):
        if table[name].type == pyarrow.float32():
            column = _masked(table[name])
            if np.ma.abs(column).max() <= np.finfo(np.float16).max:
                halved = _in_bins(column.data) if name.endswith("confidence") else _few_digits(column.data)
                table = table.set_column(place, name, pyarrow.array(halved, mask=np.ma.getmaskarray(column)))
    return table


def _few_digits(scores: np.ndarray, digits: int = 5) -> np.ndarray:
    """Rounded to so many binary digits: the other bits are 0, and take no space on disk."""
    mantissa, exponent = np.frexp(scores)
    return np.ldexp(np.round(mantissa * 2**digits) / 2**digits, exponent).astype(np.float16)


def _in_bins(confidence: np.ndarray) -> np.ndarray:
    """As [`_few_digits`], but each in the bin where it was: one that changes bins changes the calibration error."""
    rounded, bins = _few_digits(confidence, digits=7), _bin(confidence)
    rounded = np.where(_bin(rounded) == bins, rounded, confidence.astype(np.float16))
    moved = _bin(rounded) != bins
    rounded[moved] = np.nextafter(rounded, np.where(rounded < confidence, np.float16(1), np.float16(0)))[moved]
    return rounded


def _bin(confidence: np.ndarray) -> np.ndarray:
    return np.ceil(confidence.astype(np.float64) * N_BINS)
