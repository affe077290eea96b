"""Expected calibration error as an `evaluate` module."""

from typing import Any

from macs_hf.metrics import estimate_calibration_error, expected_calibration_error, module


_DESCRIPTION = """
Expected calibration error (ECE): how far the confidence of a classifier is from its accuracy, averaged over bins of
confidence. In [0, 1], lower is better. It comes with a bootstrap interval and with its noise floor, the score that a
perfectly calibrated model with the same confidences would get from this many samples.
"""

_CITATION = """
@inproceedings{guo2017calibration,
  title = {On Calibration of Modern Neural Networks},
  author = {Guo, Chuan and Pleiss, Geoff and Sun, Yu and Weinberger, Kilian Q.},
  booktitle = {International Conference on Machine Learning},
  year = {2017}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions (`list` of `list` of `float`, array or tensor of shape `(n, classes)`): logits, or probabilities.
    references (`list` of `int`, array or tensor of shape `(n,)`): class ids.
    probabilities (`bool`): whether predictions are probabilities. Default: False, with a warning if they look so.
    n_bins (`int`): number of bins. Default: 15.
    variant (`str`): "equal_width" (default), "equal_mass", "classwise" or "smooth".
    norm (`str`): "l1" (default), "l2" or "max" (maximum calibration error).
    debiased (`bool`): subtract what the sampling noise within bins explains. Default: False.
    n_resamples (`int`): bootstrap resamples; 0 for the score alone. Default: 2000.
    seed (`int`): seed of the resamples. Default: 0.

Returns:
    ece (`float`): the score.
    ece_low, ece_high (`float`): its 95 % bootstrap interval.
    ece_noise_floor (`float`): the mean score of a perfectly calibrated model with these confidences.

Examples:

    >>> import evaluate
    >>> from macs_hf import metrics
    >>> metric = evaluate.load(metrics.path("ece"))
    >>> predictions = [[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]
    >>> metric.compute(predictions=predictions, references=[0, 0, 1, 1], probabilities=True, n_resamples=0)
    {'ece': 0.0625}
    >>> result = metric.compute(predictions=[[2.0, 0.0], [0.0, 2.0]] * 50, references=[0, 1, 1, 0] + [0, 1] * 48)
    >>> {name: round(value, 3) for name, value in result.items()}
    {'ece': 0.099, 'ece_low': 0.079, 'ece_high': 0.129, 'ece_noise_floor': 0.026}
"""


class ECE(module.LogitsMetric):
    """Expected calibration error as an `evaluate` module."""

    description, citation, inputs_description = _DESCRIPTION, _CITATION, _KWARGS_DESCRIPTION
    reference_urls = (
        "https://huggingface.co/papers/1706.04599",
        "https://huggingface.co/papers/2309.12236",
    )

    def _compute(
        self,
        predictions: Any,
        references: Any,
        probabilities: bool = False,
        n_bins: int = 15,
        variant: str = "equal_width",
        norm: str = "l1",
        debiased: bool = False,
        n_resamples: int = 2000,
        seed: int = 0,
    ) -> dict[str, float]:
        options = {"probabilities": probabilities, "n_bins": n_bins, "variant": variant, "norm": norm}
        options["debiased"] = debiased
        if not n_resamples:
            return {"ece": expected_calibration_error(predictions, references, **options)}
        estimate = estimate_calibration_error(predictions, references, **options, n_resamples=n_resamples, seed=seed)
        return {
            "ece": estimate.ece,
            "ece_low": estimate.low,
            "ece_high": estimate.high,
            "ece_noise_floor": estimate.noise_floor,
        }
