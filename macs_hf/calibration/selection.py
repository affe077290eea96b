"""Selective prediction: answer only above a confidence that gives the accuracy one needs.

From the bins of a report: of the samples with confidence above an edge t, the share that is right is

accuracy(t) = sum of count * accuracy over bins above t / sum of count over bins above t
"""

from dataclasses import dataclass

from ..report.evaluation import EvaluationReport


@dataclass(frozen=True)
class Selection:
    """
    What answering only above a confidence gives.

    Args:
        threshold (`float`): Answer if the highest probability is greater than this.
        coverage (`float`): Share of the test samples that are answered.
        accuracy (`float`): Share of these that are right.
        n (`int`): How many they are.
    """

    threshold: float
    coverage: float
    accuracy: float
    n: int


def selections(report: EvaluationReport) -> list[Selection]:
    """One per edge of the report's bins that has samples above it, from answering everything to the surest bin."""
    bins = (report.after or report.before).bins
    total = sum(bins.count)
    found, count, right = [], 0, 0.0
    for lower, in_bin, accuracy in reversed(list(zip(bins.lower, bins.count, bins.accuracy, strict=True))):
        count, right = count + in_bin, right + in_bin * accuracy
        if in_bin:
            found.append(Selection(lower, count / total, right / count, count))
    return found[::-1]


def confidence_threshold(report: EvaluationReport, accuracy: float) -> Selection:
    """
    The lowest confidence above which the calibrated model of `report` is right as often as wanted.

    It is an estimate from the test samples, as fine as the report's bins are; other data may differ.

    Args:
        report ([`EvaluationReport`]): Read with `EvaluationReport.load`.
        accuracy (`float`): The share of answers that should be right, between 0 and 1.

    Raises:
        `ValueError`: If no threshold gives that accuracy; the message tells the best one.

    Example:

    ```python
    >>> from macs_hf.report import Interval, Measurement, ReliabilityTable
    >>> bins = ReliabilityTable((0.0, 0.5), (0.5, 1.0), (40, 60), (0.4, 0.9), (0.5, 0.9))
    >>> metrics = dict.fromkeys(("accuracy", "nll", "ece", "brier"), Interval(0.74, 0.7, 0.8))
    >>> report = EvaluationReport("model", "data", "test", 100, Measurement(metrics, 0.0, bins))
    >>> confidence_threshold(report, 0.9)
    Selection(threshold=0.5, coverage=0.6, accuracy=0.9, n=60)

    ```
    """
    if not 0 < accuracy <= 1:
        raise ValueError(f"accuracy={accuracy!r} is no share of right answers: give a number in (0, 1], such as 0.95.")
    choices = selections(report)
    # A bin of a few samples may have any accuracy; sums like 0.9 * 60 / 60 may miss the last digit.
    for choice in choices:
        if choice.accuracy >= accuracy - 1e-9:
            return choice
    best = max(choices, key=lambda choice: choice.accuracy)
    raise ValueError(
        f"No confidence gives an accuracy of {accuracy}: the best is {best.accuracy:.4f}, above {best.threshold:.4f} "
        f"({best.n} of {report.n} samples)."
    )
