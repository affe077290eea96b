"""What is measured of a run: the name of each quantity, how it is shown, and where a finished cell has it."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from macs_hf.metrics.ece import bin_score
from macs_hf.report.corruption_rows import ImageScore
from macs_hf.report.corruption_table import CORRUPTIONS, FAMILIES, STANDARD_15, CorruptionTable
from macs_hf.report.evaluation import EvaluationReport
from macs_hf.report.rows import SampleRows

from .grid import Setting


# Ours is an approximation where the original textures are missing.
NO_FROST = tuple(name for name in STANDARD_15 if name != "frost")


class Run(NamedTuple):
    """One finished cell: its report, the record of its run, its folder, and its rows if they were kept."""

    setting: Setting
    seed: int
    report: EvaluationReport
    record: dict[str, Any]
    folder: Path
    rows: SampleRows | None = None
    rows_before: SampleRows | None = None


class Metric(NamedTuple):
    """How a number is called, shown, and found in a run.

    How two settings are compared in it: by `column`, a value per image of the rows; by `compared`, a name in
    `macs_hf.metrics.compare`; or by `corruptions` and `score`, which `compare_corruptions` takes. `before` stands for
    the rows before the temperature. A number with none of them has no images, only seeds.
    """

    title: str
    decimals: int
    lower_is_better: bool | None
    find: Callable[[Run], float | None]
    scale: float = 1.0
    column: str | None = None
    compared: str | None = None
    before: bool = False
    corruptions: tuple[tuple[str, ...], ...] = ()
    score: ImageScore = "accuracy"


def _measured(name: str, part: str = "before") -> Callable[[Run], float | None]:
    def find(run: Run) -> float | None:
        measurement = getattr(run.report, part)
        found = None if measurement is None else measurement.metrics.get(name)
        return None if found is None else found.value

    return find


def _fitted(name: str) -> Callable[[Run], float | None]:
    return lambda run: None if run.report.temperature is None else getattr(run.report.temperature, name)


def _corrupted(title: str, *names: str, score: ImageScore = "accuracy") -> Metric:
    """Accuracy in percent, or NLL, as mean over groups of corruptions."""
    groups = FAMILIES | {"mean15": STANDARD_15, "mean19": CORRUPTIONS, "no_frost": NO_FROST}
    wanted = tuple(groups[name] for name in names)

    def find(run: Run) -> float | None:
        means = [_mean(run.report.corruptions, group, score) for group in wanted]
        return None if None in means else fmean(means)

    if score == "accuracy":
        return Metric(title, 2, False, find, 100, corruptions=wanted)
    return Metric(title, 3, True, find, corruptions=wanted, score=score)


def _corrupted_ece(run: Run) -> float | None:
    """Mean ECE after the temperature over the cells of the standard 15: of small cells, so it is biased upwards."""
    return _mean(run.report.corruptions, STANDARD_15, "scaled_ece")


def _mean(table: CorruptionTable | None, names: tuple[str, ...], score: str) -> float | None:
    """A model without a temperature is used as it was trained."""
    if table is None:
        return None
    return table.mean(names, score if table.temperature is not None else score.removeprefix("scaled_"))


def _corrupted_gap(run: Run) -> float | None:
    """Mean confidence minus accuracy with the temperature; unlike an ECE it is not inflated by small cells."""
    table = run.report.corruptions
    gaps = None if table is None else table.confidence_gap
    return gaps["mean15"].value if gaps and "mean15" in gaps else None


def _confidence(run: Run) -> float:
    bins = run.report.before.bins
    return float(np.average(bins.confidence, weights=bins.count))


def _debiased_ece(run: Run) -> float | None:
    """From the bins of the reliability diagram, so of runs too whose rows were not kept."""
    if run.report.after is None:
        return None
    count, confidence, accuracy = (
        np.array(getattr(run.report.after.bins, name)) for name in ("count", "confidence", "accuracy")
    )
    return float(bin_score(count, count * confidence, count * accuracy, debiased=True))


def _ranking(name: str) -> Callable[[Run], float | None]:
    return lambda run: None if run.report.risk_coverage is None else getattr(run.report.risk_coverage, name).value


def _analysed(name: str) -> Callable[[Run], float | None]:
    return lambda run: None if run.report.margins is None else getattr(run.report.margins, name)


def _step_time(run: Run) -> float | None:
    """Seconds per training step; a run that was stopped and continued has none."""
    rate = run.record.get("train", {}).get("train_steps_per_second")
    return None if not rate or run.record.get("continued") else 1 / rate


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy, %", 2, False, _measured("accuracy"), 100, column="correct"),
    "ece": Metric("ECE, %", 2, True, _measured("ece"), 100, compared="ece", before=True),
    "nll": Metric("NLL", 3, True, _measured("nll"), column="nll", before=True),
    "brier": Metric("Brier", 3, True, _measured("brier"), column="brier", before=True),
    "ece_after": Metric("ECE after T, %", 2, True, _measured("ece", "after"), 100, compared="ece"),
    "nll_after": Metric("NLL after T", 3, True, _measured("nll", "after"), column="nll"),
    "brier_after": Metric("Brier after T", 3, True, _measured("brier", "after"), column="brier"),
    "debiased_ece_after": Metric("debiased ECE after T, %", 2, True, _debiased_ece, 100, compared="debiased_ece"),
    "aurc": Metric("AURC, %", 2, True, _ranking("aurc"), 100, compared="aurc"),
    "excess_aurc": Metric("excess AURC, %", 2, True, _ranking("excess_aurc"), 100, compared="excess_aurc"),
    "temperature": Metric("T", 2, None, _fitted("value")),
    "validation_nll": Metric("NLL on validation", 3, True, _fitted("nll_before")),
    "validation_nll_after": Metric("NLL on validation, after T", 3, True, _fitted("nll_after")),
    "mean15": _corrupted("mean of 15 corruptions, %", "mean15"),
    "mean19": _corrupted("mean of 19 corruptions, %", "mean19"),
    "corrupted_nll": _corrupted("NLL under 15 corruptions, after T", "mean15", score="scaled_nll"),
    "no_frost": _corrupted("mean without frost, %", "no_frost"),
    "corrupted_ece": Metric("ECE under 15 corruptions, after T, %", 2, True, _corrupted_ece, 100),
    "corrupted_gap": Metric("confidence minus accuracy, 15 corruptions, after T, %", 2, None, _corrupted_gap, 100),
    "confidence": Metric("mean confidence, %", 2, None, _confidence, 100, column="confidence", before=True),
    "noise": _corrupted("noise, %", "noise"),
    "blur": _corrupted("blur, %", "blur"),
    "weather": _corrupted("weather, %", "weather"),
    "digital": _corrupted("digital, %", "digital"),
    "family_mean": _corrupted("mean of families, %", "noise", "blur", "weather", "digital"),
    "no_overlap": _corrupted("weather and digital, %", "weather", "digital"),
    "logit_norm": Metric("norm of logits", 2, None, _analysed("logit_norm")),
    "max_logit": Metric("largest logit", 2, None, _analysed("max_logit")),
    "margin": Metric("margin", 2, False, _measured("logit_margin"), column="margin", before=True),
    "sensitivity": Metric("sensitivity", 3, True, _analysed("logit_sensitivity")),
    "ratio": Metric("margin / sensitivity", 2, False, _analysed("margin_to_sensitivity")),
    "step_time": Metric("seconds per step", 4, None, _step_time),
    "overhead": Metric("step time over CE", 2, None, lambda run: None),  # needs two runs: see `aggregate.overheads`
}
