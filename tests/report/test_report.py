"""EvaluationReport: a round trip, and values that are refused wherever they are."""

import ast
import copy
import json
import math
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from publishing.reports import FOUND, REPORT

from macs_hf.metrics import measure
from macs_hf.report import report as report_module
from macs_hf.report.report import (
    EvaluationReport,
    GroupTable,
    Interval,
    MarginAnalysis,
    Share,
)
from macs_hf.report.rows import SampleRows


METRICS = REPORT.before.metrics
MARGINS = MarginAnalysis(4, 3.0, 2.0, -0.5, 0.3, None, 0.1, 10, "pixel")
WHOLE = replace(FOUND, margins=MARGINS, seeds={"seed": 0}, command="macs-hf evaluate {someone} [model]")


@pytest.mark.parametrize("report", [REPORT, WHOLE, EvaluationReport("m", "d", "test", 1000, REPORT.before)])
def test_round_trip(report: EvaluationReport, tmp_path: Path) -> None:
    report.save(tmp_path / "evaluation.json")
    loaded = EvaluationReport.load(tmp_path / "evaluation.json")
    assert loaded == report
    assert loaded.to_json() == report.to_json()
    assert json.loads(report.to_json())["schema_version"] == 2
    if report.corruptions is not None:
        assert loaded.corruptions.cells["fog"][3] == report.corruptions.cells["fog"][3]


def test_measured_values_are_plain_numbers() -> None:
    rows = SampleRows.from_logits(
        torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(50).long()
    )
    report = EvaluationReport("m", "d", "test", len(rows), measure(rows, n_resamples=20))
    assert EvaluationReport.from_json(report.to_json()) == report


def test_published_is_with_the_temperature_if_there_is_one() -> None:
    other = replace(REPORT.before, noise_floor=0.5)
    assert replace(REPORT, after=other).published is other
    assert replace(REPORT, after=None).published is REPORT.before


# ---- What is refused ----


def changed(path: str, value: Any) -> str:
    """The report as JSON with one value changed, NaN and infinity included."""
    data = json.loads(WHOLE.to_json())
    *parents, last = path.split(".")
    place = data
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[int(last) if isinstance(place, list) else last] = copy.deepcopy(value)
    return json.dumps(data)


INTERVAL = {"value": 7.0, "low": 6.0, "high": 8.0}
CELL = {"n": 1, "accuracy": 1, "nll": 1, "ece": 0, "scaled_nll": 1, "scaled_ece": 0}


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("colour", "red", None),
        ("schema_version", 1, None),
        ("n", -4, None),
        ("n", 5, "before.bins.count"),
        ("temperature", {"value": 1.0, "unit": "K"}, "temperature.unit"),
        ("temperature.value", 0.0, None),
        ("temperature", None, None),
        ("before", {"metrics": {}, "noise_floor": 0.0}, "before.bins"),
        ("before.metrics", {}, "metrics.accuracy"),
        ("after.metrics.ece.value", float("nan"), None),
        ("after.metrics.ece.value", True, None),
        ("after.metrics.ece.value", 0.5, "after.metrics.ece"),
        ("after.metrics.accuracy", INTERVAL, "metrics.accuracy"),
        ("after.metrics.nll.low", -1.0, "metrics.nll"),
        ("after.bins.confidence.1", 4.0, None),
        ("after.bins.count", [4], "after.bins"),
        ("after.bins.upper.1", 0.25, "upper.1"),
        ("corruptions.cells.fog.3.accuracy", 7.0, None),
        ("corruptions.cells.rain", {}, "cells.rain"),
        ("corruptions.cells.snow", {"3": CELL}, "cells.snow"),
        ("corruptions.cells.snow.3.scaled_nll", None, "cells.snow"),
        ("margins.logit_sensitivity", -2.0, None),
        ("margins.space", "inches", None),
        ("image_size", [32], None),
        ("classes.groups.0.n", 3, "classes"),
        ("groups.groups.0.accuracy", INTERVAL, None),
        ("confusion.count.0", 4, "confusion.count"),
        ("confusion.label.1", 3, "confusion: label"),
        ("confusion.count", [4], "confusion: .*count"),
        ("unknowns.before.0.score", "odin", None),
        ("leakage.copies.0.count", -1, None),
        ("leakage.copies.0.other", "dev", "leakage: copies"),
        ("training_arguments.method", {"a": 1}, None),
    ],
)
def test_a_wrong_value_is_refused_and_named(path: str, value: Any, named: str | None, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(changed(path, value))
    with pytest.raises(ValueError, match=rf"evaluation.json is not a report that can be used: .*{named or path}"):
        EvaluationReport.load(tmp_path / "evaluation.json")


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, "{}"])
def test_what_is_no_report(text: str) -> None:
    with pytest.raises(ValueError):
        EvaluationReport.from_json(text)


SHARE = Share(0.9, 0.85, 0.94, 100)
ALL = REPORT.guarantees
SETS, SURE = ALL.prediction_sets[0], ALL.abstentions[0]


@pytest.mark.parametrize(
    ("value", "changes", "named"),
    [
        (METRICS["ece"], {"value": math.nan}, "value"),
        (REPORT.before, {"metrics": METRICS | {"accuracy": Interval(0.75, 0.5, 1.5)}}, "metrics.accuracy"),
        (REPORT.corruptions.clean, {"accuracy": 7.0}, "accuracy"),
        (MARGINS, {"margin": math.inf}, "margin"),
        (REPORT, {"training_arguments": {"model": object()}}, "training_arguments.model"),
        (SHARE, {"value": 7.0}, "value"),
        (SHARE, {"n": 0}, "n"),
        (SETS, {"coverage": 1.0}, "coverage"),
        (SETS, {"threshold": math.inf}, "threshold"),
        (SETS, {"class_covered": (40, -1)}, "class_covered"),
        (SURE, {"delta": 0}, "delta"),
        (SURE, {"threshold": None}, "reason"),
        (ALL, {"temperature": 0.0}, "temperature"),
        (ALL, {"num_guarantee": 0}, "reason"),
    ],
)
def test_impossible_values_are_refused_in_memory_too(value: Any, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(value, **changes)


def test_the_ends_of_an_interval_may_miss_it_by_rounding() -> None:
    assert Interval(0.3, 0.3 + 1e-12, 0.3 + 1e-12).value == 0.3


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        REPORT.n = 5


def test_the_room_of_reports_needs_no_other() -> None:
    """Reports are read by programs that never measure: no transformers, no datasets."""
    for path in Path(report_module.__file__).parent.glob("*.py"):
        top_level = [
            node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = {alias.name for node in top_level if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in top_level if isinstance(node, ast.ImportFrom) and node.level == 0}
        assert not {name.split(".")[0] for name in names} & {"transformers", "datasets", "pyarrow", "pandas"}, path


@pytest.mark.parametrize(
    ("sizes", "accuracy", "level", "above"),
    [
        ({"cat": 500, "dog": 500}, Interval(0.55, 0.52, 0.58), 0.5, True),
        ({"cat": 500, "dog": 500}, Interval(0.52, 0.49, 0.55), 0.5, False),
        ({"cat": 900, "dog": 100}, Interval(0.85, 0.83, 0.87), 0.9, False),
        ({"cat": 1000}, Interval(1.0, 0.99, 1.0), None, None),  # there is nothing to tell apart
    ],
)
def test_chance_is_the_share_of_the_largest_class(
    sizes: dict[str, int], accuracy: Interval, level: float | None, above: bool | None
) -> None:
    measured = replace(REPORT.before, metrics={**METRICS, "accuracy": accuracy})
    groups = GroupTable("label", tuple(replace(FOUND.classes.groups[0], name=name, n=n) for name, n in sizes.items()))
    report = EvaluationReport("m", "d", "test", 1000, measured, classes=groups)
    assert (report.chance_level, report.above_chance) == (level, above)
    assert EvaluationReport("m", "d", "test", 1000, measured).above_chance is None
