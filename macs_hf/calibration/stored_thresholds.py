"""The thresholds of a model's guarantees in its config, which is downloaded with it.

Five lines of plain transformers then make prediction sets, here at a coverage of 90 %:

    model = AutoModelForImageClassification.from_pretrained("user/model")
    probabilities = model(**inputs).logits.double().softmax(-1)
    threshold = model.config.prediction_set_thresholds["lac"]["0.9"]
    sets = (1 - probabilities <= threshold) | (probabilities == probabilities.amax(-1, keepdim=True))
    names = [[model.config.id2label[i] for i in row.nonzero().flatten().tolist()] for row in sets]

and one decides whether to answer: `probabilities.amax(-1) >= model.config.abstention_thresholds["0.95"]`.
"""

from collections.abc import Mapping
from typing import Any

from ..report.config_fields import forget_guarantees
from ..report.guarantees import Guarantees
from .conformal_sets import RAPS_K_REG, RAPS_LAMBDA
from .inputs import check_probability


FACTS = ("delta", "exact", "lambda", "k_reg")  # in the tables beside the levels


def store_guarantees(config: Any, guarantees: Guarantees) -> None:
    """
    Write the thresholds into a model's config, after its temperature was folded into the head.

    `config.prediction_set_thresholds` becomes `{"lac": {"0.9": threshold, ...}, "raps": {..., "lambda": 0.01, "k_reg":
    5}}`, and `config.abstention_thresholds` `{"0.95": threshold, ..., "delta": 0.05}`, without the accuracies that
    could not be promised. If the promises are approximate, each of these tables has `"exact": false` too. What an
    earlier call wrote is replaced, also by nothing.

    Args:
        config (`PreTrainedConfig`): That of the calibrated model, or a model without config.
        guarantees ([`Guarantees`]): From [`make_guarantees`].
    """
    forget_guarantees(config)
    sets: dict[str, dict[str, float]] = {}
    for promise in guarantees.prediction_sets:
        sets.setdefault(promise.method, {})[_key(promise.coverage)] = promise.threshold
    if "raps" in sets:
        sets["raps"] |= {"lambda": RAPS_LAMBDA, "k_reg": RAPS_K_REG}
    answers = {_key(p.accuracy): p.threshold for p in guarantees.abstentions if p.threshold is not None}
    kind = {} if guarantees.exact else {"exact": False}
    if sets:
        config.prediction_set_thresholds = {method: levels | kind for method, levels in sets.items()}
    if answers:
        config.abstention_thresholds = answers | {"delta": guarantees.abstentions[0].delta} | kind


def stored_abstention_threshold(config: Any, accuracy: float) -> float | None:
    """
    The confidence from which on a model promises an accuracy: that stored for the lowest accuracy not below it.

    Args:
        config (`PreTrainedConfig`): Of a downloaded model.
        accuracy (`float`): The wanted share of right answers, between 0 and 1.

    Returns:
        `float`, or `None` if the model's config promises no such accuracy.
    """
    check_probability("accuracy", accuracy, 0.95)
    stored = promised_levels(vars(config).get("abstention_thresholds", {}))
    enough = [level for level in stored if level >= accuracy]
    return stored[min(enough)] if enough else None


def promised_levels(stored: Mapping[str, float]) -> dict[float, float]:
    """The thresholds of a table that [`store_guarantees`] wrote, lowest level first, without what else it holds."""
    levels = {float(key): float(value) for key, value in stored.items() if key not in FACTS}
    return dict(sorted(levels.items()))


def _key(level: float) -> str:
    return str(float(level))
