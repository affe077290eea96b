"""Reports and rows that come from anywhere: they load and can be used, or they are refused with a `ValueError`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from macs_hf.metrics import measure
from macs_hf.publishing.card import CardSettings, model_card
from macs_hf.report.report import METRIC_BOUNDS, EvaluationReport, Temperature, load_run, save_run
from macs_hf.report.rows import COLUMNS, SampleRows
from macs_hf.report.run_folder import ROWS_FILE


ROOT = Path(__file__).parents[2]
# With as many parts as there are.
REPORT = json.loads((ROOT / "model_cards" / "digits-tiny-macs" / "evaluation.json").read_text())
CARD = CardSettings("run", "owner/run")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
NUMBERS = st.sampled_from([0, -1, 1, 2, 7.0, 1e308, -1e-9, float("nan"), float("inf"), True, None, "1", [], {}])


def read(text: str) -> EvaluationReport | None:
    """The report, checked, or `None` if it is refused."""
    try:
        report = EvaluationReport.from_json(text)
    except ValueError:
        return None
    assert EvaluationReport.from_json(report.to_json()) == report
    for part in (report.before, report.after):
        for name, (low, high) in METRIC_BOUNDS.items():
            assert part is None or low - 1e-5 <= part.metrics[name].value <= high + 1e-5
    return report


@given(st.text())
@example("")
@example("null")
@example("[" * 100_000)
@example('{"schema_version": 2}')
@example('{"schema_version": ' + "9" * 5000 + "}")
@example("\ud800")
def test_any_text(text: str) -> None:
    assert read(text) is None


@given(JSON)
def test_any_json(value: Any) -> None:
    assert read(json.dumps(value)) is None


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The ways to all parts of a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [path, *(place for key in keys for place in places(value[key], (*path, key)))]


PLACES = places(REPORT)[1:]


def changed(place: tuple, new: Any) -> str:
    report = json.loads(json.dumps(REPORT))
    part = report
    for key in place[:-1]:
        part = part[key]
    if new is ...:
        del part[place[-1]]
    else:
        part[place[-1]] = new
    return json.dumps(report)


@given(st.sampled_from(PLACES), st.just(...) | NUMBERS | JSON)
@example(("corruptions", "cells", "fog", "5"), ...)
@example(("corruptions", "cells", "fog"), ...)
@example(("corruptions", "cells", "saturate"), ...)
@example(("classes", "promised_coverage"), 0)
def test_a_report_with_one_part_changed_is_refused_or_can_be_shown(place: tuple, new: Any) -> None:
    report = read(changed(place, new))
    if report is not None:
        try:
            text = str(model_card(report, CARD))
        except ValueError:
            return
        assert text.startswith("---\n")
        assert str(report)


# ---- Rows ----

ROWS = SampleRows.from_logits(torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3)
SMALL = EvaluationReport("m", "d", "test", 12, measure(ROWS), measure(ROWS), Temperature(1.5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save_run(SMALL, [ROWS, ROWS], folder)
    return folder


def loads(folder: Path, table: pyarrow.Table | bytes) -> None:
    path = folder / ROWS_FILE
    whole = path.read_bytes()
    try:
        if isinstance(table, bytes):
            path.write_bytes(table)
        else:
            pyarrow.parquet.write_table(table, path)
        run = load_run(folder)
        assert len(run.rows) == run.report.n and np.isfinite(run.rows.nll).all()
    except ValueError:
        pass
    finally:
        path.write_bytes(whole)


KINDS = [st.integers(-(2**40), 2**40), st.floats(), st.floats(0, 1, width=32), st.text(max_size=3), st.booleans()]
KINDS += [st.none() | st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2), st.binary(max_size=2)]
VALUES = st.one_of([st.lists(kind, min_size=12, max_size=12) for kind in KINDS])
NAMES = [*COLUMNS, "before_nll", "before_confidence", "name", "index", "group", "corruption", "hits_corruption"]
NAMES += ["hits_fog", "nll_fog", "hits_x", "other"]


@given(st.sampled_from(NAMES), VALUES)
def test_a_column_of_anything(folder: Path, name: str, values: list[Any]) -> None:
    table = pyarrow.parquet.read_table(folder / ROWS_FILE)
    table = table.drop_columns([name]) if name in table.column_names else table
    loads(folder, table.append_column(name, pyarrow.array(values)))


@given(st.lists(st.sampled_from(NAMES), min_size=1, unique=True), st.integers(0, 12))
def test_columns_or_rows_missing(folder: Path, dropped: list[str], kept: int) -> None:
    table = pyarrow.parquet.read_table(folder / ROWS_FILE)
    table = table.drop_columns([name for name in dropped if name in table.column_names])
    loads(folder, table.slice(0, kept))


@given(st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_bytes_changed_or_cut_off(folder: Path, at: int, byte: int, cut: bool) -> None:
    content = bytearray((folder / ROWS_FILE).read_bytes())
    at %= len(content)
    content[at] = byte
    loads(folder, bytes(content[:at] if cut else content))
