"""`macs-hf compare`: two runs on the same images, image by image; and tables under corruption."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from macs_hf.cli.main import main
from macs_hf.corruptions import CORRUPTIONS, SEVERITIES
from macs_hf.evaluation.run_comparison import compare_corruptions, compare_runs
from macs_hf.metrics import compare, measure
from macs_hf.rendering import plot_under_corruption
from macs_hf.report.report import Cell, CorruptionTable, EvaluationReport, Interval, Temperature, load_run, save_run
from macs_hf.report.rows import CorruptionRows, SampleRows


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
    assert lines[1].startswith("a = poor") and lines[2] == "b = good, 32 x 48 pixels, temperature 1.250"
    assert next(line for line in lines if line.startswith("nll")).endswith("b is better")
    assert not any(line.startswith("mean") for line in lines)  # one of the two was not measured under corruption


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


def test_a_run_twice_on_a_side_and_a_lone_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    good, poor = (str(saved(tmp_path / name, 2.0, 4)) for name in ("good", "poor"))
    for words in ([good, f"{good}/../good", "--versus", poor], [good, poor, good], [good]):
        with pytest.raises(SystemExit) as left:
            main(["compare", *words])
        assert left.value.code == 2 and capsys.readouterr().out == ""


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
    bare = saved(tmp_path / "bare", 0.5, 3)
    (bare / "samples.parquet").unlink()
    for path, message in ((other, "'paintings'"), (bare / "evaluation.json", "samples.parquet")):
        with pytest.raises(SystemExit) as left:
            main(["compare", str(good), str(path)])
        assert left.value.code == 2
        assert message in capsys.readouterr().err


# ---- Under corruption ----


def table(**hits: str) -> CorruptionTable:
    """One digit per image: at how many severities it was right."""
    n = len(next(iter(hits.values())))
    cells = {name: {s: Cell(n, 0.5, 1.0, 0.1) for s in SEVERITIES} for name in hits}
    digits = np.array([[int(digit) for digit in column] for column in hits.values()], dtype=np.uint8).T
    rows = CorruptionRows(np.arange(n), tuple(hits), digits)
    return CorruptionTable("cifar", "generated", n, cells, seed=0, rows=rows)


def test_the_interval_is_that_of_the_differences_of_images() -> None:
    found = compare_corruptions(table(fog="5310"), table(fog="4311"), [["fog"]])
    differences = [0.2, 0.0, 0.0, -0.2]
    half = 1.96 * math.sqrt(sum(d * d for d in differences) / 3 / 4)
    assert found.difference == pytest.approx(0) and found.verdict == "undecided"
    assert (found.low, found.high) == pytest.approx((-half, half), rel=1e-4)
    assert (found.a, found.b) == pytest.approx((9 / 20, 9 / 20))


def test_a_lower_nll_wins() -> None:
    nll = np.array([[0.5], [1.0], [3.0], [0.25]], dtype=np.float32)
    sure, unsure = (
        replace(one, rows=replace(one.rows, nll=nll + shift, scaled_nll=nll + 2 * shift))
        for one, shift in ((table(fog="5310"), 0.0), (table(fog="4311"), 0.125))
    )
    found = compare_corruptions(sure, unsure, [["fog"]], "nll")
    assert (found.low, found.difference, found.high) == pytest.approx((-0.125, -0.125, -0.125))
    assert (found.a, found.b) == pytest.approx((4.75 / 4, 5.25 / 4)) and found.verdict == "better"
    assert compare_corruptions(sure, unsure, [["fog"]], "scaled_nll").difference == pytest.approx(-0.25)
    with pytest.raises(ValueError, match="the rows hold no scaled_nll"):
        compare_corruptions(table(fog="55"), table(fog="44"), [["fog"]], "scaled_nll")


def test_groups_count_alike() -> None:
    a, b = table(fog="55", snow="55", contrast="00"), table(fog="00", snow="00", contrast="55")
    assert compare_corruptions(a, b, [["fog", "snow"], ["contrast"]]).difference == pytest.approx(0)
    assert compare_corruptions(a, b, [["fog", "snow", "contrast"]]).difference == pytest.approx(1 / 3)


def test_tables_that_cannot_be_compared_are_named() -> None:
    one = table(fog="53")
    for other, message in (
        (replace(one, seed=1), r"differ in seed \(0 and 1\)"),
        (replace(one, rows=None), "no rows"),
        (replace(one, rows=replace(one.rows, index=np.array([0, 2]))), "other images of the test split"),
    ):
        with pytest.raises(ValueError, match=message):
            compare_corruptions(one, other, [["fog"]])
    assert compare_corruptions(replace(one, size=(64, 64)), one, [["fog"]]).difference == 0  # of an older table
    with pytest.raises(ValueError, match="'gaussian_noise' was not measured"):
        compare_corruptions(one, one)
