"""Negative log-likelihood as an `evaluate` module."""

from typing import Any

from macs_hf.metrics import module, negative_log_likelihood


_DESCRIPTION = """
Negative log-likelihood (NLL, log loss, cross-entropy): the mean of -log p(label) in nats. In [0, inf), lower is
better. A proper score: only the true probabilities minimise it.
"""

_CITATION = """
@article{good1952rational,
  title = {Rational Decisions},
  author = {Good, I. J.},
  journal = {Journal of the Royal Statistical Society, Series B},
  year = {1952}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions (`list` of `list` of `float`, array or tensor of shape `(n, classes)`): logits, or probabilities.
    references (`list` of `int`, array or tensor of shape `(n,)`): class ids.
    probabilities (`bool`): whether predictions are probabilities. Default: False, with a warning if they look so.

Returns:
    nll (`float`): the score.

Examples:

    >>> import evaluate
    >>> from macs_hf import metrics
    >>> metric = evaluate.load(metrics.path("nll"))
    >>> result = metric.compute(predictions=[[0.0, 0.0], [1.0, 1.0]], references=[0, 1])
    >>> round(result["nll"], 6)
    0.693147
"""


class NLL(module.LogitsMetric):
    """Negative log-likelihood as an `evaluate` module."""

    description, citation, inputs_description = _DESCRIPTION, _CITATION, _KWARGS_DESCRIPTION
    reference_urls = ("https://en.wikipedia.org/wiki/Scoring_rule#Logarithmic_score",)

    def _compute(self, predictions: Any, references: Any, probabilities: bool = False) -> dict[str, float]:
        return {"nll": negative_log_likelihood(predictions, references, probabilities=probabilities)}
