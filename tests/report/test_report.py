"""EvaluationReport: a round trip, and values that are refused wherever they are."""

import ast
import copy
import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from macs_hf.metrics import measure
from macs_hf.report import evaluation as report_module
from macs_hf.report.corruption_table import CORRUPTIONS, SEVERITIES, Cell, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from macs_hf.report.groups import ConfusionMatrix, GroupMeasures, GroupTable
from macs_hf.report.leakage import Copies, Leakage
from macs_hf.report.margins import MarginAnalysis
from macs_hf.report.rows import SampleRows
from macs_hf.report.unknowns import Answered, Detection, Unknowns


BINS = ReliabilityTable((0.0, 0.5), (0.5, 1.0), (0, 4), (0.0, 0.8), (0.0, 0.75))
METRICS = {
    "accuracy": Interval(0.75, 0.7, 0.8),
    "nll": Interval(0.6, 0.5, 0.7),
    "ece": Interval(0.05, 0.01, 0.09),
    "brier": Interval(0.3, 0.2, 0.4),
}
TABLE = CorruptionTable(
    "cifar",
    "generated",
    4,
    {name: {s: Cell(4, 0.5, 1.0, 0.1, 0.9, 0.05) for s in SEVERITIES} for name in CORRUPTIONS},
    Cell(4, 0.75, 0.6, 0.05, 0.6, 0.05),
    seed=0,
    temperature=1.5,
    standard_error={"mean15": 0.01, "mean19": 0.01},
    size=(32, 32),
)
MARGINS = MarginAnalysis(4, 3.0, 2.0, -0.5, 1.0, 0.25, 0.3, 0.4, 0.1, 0.01, None, 0.5, 0.4, 0.1, 10, "pixel", 7.5)
GROUP = GroupMeasures("cat", 4, True, METRICS["accuracy"], 0.05, 0.02, Interval(0.01, -0.1, 0.1), False, True)
DETECTION = Detection("energy", METRICS["accuracy"], METRICS["ece"])
UNKNOWNS = Unknowns(
    "someone/textures",
    "test",
    9,
    20,
    0.5,
    0.8,
    (DETECTION,),
    None,
    (Answered(0.9, 0.7, METRICS["ece"], METRICS["accuracy"]),),
    ("cat",),
    1,
)
REPORT = EvaluationReport(
    model="someone/model",
    dataset="someone/dataset",
    split="test",
    n=4,
    before=Measurement(METRICS, 0.02, BINS),
    after=Measurement(METRICS, 0.02, BINS),
    temperature=Temperature(1.5, None, "validation", 100),
    model_revision="abc",
    corruptions=TABLE,
    margins=MARGINS,
    training_arguments={"learning_rate": 0.1, "report_to": [], "method": "macs", "max_steps": None, "bf16": False},
    command="macs-hf evaluate {someone} [model]",
    seeds={"seed": 0},
    versions={"torch": "2"},
)


WHOLE = replace(
    REPORT,
    image_size=(32, 48),
    classes=GroupTable("label", (GROUP,)),
    confusion=ConfusionMatrix(2, (0, 1), (0, 0), (3, 1), ("cat", "dog")),
    groups=GroupTable("camera", (GROUP,)),
    unknowns=UNKNOWNS,
    leakage=Leakage({"train": 2, "test": 4}, {"train": 9, "test": 4}, (Copies("test", "train", 1),)),
)


@pytest.mark.parametrize("report", [REPORT, WHOLE, EvaluationReport("m", "d", "test", 4, REPORT.before)])
def test_round_trip(report: EvaluationReport, tmp_path: Path) -> None:
    report.save(tmp_path / "evaluation.json")
    loaded = EvaluationReport.load(tmp_path / "evaluation.json")
    assert loaded == report
    assert loaded.to_json() == report.to_json()
    assert json.loads(report.to_json())["schema_version"] == 2
    if report.corruptions is not None:
        assert loaded.corruptions.cells["fog"][3] == Cell(4, 0.5, 1.0, 0.1, 0.9, 0.05)


def test_measured_values_are_plain_numbers() -> None:
    rows = SampleRows.from_logits(
        torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(50).long()
    )
    report = replace(REPORT, before=measure(rows, n_resamples=20), after=None, n=len(rows))
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


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("colour", "red", "colour is not a field of EvaluationReport"),
        ("schema_version", 1, "schema_version is 1, but this version of macs_hf reads 2"),
        ("n", -4, "n must be a whole number of at least 1, got -4"),
        ("n", 4.0, "n must be a whole number, got 4.0"),
        ("n", 5, "before.bins.count must add up to n = 5, got 4"),
        ("temperature", {"value": 1.0, "unit": "K"}, "temperature.unit is not a field of Temperature"),
        ("temperature.value", 0.0, r"temperature.value must be within \[0.05, 20\], got 0.0"),
        ("temperature.n", -1, "temperature.n must be a whole number of at least 0, got -1"),
        ("before", 3, "before must be an object, got 3"),
        ("before", {"metrics": {}, "noise_floor": 0.0}, "before.bins is missing"),
        ("before.metrics", {}, "before.metrics.accuracy is missing"),
        ("before.metrics.ece", {"value": 1}, "before.metrics.ece.low is missing"),
        ("after.metrics.ece.value", float("nan"), "after.metrics.ece.value must be a finite number, got nan"),
        ("after.metrics.ece.high", float("inf"), "after.metrics.ece.high must be a finite number, got inf"),
        ("after.metrics.ece.value", 0.5, "after.metrics.ece.value must lie between low and high"),
        ("after.metrics.ece.low", "0", "after.metrics.ece.low must be a finite number, got '0'"),
        (
            "after.metrics.accuracy",
            {"value": 7.0, "low": 6.0, "high": 8.0},
            r"after.metrics.accuracy.value must be within \[0, 1\], got 7.0",
        ),
        ("after.metrics.nll.low", -1.0, "after.metrics.nll.low must be at least 0, got -1.0"),
        ("temperature", None, "temperature must be given where there is after"),
        ("after.noise_floor", 1.5, r"after.noise_floor must be within \[0, 1\], got 1.5"),
        ("after.bins.confidence.1", 4.0, r"after.bins.confidence\[1\] must be within \[0, 1\], got 4.0"),
        ("after.bins.count.1", -4, r"after.bins.count\[1\] must be a whole number of at least 0, got -4"),
        ("after.bins.count", [4], "after.bins.lower must have one entry per bin, 1, got 2"),
        ("after.bins.upper.1", 0.5, r"after.bins.upper\[1\] must be above lower\[1\], 0.5, got 0.5"),
        (
            "corruptions.cells.fog.3.accuracy",
            7.0,
            r"corruptions.cells.fog.3.accuracy must be within \[0, 1\], got 7.0",
        ),
        ("corruptions.cells.fog.3.nll", float("nan"), "corruptions.cells.fog.3.nll must be a finite number, got nan"),
        ("corruptions.cells.fog.3.n", -1, "corruptions.cells.fog.3.n must be a whole number of at least 0, got -1"),
        ("corruptions.cells.rain", {}, "corruptions.cells.rain is not one of the corruptions"),
        ("corruptions.cells.fog.9", {"n": 1, "accuracy": 1, "nll": 1, "ece": 0}, "corruptions.cells.fog.9 is not one"),
        (
            "corruptions.cells.snow",
            {"3": {"n": 1, "accuracy": 1, "nll": 1, "ece": 0, "scaled_nll": 1, "scaled_ece": 0}},
            r"corruptions.cells.snow must have the severities of cells.\w+: \[1, 2, 3, 4, 5\]",
        ),
        ("corruptions.clean.ece", -0.1, r"corruptions.clean.ece must be within \[0, 1\], got -0.1"),
        ("margins.margin_share", 2.0, r"margins.margin_share must be within \[0, 1\], got 2.0"),
        ("margins.space", "inches", "margins.space must be one of 'normalized', 'pixel', got 'inches'"),
        ("margins.logit_norm", None, "margins.logit_norm must be a finite number, got None"),
        ("image_size", [32], r"image_size must be a list of 2, got \[32\]"),
        ("image_size.0", 0, r"image_size\[0\] must be a whole number of at least 1, got 0"),
        ("classes.groups.0.n", 3, "classes must be about n = 4 images, got 3"),
        ("groups.groups.0.ece", 1.2, r"groups.groups\[0\].ece must be within \[0, 1\], got 1.2"),
        (
            "groups.groups.0.accuracy",
            {"value": 2.0, "low": 1.0, "high": 3.0},
            r"groups.groups\[0\].accuracy.value must be within \[0, 1\], got 2.0",
        ),
        ("confusion.count.0", 4, "confusion.count must add up to n = 4, got 5"),
        ("confusion.count.0", 0, r"confusion.count\[0\] must be a whole number of at least 1, got 0"),
        ("confusion.label.1", 2, "confusion.label must hold class ids below 2"),
        ("confusion.names", ["cat"], "confusion.names must be one for each of the 2 classes, got 1"),
        ("confusion.count", [4], "confusion.label, prediction and count must have one entry per pair"),
        ("unknowns.n", 21, "unknowns.total must be a whole number of at least 21, got 20"),
        ("unknowns.before.0.score", "odin", r"unknowns.before\[0\].score must be one of"),
        (
            "unknowns.before.0.auroc",
            {"value": 92.0, "low": 90.0, "high": 93.0},
            r"unknowns.before\[0\].auroc.value must be within \[0, 1\], got 92.0",
        ),
        ("unknowns.answered.0.threshold", -1.0, r"unknowns.answered\[0\].threshold must be within \[0, 1\]"),
        ("leakage.copies.0.count", 5, r"leakage.copies\[0\].count is 5, more than were compared"),
        ("training_arguments.method", {"a": 1}, "training_arguments.method must be one of"),
        ("seeds.seed", "0", "seeds.seed must be a whole number, got '0'"),
        ("versions.torch", 2, "versions.torch must be text, got 2"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(path: str, value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        EvaluationReport.from_json(changed(path, value))
    (tmp_path / "evaluation.json").write_text(changed(path, value))
    with pytest.raises(ValueError, match=r"evaluation.json is not a report that can be used: "):
        EvaluationReport.load(tmp_path / "evaluation.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [("[]", "schema_version is None"), ("{", "Expecting"), ("[" * 100_000, "nested too deeply")],
)
def test_what_is_no_report(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvaluationReport.from_json(text)


def test_missing_field() -> None:
    data = json.loads(REPORT.to_json())
    del data["model"]
    with pytest.raises(ValueError, match=r"^model is missing"):
        EvaluationReport.from_json(json.dumps(data))


def test_wrong_values_are_refused_in_memory_too() -> None:
    with pytest.raises(ValueError, match="value must be a finite number"):
        Interval(float("nan"), 0.0, 1.0)
    with pytest.raises(ValueError, match=r"metrics.accuracy.high must be within \[0, 1\], got 1.5"):
        Measurement(METRICS | {"accuracy": Interval(0.75, 0.5, 1.5)}, 0.0, BINS)
    with pytest.raises(ValueError, match="accuracy must be within"):
        Cell(4, 7.0, 1.0, 0.1)
    with pytest.raises(ValueError, match="margin must be a finite number"):
        replace(MARGINS, margin=float("inf"))
    with pytest.raises(ValueError, match=r"training_arguments.model must be one of"):
        replace(REPORT, training_arguments={"model": torch.zeros(1)})


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
