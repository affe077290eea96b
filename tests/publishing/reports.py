"""A report, the settings of its card, and the outline of a text, for the tests of this room."""

import re
from dataclasses import replace

from macs_hf.publishing.card import CardSettings
from macs_hf.report.report import (
    AbstentionGuarantee,
    Answered,
    Cell,
    ConfusionMatrix,
    Copies,
    CorruptionTable,
    Detection,
    EvaluationReport,
    GroupMeasures,
    GroupTable,
    Guarantees,
    Interval,
    Leakage,
    Measurement,
    OutOfDistribution,
    PredictionSetGuarantee,
    ReliabilityTable,
    RiskCoverage,
    Share,
    Temperature,
)
from macs_hf.report.rows import CORRUPTIONS, SEVERITIES


def measurement(ece: float, nll: float) -> Measurement:
    metrics = {
        "accuracy": Interval(0.85, 0.83, 0.87),
        "nll": Interval(nll, nll - 0.02, nll + 0.02),
        "ece": Interval(ece, ece - 0.01, ece + 0.01),
        "brier": Interval(0.2, 0.19, 0.21),
        "logit_margin": Interval(2.0, 1.9, 2.1),
    }
    bins = ReliabilityTable(
        (0.0, 0.25, 0.5, 0.75), (0.25, 0.5, 0.75, 1.0), (0, 200, 200, 600), *[(0, 0.4, 0.7, 0.98)] * 2
    )
    return Measurement(metrics, 0.025, bins)


def corruptions() -> CorruptionTable:
    def row(accuracy: float) -> dict[int, Cell]:
        return {severity: Cell(500, accuracy, 1.0, 0.1, 0.9, 0.06) for severity in SEVERITIES}

    cells = {name: row(0.5 + 0.01 * i) for i, name in enumerate(CORRUPTIONS)}
    clean = Cell(500, 0.85, 0.5, 0.08, 0.45, 0.03)
    return CorruptionTable(
        "cifar",
        "generated",
        500,
        cells,
        clean,
        seed=0,
        temperature=1.5,
        standard_error={"mean15": 0.01, "mean19": 0.01},
        confidence_gap={"clean": Interval(0.001, -0.029, 0.031), "mean15": Interval(0.052, 0.041, 0.063)},
    )


def guarantees() -> Guarantees:
    by_severity = {severity: Share(0.9 - 0.1 * severity, 0.2, 0.9, 500) for severity in SEVERITIES}
    sets = [
        PredictionSetGuarantee(
            "lac", level, level - 0.1, 200, Share(level + 0.01, level, 1.0, 1000), 1 + level, (480, 430), by_severity
        )
        for level in (0.8, 0.9)
    ]
    sets.append(replace(sets[-1], method="raps"))
    sure = AbstentionGuarantee(
        0.95, 0.05, 200, 0.83, None, Share(0.7, 0.67, 0.73, 1000), Share(0.96, 0.94, 0.97, 700), by_severity
    )
    none = AbstentionGuarantee(0.99, 0.05, 200, reason="200 held-out samples are too few | by far")
    return Guarantees(200, 200, 1000, 1.5, False, None, (500, 500), ("cat", "dog"), tuple(sets), (sure, none))


RISK = RiskCoverage(
    aurc=Interval(0.042, 0.031, 0.053),
    excess_aurc=Interval(0.03, 0.02, 0.04),
    coverage_at_risk={"1%": Interval(0.2, 0.1, 0.3), "5%": Interval(0.6, 0.5, 0.7)},
    coverage=(0.5, 1.0),
    risk=(0.01, 0.15),
)


REPORT = EvaluationReport(
    model="user/base",
    dataset="user/pictures",
    split="test",
    n=1000,
    before=measurement(0.08, 0.6),
    after=measurement(0.02, 0.5),
    temperature=Temperature(1.5, None, "validation", 200, 0.06, 0.012, nll_gain=Interval(0.1, 0.08, 0.12)),
    corruptions=corruptions(),
    guarantees=guarantees(),
    risk_coverage=RISK,
    training_arguments={"learning_rate": 0.005, "push_to_hub": True, "seed": 3},
    command="python examples/train.py --dataset user/pictures --learning_rate 5e-3",
    versions={"torch": "2.9.0", "macs-hf": "0.1.0"},
)


def group(name: str, n: int, accuracy: float, gap: float, significant: bool) -> GroupMeasures:
    intervals = (Interval(value, value - 0.04, value + 0.04) for value in (accuracy, gap))
    return GroupMeasures(name, n, n < 30, next(intervals), 0.05, 0.02, next(intervals), significant, significant)


def with_coverage(table: GroupTable, shares: dict[str, float], guaranteed: float) -> GroupTable:
    groups = (
        replace(g, coverage=Interval(shares[g.name], shares[g.name] - 0.02, shares[g.name] + 0.02))
        for g in table.groups
    )
    worst, *others = groups
    return replace(table, groups=(replace(worst, coverage_significant=True), *others), guaranteed_coverage=guaranteed)


def detections(auroc: float) -> tuple[Detection, ...]:
    parts = Interval(auroc, auroc - 0.01, auroc + 0.01), Interval(0.3, 0.28, 0.33)
    return tuple(Detection(score, *parts) for score in ("max_probability", "max_logit", "energy"))


CLASSES = GroupTable(
    "label",
    (group("cat", 400, 0.7, 0.1, True), group("bird", 300, 0.8, 0.02, False), group("ship", 300, 0.9, 0, True)),
)
CAMERAS = GroupTable("camera", (group("old", 500, 0.8, 0.02, False), group("new", 500, 0.81, -0.01, False)))
CONFUSION = ConfusionMatrix(
    3, (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 0, 2), (280, 90, 30, 240, 60, 300), ("cat", "bird", "ship")
)
OOD = OutOfDistribution(
    dataset="user/textures",
    split="train",
    n=500,
    total=900,
    confidence=0.61,
    known_confidence=0.87,
    before=detections(0.9),
    after=detections(0.92),
    answered=(Answered(0.95, 0.8123, Interval(0.1, 0.08, 0.13), Interval(0.7, 0.68, 0.73)),),
    left_out=("cat",),
    copies=2,
)
LEAKAGE = Leakage(
    {"train": 2000, "validation": 400, "test": 1000},
    {"train": 50_000, "validation": 400, "test": 1000},
    (Copies("validation", "train", 0), Copies("test", "train", 12), Copies("test", "validation", 0)),
)
FOUND = replace(
    REPORT,
    image_size=(32, 48),
    classes=with_coverage(CLASSES, {"cat": 0.85, "bird": 0.91, "ship": 0.95}, 0.9),
    confusion=CONFUSION,
    groups=CAMERAS,
    ood=OOD,
    leakage=LEAKAGE,
)
SETTINGS = CardSettings(
    "pictures",
    repo_id="user/pictures-macs",
    license="mit",
    base_model="user/base",
    datasets=("user/pictures",),
    timm=True,
    pictures=("reliability.png", "corruptions.png"),
    tags=("mine",),
)


def outline(text: str) -> list[str]:
    """Headings, table rows by their number of cells, and the ends of code blocks."""
    found, fence = [], None
    for line in text.splitlines():
        if fence is not None or line.startswith("```"):
            ticks = re.match("`*", line)[0]
            if fence is None or line == fence:
                found.append("code")
                fence = ticks if fence is None else None
        elif line.startswith("#"):
            found.append("heading")
        elif line.startswith("|"):
            found.append("row of " + str(len(re.findall(r"(?<!\\)[|]", line)) - 1))
    return found
