"""A finished run on disk, under fixed names: the report as JSON, and one row per test sample as Parquet.

Columns of `samples.parquet`: those of [`SampleRows`] for the model as it is published; `before_confidence`,
`before_nll` and `before_brier` of the model before its temperature T, whose predictions are the same and whose margins
are T times as large; and, where corruptions were measured, those of [`CorruptionRows`], empty for images that were not
measured under corruption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .report import EvaluationReport
from .rows import COLUMNS, HITS, NLL, ONE, ORIGIN, SCALED_NLL, CorruptionRows, SampleRows
from .run_folder import GALLERY, GALLERY_CAPTION, PAGE_FILE, PICTURES, REPORT_FILE, ROWS_FILE


if TYPE_CHECKING:
    import pyarrow


# The files of a run have their names here, too.
__all__ = [
    "GALLERY",
    "GALLERY_CAPTION",
    "PAGE_FILE",
    "PICTURES",
    "REPORT_FILE",
    "ROWS_FILE",
    "Run",
    "load_run",
    "save_run",
]

BEFORE = "before_"
SCALED = ("confidence", "nll", "brier")  # columns that a temperature changes in another way than by a factor
N_BINS = 15  # of the reported ECE


@dataclass(frozen=True, eq=False)
class Run:
    """
    Args:
        name (`str`): The name of the folder.
        report ([`EvaluationReport`]): With the per-image rows of its corruption table.
        rows ([`SampleRows`]): Of the model as it is published.
        rows_before ([`SampleRows`], *optional*): Of the model before its temperature, if it was given one.
    """

    name: str
    report: EvaluationReport
    rows: SampleRows
    rows_before: SampleRows | None = None


def save_run(
    report: EvaluationReport, rows: Sequence[SampleRows], folder: str | PathLike[str], *, compact: bool = False
) -> list[Path]:
    """
    Write `evaluation.json` and `samples.parquet` into `folder`, in place of what was there; returns their paths.

    Args:
        report ([`EvaluationReport`]): What was measured.
        rows (sequence of [`SampleRows`]): As `evaluate_checkpoint` returns them: of the model and, if it was given a
            temperature, of the model with it.
        folder (`str` or `Path`): Where to; made if it is not there.
        compact (`bool`, *optional*, defaults to `False`): Store each score to about 3 %, in less than
            half of the space: the rounding errors vanish in the mean over images.
    """
    import pyarrow.parquet  # slow to import, and not needed to measure

    *before, published = rows
    if len(before) > 1 or any(len(part) != report.n for part in rows):
        raise ValueError(f"the report is about n = {report.n} samples, the rows are {[len(part) for part in rows]}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    table = published.to_table()
    for name in SCALED if before else ():
        table = table.append_column(f"{BEFORE}{name}", pyarrow.array(getattr(before[0], name)))
    if report.corruptions is not None and report.corruptions.rows is not None:
        for name, column in report.corruptions.rows.to_columns(report.n).items():
            table = table.append_column(name, pyarrow.array(column.data, mask=np.ma.getmaskarray(column)))
    if compact:
        table = _halved(table)
    scores = [column.name for column in table.schema if pyarrow.types.is_floating(column.type)]
    pyarrow.parquet.write_table(
        table,
        folder / ROWS_FILE,
        compression="brotli" if compact else "zstd",
        compression_level=11 if compact else None,
        use_dictionary=[name for name in table.column_names if name not in scores],
        use_byte_stream_split=scores,
        write_statistics=False,
    )
    report.save(folder / REPORT_FILE)
    return [folder / REPORT_FILE, folder / ROWS_FILE]


def load_run(folder: str | PathLike[str]) -> Run:
    """
    What [`save_run`] wrote, checked.

    Args:
        folder (`str` or `Path`): A run's folder, or the `evaluation.json` in it.
    """
    folder = Path(folder).parent if Path(folder).name == REPORT_FILE else Path(folder)
    if not (folder / REPORT_FILE).is_file():
        raise FileNotFoundError(f"There is no report in {str(folder)!r}: a run's folder has {REPORT_FILE}.")
    report = EvaluationReport.load(folder / REPORT_FILE)
    if not (folder / ROWS_FILE).is_file():
        raise FileNotFoundError(f"{folder / ROWS_FILE} is missing: it holds one row per sample of {REPORT_FILE}.")
    table = _read(folder / ROWS_FILE)
    try:
        rows = _rows(table)
        before = None if report.after is None else _rows_before(table, rows, report.temperature.value)
        corrupted = [name for name in table.column_names if name.startswith((HITS, NLL, SCALED_NLL)) or name == ONE]
        corrupted_rows = CorruptionRows.from_columns({name: _masked(table[name]) for name in corrupted})
        _check_belongs(rows, report)
    except ValueError as error:
        raise ValueError(f"{folder / ROWS_FILE} cannot be used: {error}") from error
    if report.corruptions is not None:
        report = replace(report, corruptions=replace(report.corruptions, rows=corrupted_rows))
    return Run(folder.resolve().name, report, rows, before)


def _read(path: Path) -> pyarrow.Table:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged, or not a Parquet file: {error}") from error


def _rows(table: pyarrow.Table) -> SampleRows:
    columns = {name: _column(table, name, kind) for name, kind in COLUMNS.items()}
    origin = {name: table[name].to_numpy() for name in ORIGIN if name in table.column_names}
    return SampleRows(**columns, **origin)


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


def _check_belongs(rows: SampleRows, report: EvaluationReport) -> None:
    """Rows of another run give other numbers than the report has."""
    if len(rows) != report.n:
        raise ValueError(f"it has {len(rows)} rows, but the report is about n = {report.n} samples")
    accuracy = report.published.metrics["accuracy"].value
    if abs(float(rows.correct.mean()) - accuracy) > 0.5 / report.n:
        raise ValueError(f"its accuracy is {rows.correct.mean():.6f}, that of the report {accuracy:.6f}")


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
