"""Brier score as an `evaluate` module."""

from typing import Any

from macs_hf.metrics import brier_score, module


_DESCRIPTION = """
Brier score of a multiclass model: the squared distance between probabilities and the one-hot label, summed over
classes and averaged over samples. In [0, 2], lower is better. A proper score: only the true probabilities minimise it.
"""

_CITATION = """
@article{brier1950verification,
  title = {Verification of Forecasts Expressed in Terms of Probability},
  author = {Brier, Glenn W.},
  journal = {Monthly Weather Review},
  year = {1950}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions (`list` of `list` of `float`, array or tensor of shape `(n, classes)`): logits, or probabilities.
    references (`list` of `int`, array or tensor of shape `(n,)`): class ids.
    probabilities (`bool`): whether predictions are probabilities. Default: False, with a warning if they look so.

Returns:
    brier (`float`): the score.

Examples:

    >>> import evaluate
    >>> from macs_hf import metrics
    >>> metric = evaluate.load(metrics.path("brier"))
    >>> metric.compute(predictions=[[0.5, 0.5], [0.0, 1.0]], references=[0, 1], probabilities=True)
    {'brier': 0.25}
"""


class Brier(module.LogitsMetric):
    """Brier score as an `evaluate` module."""

    description, citation, inputs_description = _DESCRIPTION, _CITATION, _KWARGS_DESCRIPTION
    reference_urls = ("https://en.wikipedia.org/wiki/Brier_score",)

    def _compute(self, predictions: Any, references: Any, probabilities: bool = False) -> dict[str, float]:
        return {"brier": brier_score(predictions, references, probabilities=probabilities)}
