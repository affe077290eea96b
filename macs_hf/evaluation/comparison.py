"""Two finished runs on the same test images, compared image by image: `macs-hf compare`."""

import logging

from ..metrics import Comparison, compare
from ..report.corruption_table import CORRUPTIONS, STANDARD_15
from ..report.evaluation import EvaluationReport
from ..report.run import Run
from .corruption_comparison import compare_corruptions


logger = logging.getLogger(__name__)

# How a metric is shown: scale, unit, digits.
SHOWN = {"accuracy": (100, "%", 2), "nll": (1, "", 3), "ece": (100, "%", 2), "brier": (1, "", 3)}
SHOWN |= {"mean15": (100, "%", 2), "mean19": (100, "%", 2)}
SHOWN |= {"debiased_ece": (100, "%", 2), "confidence_gap": (100, "%", 2)}
SHOWN |= {"aurc": (1, "", 4), "excess_aurc": (1, "", 4)}
SHOWN |= {f"coverage_at_{risk}_risk": (100, "%", 1) for risk in ("1%", "5%", "10%")}


def compare_runs(a: Run, b: Run) -> dict[str, Comparison]:
    """`a - b` in every metric of the models as published and, if measured alike, in accuracy under corruption."""
    for name in ("dataset", "dataset_config", "split"):
        of_a, of_b = (getattr(run.report, name) for run in (a, b))
        if of_a != of_b:
            raise ValueError(f"{a.name} was measured on {name} {of_a!r}, {b.name} on {of_b!r}: no comparison is fair.")
    found = compare(a.rows, b.rows)
    tables = [run.report.corruptions for run in (a, b) if run.report.corruptions is not None]
    if len(tables) == 2:
        try:
            for mean, names in (("mean15", STANDARD_15), ("mean19", CORRUPTIONS)):
                found[mean] = compare_corruptions(*tables, [names])
        except ValueError as error:
            logger.warning(f"No comparison under corruption: {error}.")
    return found


def comparison_table(a: Run, b: Run) -> str:
    """For a terminal: both values, the difference with its 95 % interval, and which is better."""
    lines = [f"{a.report.dataset}, {a.report.split} (n = {a.report.n})"]
    lines += [f"{letter} = {run.name}, {_calibration(run.report)}" for letter, run in (("a", a), ("b", b))] + [""]
    lines.append(f"{'':<21}{'a':>10}{'b':>10}{'a - b':>10}{'95 % interval':>20}")
    verdicts = {"better": "a is better", "worse": "b is better", "undecided": "undecided", "equal": "equal"}
    for metric, found in compare_runs(a, b).items():
        scale, unit, digits = SHOWN[metric]
        of_a, of_b = (f"{scale * value:.{digits}f}{unit}" for value in (found.a, found.b))
        value, low, high = (f"{scale * v:+.{digits}f}" for v in (found.difference, found.low, found.high))
        interval = f"[{low}, {high}]"
        lines.append(f"{metric:<21}{of_a:>10}{of_b:>10}{value:>10}{interval:>20}  {verdicts[found.verdict]}")
    return "\n".join(lines)


def _calibration(report: EvaluationReport) -> str:
    if report.temperature is None:
        return "not calibrated (no temperature was fitted)"
    return f"calibrated (temperature {report.temperature.value:.3f})"
