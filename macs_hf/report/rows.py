"""Per-sample rows: all that the metrics need to know about a prediction, in 24 bytes instead of all logits.

With p = softmax(z), label y and prediction k = argmax z:

    confidence = p[k]                                   nll    = -log p[y]
    brier      = sum over j of (p[j] - [j = y])^2       margin = z[y] - max over j != y of z[j]

Below: rows from logits, rows of corrupted images, and the Parquet file that has both.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..exceptions import check_labels


if TYPE_CHECKING:
    import pandas
    import pyarrow
    import torch
    from torch import Tensor


class Column(NamedTuple):
    """A column of numbers: its type, and within what its values are, but for rounding."""

    kind: type
    low: float
    high: float


MOST_CLASSES = 2**24  # whole numbers up to here are exact in float32
COLUMNS = {
    "label": Column(np.int32, 0, MOST_CLASSES),
    "prediction": Column(np.int32, 0, MOST_CLASSES),
    "confidence": Column(np.float32, 0, 1),
    "nll": Column(np.float32, 0, np.inf),
    "brier": Column(np.float32, 0, 2),
    "margin": Column(np.float32, -np.inf, np.inf),
}
# Columns that say which sample it is; each may be missing.
ORIGIN = ("name", "index", "group")
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
        shapes = {getattr(self, name).shape for name in (*self._given, *COLUMNS)}
        if len(shapes) > 1 or len(self.label.shape) != 1 or not len(self.label):
            raise ValueError(f"rows need columns of one shape (n,) with n > 0, got {sorted(shapes)}")
        for name, (kind, low, high) in COLUMNS.items():
            column = getattr(self, name)
            if kind is np.int32 and not np.issubdtype(column.dtype, np.integer):
                raise ValueError(f"{name} must hold class ids, whole numbers, got {column.dtype}")
            within = (column >= low - ROUNDING) & (column <= high + ROUNDING) & np.isfinite(column)
            _refuse(name, column, ~within, f"a finite number within [{low:g}, {high:g}]")

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
        return cls(**{name: np.ascontiguousarray(columns[name], dtype=COLUMNS[name].kind) for name in COLUMNS})

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

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> np.ndarray:
        return self.prediction == self.label


def _refuse(name: str, column: np.ndarray, wrong: np.ndarray, wanted: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{name} of row {row} must be {wanted}, got {column[row]}")


# ---- From logits to rows ----


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
# What is kept of each image, in columns of the file such as `hits_fog`. If each image was seen under one corruption
# only, its name is in the column `corruption`, and what is kept in `hits_corruption` and the like.
PARTS = {"hits": (np.uint8, NOT_MEASURED), "nll": (np.float32, np.nan), "scaled_nll": (np.float32, np.nan)}
ASSIGNED = "corruption"


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
        for name in PARTS:
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

    def to_columns(self, n: int) -> dict[str, np.ndarray]:
        """Columns of a table of all `n` test images, with NaN or `None` where nothing was measured."""
        seen, columns = self.hits != NOT_MEASURED, {}
        is_spread = len(self) > 0 and (seen.sum(axis=1) == 1).all()
        if is_spread:
            columns[ASSIGNED] = np.full(n, None, dtype=object)
            columns[ASSIGNED][self.index] = np.array(self.names, dtype=object)[seen.argmax(axis=1)]
        for part in PARTS:
            if (array := getattr(self, part)) is not None:
                whole = np.full((n, len(self.names)), np.nan, dtype=np.float32)
                whole[self.index] = np.where(seen, array, np.nan)
                one = {f"{part}_{ASSIGNED}": np.fmax.reduce(whole, axis=1)}  # the only one that is not NaN
                all_of_them = {f"{part}_{name}": whole[:, place] for place, name in enumerate(self.names)}
                columns |= one if is_spread else all_of_them
        return columns

    @classmethod
    def from_table(cls, table: pyarrow.Table) -> CorruptionRows | None:
        """The inverse of [`to_columns`](CorruptionRows.to_columns); `None` if there are no such columns."""
        is_spread = ASSIGNED in table.column_names
        if is_spread:
            drawn = np.array(list(map(str, table[ASSIGNED].to_pylist())), dtype=object)
            found = set(drawn) - {"None"}
            names = (*(name for name in CORRUPTIONS if name in found), *found.difference(CORRUPTIONS))
        else:
            names = tuple(name for name in CORRUPTIONS if f"hits_{name}" in table.column_names)
        if not names:
            return None
        arrays: dict[str, np.ndarray | None] = {}
        for part, (kind, missing) in PARTS.items():
            columns = [f"{part}_{name}" for name in ((ASSIGNED,) if is_spread else names)]
            if part != "hits" and not set(columns) <= set(table.column_names):
                arrays[part] = None
                continue
            array = np.stack([_column(table, name, kind, missing) for name in columns], axis=1)
            arrays[part] = np.where(drawn[:, None] == names, array, kind(missing)) if is_spread else array
        index = np.flatnonzero((arrays["hits"] != NOT_MEASURED).any(axis=1))
        return cls(index, names, **{part: None if array is None else array[index] for part, array in arrays.items()})


# ---- The file of rows ----
# Its columns: those of SampleRows for the model as it is published; `before_confidence`, `before_nll` and
# `before_brier` of the model before its temperature T, whose predictions are the same and whose margins are T times as
# large; and those of CorruptionRows, empty for images that were not measured under corruption.


BEFORE = "before_"
SCALED = ("confidence", "nll", "brier")  # columns that a temperature changes in another way than by a factor


def write_rows(
    path: str | PathLike[str],
    rows: SampleRows,
    before: SampleRows | None = None,
    corrupted: CorruptionRows | None = None,
) -> None:
    """Write a Parquet file of rows: of the published model, before its temperature, and of corrupted images."""
    import pyarrow.parquet  # slow to import, and not needed to measure

    table = rows.to_table()
    for name in SCALED if before is not None else ():
        table = table.append_column(f"{BEFORE}{name}", pyarrow.array(getattr(before, name)))
    for name, column in corrupted.to_columns(len(rows)).items() if corrupted is not None else ():
        values = pyarrow.array(column, from_pandas=True)  # NaN becomes null
        table = table.append_column(name, values.cast(pyarrow.uint8()) if name.startswith("hits_") else values)
    scores = [column.name for column in table.schema if pyarrow.types.is_floating(column.type)]
    pyarrow.parquet.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in scores],
        use_byte_stream_split=scores,
        write_statistics=False,
    )


def read_table(path: str | PathLike[str]) -> pyarrow.Table:
    """What [`write_rows`] wrote."""
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"it is damaged, or not a Parquet file: {error}") from error


def rows_of_table(
    table: pyarrow.Table, temperature: float | None = None
) -> tuple[SampleRows, SampleRows | None, CorruptionRows | None]:
    """The rows of a file, checked; those before the temperature if it is given."""
    origin = {name: table[name].to_numpy() for name in ORIGIN if name in table.column_names}
    rows, before = SampleRows(**{name: _column(table, name, COLUMNS[name].kind) for name in COLUMNS}, **origin), None
    if temperature is not None:
        scaled = {name: _column(table, f"{BEFORE}{name}", np.float32) for name in SCALED}
        try:
            before = replace(rows, **scaled, margin=rows.margin * np.float32(temperature))
        except ValueError as error:
            raise ValueError(f"{BEFORE}{error}") from None
    return rows, before, CorruptionRows.from_table(table)


def _column(table: pyarrow.Table, name: str, kind: type, missing: float | None = None) -> np.ndarray:
    """A column of numbers, with `missing` where it has none."""
    if name not in table.column_names:
        raise ValueError(f"it has no column {name!r}")
    values = table[name].to_numpy()
    if not np.issubdtype(values.dtype, np.number):
        raise ValueError(f"{name} must hold numbers, got {table[name].type}")
    if missing is not None:
        values = np.where(np.isnan(values), missing, values)
    with np.errstate(invalid="ignore", over="ignore"):
        found = values.astype(kind)
    if np.issubdtype(kind, np.integer) and (wrong := found != values).any():
        raise ValueError(f"{name} must hold whole numbers, got {values[wrong][0]}")
    return found


# The columns that the reported metrics come from.
SCORES = {"ece": "confidence", "nll": "nll", "brier": "brier", "logit_margin": "margin"}


def check_belongs(rows: SampleRows, before: SampleRows | None, corrupted: CorruptionRows | None, report: Any) -> None:
    """
    Refuse rows that do not give the numbers of their [`EvaluationReport`]: they are of another run, or one of the two
    was edited.
    """
    if len(rows) != report.n:
        raise ValueError(f"it has {len(rows)} rows, but the report is about n = {report.n} samples")
    for title, part in {"before": before or rows, "after": rows}.items():
        if (measured := getattr(report, title)) is None:
            continue
        found = {"accuracy": (part.correct.mean(), 0.5 / len(rows))}
        for metric in measured.metrics.keys() & SCORES.keys():
            values = getattr(part, SCORES[metric]).astype(np.float64)
            value = _ece(values, part.correct, measured.bins.upper) if metric == "ece" else values.mean()
            found[metric] = value, ROUNDING * np.abs(values).mean() + 1e-6
        for metric, (value, slack) in found.items():
            if abs(value - (stated := measured.metrics[metric].value)) > slack:
                raise ValueError(f"its {metric} is {value:.6f}, that of the report ({title}) {stated:.6f}")
    if report.confusion is not None:
        pairs, counts = np.unique(np.stack([rows.label, rows.prediction]), axis=1, return_counts=True)
        stated = (report.confusion.label, report.confusion.prediction, report.confusion.count)
        if sorted(zip(*stated, strict=True)) != list(zip(*pairs.tolist(), counts.tolist(), strict=True)):
            raise ValueError("its labels and predictions are not those that the report counts in confusion")
    if report.corruptions is None or corrupted is None:
        return
    for place, name in enumerate(corrupted.names):
        hits, cells = corrupted.hits[:, place], report.corruptions.cells.get(name, {}).values()
        found, right = hits[hits != NOT_MEASURED].sum(), sum(cell.n * cell.accuracy for cell in cells)
        if cells and abs(found - right) > 0.5:
            raise ValueError(f"under {name} it has {found} right answers, the report {right:.1f}")


def _ece(confidence: np.ndarray, correct: np.ndarray, edges: Sequence[float]) -> float:
    """The calibration error, with the upper ends of its bins."""
    index = np.minimum(np.searchsorted(np.asarray(edges), confidence), len(edges) - 1)
    return np.abs(np.bincount(index, weights=confidence - correct)).sum() / len(confidence)
