"""`macs-hf compare`: two runs on the same images, image by image."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from macs_hf.cli.main import main
from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.evaluation.run_comparison import compare_runs
from macs_hf.metrics import compare, measure
from macs_hf.rendering import plot_under_corruption
from macs_hf.report.report import Cell, CorruptionTable, EvaluationReport, Interval, Temperature, load_run, save_run
from macs_hf.report.rows import CorruptionRows, SampleRows
from macs_hf.report.sections import METRICS


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
    good = saved(tmp_path / "good", 2.0, 4, temperature=Temperature(1.25), image_size=(32, 48))
    poor = saved(tmp_path / "poor", 0.5, 3, corruptions=None)
    assert main(["compare", str(poor), str(good)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "photos, test (n = 200)",
        "a = poor, no temperature was fitted",
        "b = good, 32 x 48 pixels, temperature 1.250",
        "One run a side: the intervals cover other test images, not another training run.",
    ]
    assert next(line for line in lines if line.startswith("nll")).endswith("b is better")
    assert not any(line.startswith("mean") for line in lines)  # one of the two was not measured under corruption


def test_runs_that_agree_on_every_image_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    runs = [saved(tmp_path / place / "run", 2.0, 4) for place in ("first", "second")]
    assert main(["compare", *map(str, runs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[1:3]] == ["a = first/run", "b = second/run"]  # told apart
    table = [line for line in lines if line.split(" ")[0] in METRICS]
    assert {line.split()[-1] for line in table} == {"equal"} and len(table) > 10


def test_the_picture_has_both_under_corruption(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    gaps = dict.fromkeys(["clean", *(f"severity_{s}" for s in SEVERITIES)], Interval(0.1, 0.0, 0.2))
    sides, picture = {}, tmp_path / "both.png"
    for name, hits in (("a-good", 4), ("a-poor", 3)):
        table = load_run(saved(tmp_path / name, 2.0, hits)).report.corruptions
        table = replace(table, clean=Cell(50, 0.85, 1.0, 0.1), confidence_gap=gaps)
        sides[saved(tmp_path / name, 2.0, hits, corruptions=table)] = table
    assert main(["compare", *map(str, sides), "--picture", str(picture)]) == 0
    assert str(picture) in capsys.readouterr().out and picture.stat().st_size > 1000
    left, right = plot_under_corruption({name.name: [table] for name, table in sides.items()}).axes
    assert [line.get_ydata().tolist() for line in left.lines] == [[85, *[80] * 5], [85, *[60] * 5]]
    assert [line.get_ydata().tolist() for line in right.lines[:2]] == [[95, *[90] * 5], [95, *[70] * 5]]
    bare, other = (str(saved(tmp_path / name, 2.0, 4, corruptions=None)) for name in ("bare", "other"))
    with pytest.raises(SystemExit) as ended:
        main(["compare", bare, other, "--picture", str(tmp_path / "none.png")])
    assert ended.value.code == 2 and not (tmp_path / "none.png").exists()


def test_seeds_of_two_sides(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    a = [saved(tmp_path / f"good-{seed}", 2.0 + 0.1 * seed, 4) for seed in range(3)]
    b = [saved(tmp_path / f"poor-{seed}", 0.5 + 0.1 * seed, 3) for seed in range(2)]
    runs_a, runs_b = ([load_run(folder) for folder in side] for side in (a, b))
    found = compare_runs(runs_a, runs_b)
    assert found["nll"] == compare([run.rows for run in runs_a], [run.rows for run in runs_b])["nll"]
    assert found["nll"].covers == found["mean15"].covers == "images and seeds"
    assert main(["compare", *map(str, a), "--versus", *map(str, b)]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = next(line for line in lines if line.startswith("nll"))
    assert f"{found['nll'].a:.3f}" in shown and f"[{found['nll'].low:+.3f}, {found['nll'].high:+.3f}]" in shown
    one = compare_runs(runs_a[0], runs_b)["nll"]
    assert one.covers == "images and seeds"  # the side with one run borrows the other's spread


def test_a_run_twice_on_a_side_and_a_lone_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    good, poor = (str(saved(tmp_path / name, 2.0, 4)) for name in ("good", "poor"))
    for words, message in (
        ([good, f"{good}/../good", "--versus", poor], "A run is named twice on one side"),
        ([good, poor, good], "several seeds of both sides, as in `A0 A1 --versus B0 B1`"),
        ([good], "name two runs, as in `A B`"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["compare", *words])
        assert left.value.code == 2 and message in capsys.readouterr().err


def test_other_images_with_the_same_labels_are_refused(tmp_path: Path) -> None:
    """Two test sets that are sorted by class have the same labels in the same order."""
    a, b = load_run(saved(tmp_path / "good", 2.0, 4)), load_run(saved(tmp_path / "poor", 0.5, 3))
    names = np.array([f"{place}.png" for place in range(200)])
    named = [replace(run, rows=replace(run.rows, name=names)) for run in (a, b)]
    assert compare_runs(*named) == compare_runs(a, b)
    for column, values in (("name", names[::-1].copy()), ("index", np.arange(200) + 1)):
        plain = replace(a, rows=replace(a.rows, **{column: np.arange(200) if column == "index" else names}))
        other = replace(b, rows=replace(b.rows, **{column: values}))
        with pytest.raises(ValueError, match=f"good and poor were measured on other images.*column '{column}'"):
            compare_runs(plain, other)


def test_different_recipes_on_one_side_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a = [load_run(saved(tmp_path / name, 2.0, 4, training_arguments={"method": name})) for name in ("ce", "macs")]
    b = [load_run(saved(tmp_path / f"b{seed}", 2.0, 4, training_arguments={"seed": seed})) for seed in (0, 1)]
    compare_runs(a, b)
    assert "(m, ce; m, macs)" in caplog.text


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
