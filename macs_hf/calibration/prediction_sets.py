"""Prediction sets by split conformal prediction: several classes in place of one, so that the right one is among them.

With a score s(x, k) that is small for likely classes, n held-out samples that fitted nothing else, and a coverage c,

    threshold = the ceil((n + 1) c)-th smallest of s(x_i, y_i)          set(x) = {k : s(x, k) <= threshold}

holds the right class of a new image of the same distribution with a probability of at least c, whatever the model is
and for any n ([Angelopoulos and Bates](https://huggingface.co/papers/2107.07511)). With r the rank of class k by its
probability, from 1, the scores are

    LAC:  1 - p_k
    RAPS: p of all classes above rank r, + p_k / 2, + 0.01 max(0, r - 5)

LAC gives the smallest sets on average. RAPS ([Angelopoulos et al.](https://huggingface.co/papers/2009.14193)) spreads
coverage more evenly over easy and hard images and keeps sets from growing long. The paper's score has u p_k in place
of p_k / 2, with a random u in [0, 1] for each image. Its mean is used here: the same image always gets the same set,
and the law of the coverage is as exact, since it holds for any score that does not depend on the other samples.
(u = 1, the usual choice of deterministic versions, gives the right answers of a sure model the highest scores: sets of
four out of ten classes where one is enough.)
"""

import math
from fractions import Fraction
from typing import Literal, get_args

import torch
from torch import Tensor

from .temperature import ArrayLike, check_number, checked_logits, checked_samples, chunks


Method = Literal["lac", "raps"]

RAPS_LAMBDA = 0.01
RAPS_K_REG = 5


def prediction_set_threshold(
    logits: ArrayLike, labels: ArrayLike, coverage: float = 0.9, method: Method = "lac"
) -> float:
    """
    The threshold on the score that makes sets of [`prediction_sets`] hold the right class with a probability.

    Args:
        logits (`torch.Tensor`, `np.ndarray` or nested list of shape `(samples, classes)`): Logits, with their
            temperature, of held-out samples that fitted nothing else: not the model, not its temperature.
        labels (`torch.Tensor`, `np.ndarray` or list of shape `(samples,)`): Class indices.
        coverage (`float`, *optional*, defaults to 0.9): The probability, between 0 and 1.
        method (`str`, *optional*, defaults to `"lac"`): `"lac"` or `"raps"`, see this module's description.

    Returns:
        `float`: Over the draw of the n held-out samples, the coverage that it gives follows a beta distribution with
        the parameters k and n + 1 - k, where k = ceil((n + 1) coverage), or is higher if scores are equal.

    Raises:
        `ValueError`: If there are too few samples for the coverage; the message says how many it takes.

    Example:

    ```python
    >>> logits = [[math.log(p), math.log(1 - p)] for p in (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55)]
    >>> round(prediction_set_threshold(logits, [0] * 9, coverage=0.8), 4)  # the eighth of nine
    0.4

    ```
    """
    return threshold_of_scores(label_scores(logits, labels, method), coverage)


def prediction_sets(logits: ArrayLike, threshold: float, method: Method = "lac") -> Tensor:
    """
    The classes whose score is at most `threshold`, and the most probable class.

    Args:
        logits (`torch.Tensor`, `np.ndarray` or nested list of shape `(samples, classes)`): Logits, with their
            temperature.
        threshold (`float`): From [`prediction_set_threshold`], or `config.prediction_set_thresholds` of a model.
        method (`str`, *optional*, defaults to `"lac"`): That of the threshold.

    Returns:
        `torch.Tensor` of shape `(samples, classes)`, bool, on the device of the logits.

    Example:

    ```python
    >>> prediction_sets([[2.0, 1.9, -3.0], [5.0, 0.0, 0.0]], threshold=0.6).tolist()
    [[True, True, False], [True, False, False]]

    ```
    """
    check_number("threshold", threshold)
    device = logits.device if isinstance(logits, Tensor) else None
    logits = checked_logits(logits)
    sets = torch.cat([class_scores(part, method) <= threshold for (part,) in chunks(logits)])
    return sets.scatter_(1, logits.argmax(1, keepdim=True), True).to(device)


def label_scores(logits: ArrayLike, labels: ArrayLike, method: Method = "lac") -> Tensor:
    """The score of each sample's own class, float64 of shape `(samples,)`: covered where it is at most a threshold."""
    logits, labels = checked_samples(logits, labels)
    parts = [class_scores(part, method).gather(1, own[:, None])[:, 0] for part, own in chunks(logits, labels)]
    return torch.cat(parts)


def threshold_of_scores(scores: Tensor, coverage: float) -> float:
    """The ceil((n + 1) coverage)-th smallest of n scores of held-out samples' own classes."""
    check_number("coverage", coverage, 0, 1)
    # 0.95 as 19/20: in floating point, (n + 1) * 0.95 may lie just above a whole number, and be rounded up by one.
    exact, n = Fraction(str(float(coverage))), len(scores)
    rank, needed = math.ceil((n + 1) * exact), math.ceil(exact / (1 - exact))
    if n < needed:
        raise ValueError(f"{n} held-out samples are too few for a coverage of {coverage}: it takes at least {needed}.")
    return scores.kthvalue(rank).values.item()


def class_scores(logits: Tensor, method: Method) -> Tensor:
    """The score of every class, from logits in float64 (in float32, many scores of RAPS are equal)."""
    probabilities = logits.softmax(1)
    if method == "lac":
        return 1 - probabilities
    if method != "raps":
        raise ValueError(f"there is no method {method!r}: choose one of {', '.join(get_args(Method))}.")
    # Stable, so that of equally probable classes the first is taken for the most probable, as argmax does.
    ordered, classes = probabilities.sort(dim=1, descending=True, stable=True)
    rank = torch.arange(1, logits.shape[1] + 1, dtype=logits.dtype, device=logits.device)
    scores = ordered.cumsum(1) - ordered / 2 + RAPS_LAMBDA * (rank - RAPS_K_REG).clamp(min=0)
    return torch.empty_like(scores).scatter_(1, classes, scores)
