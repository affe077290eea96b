"""What is known about a model's calibration: folded into it, or found by the visitor's audit."""

from dataclasses import dataclass, field
from typing import Any

from ..calibration.stored_thresholds import promised_levels
from ..report.evaluation import EvaluationReport


@dataclass(frozen=True)
class Calibration:
    """
    Args:
        before, after (`float`): Temperatures of the two readings that the page shows, counted from the model before
            any was folded into it. They are equal if no temperature is known.
        sets (`dict[float, float]`): For each promised coverage, the threshold of the prediction sets (LAC).
        answers (`dict[float, float]`): For each promised accuracy, the confidence from which on to answer.
        exact (`bool`): `False` if the promises are approximate, since the same images also chose the checkpoint.
    """

    before: float = 1.0
    after: float = 1.0
    sets: dict[float, float] = field(default_factory=dict)
    answers: dict[float, float] = field(default_factory=dict)
    exact: bool = True

    @property
    def is_known(self) -> bool:
        return self.before != self.after


def stored_calibration(config: Any, folded: float) -> Calibration:
    """
    What a model's config has: the temperature `folded` into its head, and the thresholds of its promises.

    Args:
        config (`PreTrainedConfig`): Of the model.
        folded (`float`): From [`folded_temperature`].
    """
    stored = vars(config)
    sets = stored.get("prediction_set_thresholds", {}).get("lac", {})
    answers = stored.get("abstention_thresholds", {})
    exact = sets.get("exact", True) and answers.get("exact", True)
    return Calibration(1.0, folded, promised_levels(sets), promised_levels(answers), exact)


def audited_calibration(report: EvaluationReport, folded: float) -> Calibration:
    """What an audit found: the temperature that was fitted, on top of what is folded in already, and its promises."""
    after = folded * report.temperature.value
    if report.guarantees is None:
        return Calibration(1.0, after)
    sets = {
        promise.coverage: promise.threshold for promise in report.guarantees.prediction_sets if promise.method == "lac"
    }
    answers = {p.accuracy: p.threshold for p in report.guarantees.abstentions if p.threshold is not None}
    return Calibration(1.0, after, sets, answers, report.guarantees.exact)
