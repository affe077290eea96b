"""`macs-hf compare`: two runs on the same images, image by image."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from macs_hf.cli.main import main
from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.evaluation.comparison import compare_runs
from macs_hf.metrics import compare, measure
from macs_hf.report.corruption_rows import CorruptionRows
from macs_hf.report.corruption_table import Cell, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport, Temperature
from macs_hf.report.rows import SampleRows
from macs_hf.report.run import load_run, save_run


LABELS = torch.arange(200) % 4
LOGITS = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))


def saved(folder: Path, shift: float, hits: int, **changes: object) -> Path:
    """A run that is right more often the larger `shift` is, and at `hits` severities of every corruption."""
    rows = SampleRows.from_logits(LOGITS + shift * torch.nn.functional.one_hot(LABELS, 4), LABELS)
    cells = {name: {s: Cell(50, hits / 5, 1.0, 0.1) for s in SEVERITIES} for name in CORRUPTIONS}
    images = CorruptionRows(np.arange(50), CORRUPTIONS, np.full((50, len(CORRUPTIONS)), hits, np.uint8))
    table = CorruptionTable("cifar", "generated", 50, cells, seed=0, rows=images)
    report = EvaluationReport("m", "photos", "test", 200, measure(rows), corruptions=table)
    save_run(replace(report, **changes), [rows], folder)
    return folder


def test_differences_are_those_of_rows_and_hits(tmp_path: Path) -> None:
    a, b = load_run(saved(tmp_path / "good", 2.0, 4)), load_run(saved(tmp_path / "poor", 0.5, 3) / "evaluation.json")
    found = compare_runs(a, b)
    assert list(found)[-2:] == ["mean15", "mean19"]
    assert {name: found[name] for name in list(found)[:-2]} == compare(a.rows, b.rows)
    assert found["accuracy"].difference == pytest.approx(float(a.rows.correct.mean() - b.rows.correct.mean()))
    assert (found["mean19"].low, found["mean19"].high) == pytest.approx((0.2, 0.2))


def test_the_command_says_which_is_better(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    good = saved(tmp_path / "good", 2.0, 4, temperature=Temperature(1.25))
    poor = saved(tmp_path / "poor", 0.5, 3, corruptions=None)
    assert main(["compare", str(poor), str(good)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "photos, test (n = 200)",
        "a = poor, not calibrated (no temperature was fitted)",
        "b = good, calibrated (temperature 1.250)",
    ]
    assert next(line for line in lines if line.startswith("nll")).endswith("b is better")
    assert not any(line.startswith("mean") for line in lines)  # one of the two was not measured under corruption


def test_other_corruptions_leave_the_clean_comparison(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a, b = load_run(saved(tmp_path / "good", 2.0, 4)), load_run(saved(tmp_path / "poor", 0.5, 3))
    table = replace(b.report.corruptions, seed=1)
    other = replace(b, report=replace(b.report, corruptions=table))
    assert list(compare_runs(a, other)) == list(compare(a.rows, b.rows))
    assert "the tables differ in seed (0 and 1)" in caplog.text


def test_what_cannot_be_compared_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    good, other = saved(tmp_path / "good", 2.0, 4), saved(tmp_path / "other", 0.5, 3, dataset="paintings")
    (tmp_path / "empty").mkdir()
    bare = saved(tmp_path / "bare", 0.5, 3)
    (bare / "samples.parquet").unlink()
    for path, message in (
        (other, "'photos', other on 'paintings'"),
        (tmp_path / "empty", "There is no report in"),
        (bare / "evaluation.json", "samples.parquet is missing: it holds one row per sample of evaluation.json"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["compare", str(good), str(path)])
        assert left.value.code == 2
        assert message in capsys.readouterr().err
