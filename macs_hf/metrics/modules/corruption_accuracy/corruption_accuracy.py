"""Accuracy under corruption as an `evaluate` module."""

from typing import Any

import datasets
import evaluate

from macs_hf.metrics import corruption_scores


_DESCRIPTION = """
Accuracy of a classifier on corrupted images, as mean over corruptions and severities, per corruption, per severity and
per family; and the mean corruption error (mCE) relative to a reference model. Accuracies are in [0, 1], higher is
better; mCE is a ratio of errors, lower is better.
"""

_CITATION = """
@inproceedings{hendrycks2019benchmarking,
  title = {Benchmarking Neural Network Robustness to Common Corruptions and Perturbations},
  author = {Hendrycks, Dan and Dietterich, Thomas},
  booktitle = {International Conference on Learning Representations},
  year = {2019}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions (`list` of `int`): predicted class ids.
    references (`list` of `int`): class ids.
    corruption (`list` of `str`): name of the corruption of each sample.
    severity (`list` of `int`): severity of each sample, 1 to 5.
    reference_errors (`dict`): mean error of a reference model per standard corruption, for mCE. Optional.

Returns:
    corruption_accuracy (`float`): mean over the corruptions and severities present.
    mean15, mean19 (`float` or `None`): mean over the 15 standard and over all 19 corruptions, if all are present.
    per_corruption, per_severity, per_family (`dict`): means of each.
    mce (`float`): mean corruption error, if reference_errors is given.

Examples:

    >>> import evaluate
    >>> from macs_hf import metrics
    >>> metric = evaluate.load(metrics.path("corruption_accuracy"))
    >>> result = metric.compute(
    ...     predictions=[0, 1, 1, 1],
    ...     references=[0, 0, 1, 1],
    ...     corruption=["fog", "fog", "snow", "snow"],
    ...     severity=[1, 2, 1, 2],
    ... )
    >>> result["corruption_accuracy"], result["per_severity"]
    (0.75, {'1': 1.0, '2': 0.5})
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class CorruptionAccuracy(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(
                {
                    "predictions": datasets.Value("int64"),
                    "references": datasets.Value("int64"),
                    "corruption": datasets.Value("string"),
                    "severity": datasets.Value("int64"),
                }
            ),
            reference_urls=["https://huggingface.co/papers/1903.12261"],
        )

    def _compute(
        self,
        predictions: list[int],
        references: list[int],
        corruption: list[str],
        severity: list[int],
        reference_errors: dict[str, float] | None = None,
    ) -> dict[str, Any]:
        return corruption_scores(predictions, references, corruption, severity, reference_errors)
