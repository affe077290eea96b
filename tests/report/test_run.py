"""A run's folder: one report and its rows, written and read back; what does not belong together is refused."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from publishing.reports import REPORT

from macs_hf.metrics import confusion_matrix, measure
from macs_hf.report.report import (
    Cell,
    ConfusionMatrix,
    EvaluationReport,
    Temperature,
    changed_files,
    load_run,
    save_run,
)
from macs_hf.report.rows import COLUMNS, NOT_MEASURED, SEVERITIES, CorruptionRows, SampleRows


N, TEMPERATURE = 200, 1.75
LABELS = torch.arange(N) % 5
LOGITS = 3 * torch.randn(N, 5, generator=torch.Generator().manual_seed(0))
ROWS = [SampleRows.from_logits(LOGITS / t, LABELS) for t in (1.0, TEMPERATURE)]


def corruption_rows() -> CorruptionRows:
    """Four images of the 200, one of them not seen under fog."""
    hits = np.array([[5, 0], [3, NOT_MEASURED], [1, 1], [0, 5]], dtype=np.uint8)
    nll = np.where(hits == NOT_MEASURED, np.nan, hits / 8).astype(np.float32)
    return CorruptionRows(np.array([2, 3, 50, 199]), ("snow", "fog"), hits, nll)


def report_of(rows: list[SampleRows]) -> EvaluationReport:
    seen = {"snow": Cell(4, 9 / 20, 1.0, 0.1, 0.9, 0.05), "fog": Cell(3, 6 / 15, 1.0, 0.1, 0.9, 0.05)}
    cells = REPORT.corruptions.cells | {name: dict.fromkeys(SEVERITIES, cell) for name, cell in seen.items()}
    table = replace(REPORT.corruptions, cells=cells, rows=corruption_rows())
    before, *after = [measure(part, n_resamples=50) for part in rows]
    return replace(
        REPORT,
        n=len(rows[0]),
        before=before,
        after=after[0] if after else None,
        temperature=Temperature(TEMPERATURE, None, "validation", 100) if after else None,
        corruptions=table,
        guarantees=None,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_run(report_of(ROWS), ROWS, tmp_path / "run")
    return tmp_path / "run"


def same_columns(a: SampleRows, b: SampleRows, tolerance: float = 0.0) -> None:
    for name, column in COLUMNS.items():
        assert getattr(a, name).dtype == column.kind
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance)


def test_round_trip(folder: Path) -> None:
    run = load_run(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["evaluation.json", "samples.parquet"]
    assert run.name == "run"
    assert run.report == report_of(ROWS)
    same_columns(run.rows, ROWS[1])
    same_columns(run.rows_before, ROWS[0], 1e-6)  # its margin is computed from the other
    rows, expected = run.report.corruptions.rows, corruption_rows()
    assert rows.names == expected.names
    for name in ("index", "hits", "nll"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(expected, name))
    assert rows.scaled_nll is None
    assert load_run(folder / "evaluation.json").name == "run"


def test_each_image_under_one_corruption(tmp_path: Path) -> None:
    """Other columns than where each is seen under several; the values are the same."""
    hits = np.array([[5, NOT_MEASURED], [NOT_MEASURED, 3], [1, NOT_MEASURED]], dtype=np.uint8)
    rows = CorruptionRows(np.array([2, 50, 199]), ("snow", "fog"), hits, np.where(hits > 5, np.nan, np.float32(0.1)))
    cells = {"snow": Cell(2, 6 / 10, 1.0, 0.1, 0.9, 0.05), "fog": Cell(1, 3 / 5, 1.0, 0.1, 0.9, 0.05)}
    cells = {name: dict.fromkeys(SEVERITIES, cell) for name, cell in cells.items()}
    save_run(replace(report_of(ROWS), corruptions=replace(REPORT.corruptions, cells=cells, rows=rows)), ROWS, tmp_path)
    columns = pyarrow.parquet.read_schema(tmp_path / "samples.parquet").names
    assert {"corruption", "hits_corruption", "nll_corruption"} < set(columns)
    found = load_run(tmp_path).report.corruptions.rows
    assert found.names == ("snow", "fog") and found.scaled_nll is None
    for name in ("index", "hits", "nll"):
        np.testing.assert_array_equal(getattr(found, name), getattr(rows, name))


def test_without_a_temperature_and_with_names(tmp_path: Path) -> None:
    names = np.array([f"class {label}/{i}.png" for i, label in enumerate(LABELS)])
    rows = [replace(ROWS[0], name=names)]
    save_run(report_of(rows), rows, tmp_path)
    run = load_run(tmp_path)
    assert run.rows_before is None
    assert run.rows.name.tolist() == names.tolist()
    same_columns(run.rows, ROWS[0])


def test_tables_for_other_libraries() -> None:
    rows = replace(ROWS[0], name=np.array([f"{i}.png" for i in range(N)]))
    frame = rows.to_pandas()
    assert list(frame.columns) == ["name", *COLUMNS] and list(ROWS[0].to_pandas().columns) == list(COLUMNS)
    assert frame["nll"].mean() == pytest.approx(rows.nll.mean())
    assert (frame.name[3], frame.label[3]) == ("3.png", rows.label[3])


# ---- What is refused ----


def rewrite(folder: Path, **columns: object) -> None:
    """Replace columns of `samples.parquet`; `None` removes one."""
    path = folder / "samples.parquet"
    table = pyarrow.parquet.read_table(path)
    for name, values in columns.items():
        table = table.drop_columns([name] if name in table.column_names else [])
        if values is not None:
            table = table.append_column(name, pyarrow.array(values))
    pyarrow.parquet.write_table(table, path)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"confidence": ROWS[1].confidence * 5}, "confidence of row"),
        ({"before_confidence": ROWS[0].confidence * 5}, "before_confidence of row"),
        ({"nll": -ROWS[1].nll}, "nll of row"),
        ({"margin": ROWS[1].margin * np.nan}, "margin of row 0"),
        ({"label": ROWS[1].label - 1}, "label of row 0"),
        ({"label": ROWS[1].label.astype(np.int64) + 2**32}, "label"),  # the same in 32 bits
        ({"prediction": ["cat"] * N}, "prediction"),
        ({"margin": None}, "margin"),
        ({"before_nll": None}, "before_nll"),
        ({"hits_snow": np.full(N, 6, np.uint8)}, "hits"),
        ({"hits_snow": np.full(N, 1.5)}, "hits"),
        ({"corruption": ["rain"] * N, "hits_corruption": np.full(N, 3, np.uint8)}, "rain"),
        ({"prediction": (ROWS[1].prediction + 1) % 5}, "accuracy"),
    ],
)
def test_wrong_rows(folder: Path, columns: dict[str, object], named: str) -> None:
    rewrite(folder, **columns)
    with pytest.raises(ValueError, match=f"samples.parquet cannot be used: .*{named}"):
        load_run(folder)


def edited(folder: Path, **checksums: str) -> dict[str, Any]:
    """What is in the report, which is written again without (other) checksums, as of an earlier version."""
    report = json.loads((folder / "evaluation.json").read_text()) | {"checksums": checksums}
    (folder / "evaluation.json").write_text(json.dumps(report))
    return report


@pytest.mark.parametrize("metric", ["accuracy", "nll", "ece", "brier", "logit_margin"])
@pytest.mark.parametrize("part", ["before", "after"])
def test_a_number_that_does_not_come_from_the_rows(part: str, metric: str, tmp_path: Path) -> None:
    save_run(report_of(ROWS), ROWS, tmp_path)
    report = edited(tmp_path)
    load_run(tmp_path)  # reports without checksums are read as before
    stated = report[part]["metrics"][metric]
    shift = 1e-4 if metric != "accuracy" else 1 / N
    report[part]["metrics"][metric] = {name: value - shift for name, value in stated.items()}
    (tmp_path / "evaluation.json").write_text(json.dumps(report))
    with pytest.raises(ValueError, match=rf"its {metric} is .* that of the report \({part}\)"):
        load_run(tmp_path)


def test_mistakes_and_corruptions_are_counted_again(folder: Path) -> None:
    matrix = confusion_matrix(ROWS[1])
    report = replace(report_of(ROWS), confusion=matrix)
    save_run(report, ROWS, folder)
    assert load_run(folder).report.confusion == matrix
    (folder / "evaluation.json").unlink()
    replace(report, confusion=ConfusionMatrix(5, tuple(range(5)), tuple(range(5)), (N // 5,) * 5)).save(
        folder / "evaluation.json"
    )
    with pytest.raises(ValueError, match="confusion"):
        load_run(folder)
    cells = report.corruptions.cells | {"fog": dict.fromkeys(SEVERITIES, Cell(3, 0.8, 1.0, 0.1, 0.9, 0.05))}
    replace(report, corruptions=replace(report.corruptions, cells=cells)).save(folder / "evaluation.json")
    with pytest.raises(ValueError, match="fog"):
        load_run(folder)


def test_checksums_are_of_rows_and_of_the_weights_of_this_report(folder: Path) -> None:
    def stated() -> dict[str, str]:
        save_run(report_of(ROWS), ROWS, folder)
        return load_run(folder).report.checksums

    digest = hashlib.sha256((folder / "samples.parquet").read_bytes()).hexdigest()
    assert stated() == {"samples.parquet": digest}
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "optimizer.safetensors").write_bytes(b"something else")
    for temperature, names in ((None, {"samples.parquet"}), (TEMPERATURE, {"samples.parquet", "model.safetensors"})):
        config = {} if temperature is None else {"calibration_temperature": temperature}
        (folder / "config.json").write_text(json.dumps(config))
        assert stated().keys() == names  # of a model without the temperature nothing was measured
    assert changed_files(load_run(folder).report, folder, ["model.safetensors"]) == []
    (folder / "model.safetensors").write_bytes(b"weightz")
    assert changed_files(load_run(folder).report, folder, ["model.safetensors"]) == ["model.safetensors"]
    edited(folder, **{"samples.parquet": "0" * 64})
    with pytest.raises(ValueError, match=r"samples.parquet was changed"):
        load_run(folder)


def test_rows_of_another_number(folder: Path) -> None:
    path = folder / "samples.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).slice(0, N - 1), path)
    with pytest.raises(ValueError, match=f"{N - 1} rows"):
        load_run(folder)
    with pytest.raises(ValueError, match="n = 200"):
        save_run(report_of(ROWS), [SampleRows.from_logits(LOGITS[:100], LABELS[:100])], folder)


def test_damaged_and_missing_files(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "samples.parquet").read_bytes()
    for part in (whole[: len(whole) // 2], b"", b"PAR1 and no more"):
        (folder / "samples.parquet").write_bytes(part)
        with pytest.raises(ValueError, match=r"samples.parquet cannot be used"):
            load_run(folder)
    (folder / "samples.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"samples.parquet"):
        load_run(folder)
    with pytest.raises(FileNotFoundError, match=r"evaluation.json"):
        load_run(tmp_path)


def test_labels_are_whole() -> None:
    with pytest.raises((TypeError, ValueError), match="labels"):
        SampleRows.from_logits(torch.zeros(1, 3), torch.tensor([1.5]))
    with pytest.raises(ValueError, match="label of row 1"):
        SampleRows.from_array(np.array([[0, 0, 1, 0, 0, 1], [1.5, 0, 1, 0, 0, 1]]))
