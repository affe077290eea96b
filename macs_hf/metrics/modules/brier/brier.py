"""Brier score as an `evaluate` module."""

from typing import Any

import datasets
import evaluate

from macs_hf.metrics import brier_score
from macs_hf.metrics.inputs import arrow_tables


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
    probabilities (`bool`): whether predictions are probabilities. Default: False.

Returns:
    brier (`float`): the score.

Examples:

    >>> import evaluate
    >>> from macs_hf import metrics
    >>> metric = evaluate.load(metrics.path("brier"))
    >>> metric.compute(predictions=[[0.5, 0.5], [0.0, 1.0]], references=[0, 1], probabilities=True)
    {'brier': 0.25}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class Brier(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        info = evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(
                {"predictions": datasets.Sequence(datasets.Value("float32")), "references": datasets.Value("int64")}
            ),
            reference_urls=["https://en.wikipedia.org/wiki/Brier_score"],
        )
        info.format = "numpy"  # refused by the constructor for lists, since they may be ragged; ours never are
        return info

    def compute(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> dict[str, float] | None:
        """Compute the metric. Arrays given here in a single process are used as they are, without Arrow."""
        if predictions is None or references is None or self.writer is not None or self.num_process > 1:
            return super().compute(predictions=predictions, references=references, **kwargs)
        return self._compute(predictions, references, **kwargs)

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add a batch. Rows are kept in float32."""
        if kwargs:
            raise ValueError(f"Bad inputs for evaluation module: {list(kwargs)}; it takes predictions and references")
        for table in arrow_tables(predictions, references):
            if self.writer is None:
                self.selected_feature_format = self.features
                self._init_writer()
            self.writer.write_table(table)

    def _compute(self, predictions: Any, references: Any, probabilities: bool = False) -> dict[str, float]:
        return {"brier": brier_score(predictions, references, probabilities=probabilities)}
