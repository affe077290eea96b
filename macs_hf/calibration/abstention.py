"""Answering only when sure: a threshold on the confidence that guarantees an accuracy among the answered images.

For each threshold t of a fixed list, from the highest down, an exact binomial test asks whether the n_t held-out
samples with `confidence >= t`, of which k_t are right, show that the accuracy among such images is at least a:

    p_t = P(Binomial(n_t, a) >= k_t) <= delta

The threshold is the last that passed before the first that failed (fixed-sequence testing, as in
[Learn then Test](https://huggingface.co/papers/2110.01052)). To be wrong, the procedure has to pass the first
threshold of the list whose true accuracy is below a. That place does not depend on the samples, so it happens with a
probability of at most delta, and no correction for the many tests is needed.

Two kinds of thresholds are skipped, since one unlucky sample there would end the search before it begins: those that
too few samples reach for the test to pass even if all were right (a^n_t > delta; it takes 59 samples for 0.95 and
0.05), and those that fewer than 5 % of the samples reach. Skipping looks at how many samples are answered, never at
which are right. The guarantee stays a theorem as long as no band of confidence below the first threshold with too low
an accuracy is more accurate than a: given all counts, the wrong answers at the first such threshold that is tested are
then a sum of independent draws, each wrong with a probability of at least 1 - a. Where accuracy rises again at lower
confidence, a numerical search for the worst case also stayed below delta.
"""

import logging
import math

import numpy as np
from scipy import stats

from ..metrics.scores import check_confidences
from ..report.report import AbstentionGuarantee
from .temperature import ArrayLike, check_number, on_cpu


logger = logging.getLogger(__name__)

# Close to 1, where confidences of good models crowd, by powers of ten; then in steps of 0.01 down to answering always.
THRESHOLDS = np.concatenate([1 - np.logspace(-6, -2, 20, endpoint=False), np.arange(99, -1, -1) / 100])
SMALLEST_SHARE = 0.05  # of the samples: answering fewer is not looked for


def abstention_threshold(
    confidence: ArrayLike, correct: ArrayLike, accuracy: float = 0.95, delta: float = 0.05
) -> float | None:
    """
    The lowest confidence from which on the answers of a model can be guaranteed to have an accuracy.

    With a probability of 1 - `delta` over the draw of the held-out samples, the accuracy among images of the same
    distribution with `confidence >= threshold` is at least `accuracy`.

    Args:
        confidence (`torch.Tensor`, `np.ndarray` or list of shape `(samples,)`): The highest probability of held-out
            samples that fitted nothing else: not the model, not its temperature.
        correct (`torch.Tensor`, `np.ndarray` or list of shape `(samples,)`): Whether the most probable class was the
            right one.
        accuracy (`float`, *optional*, defaults to 0.95): The wanted share of right answers.
        delta (`float`, *optional*, defaults to 0.05): The probability with which the guarantee may be broken.

    Returns:
        `float`, or `None` with the reason logged where no threshold can be guaranteed.

    Example:

    ```python
    >>> confidence = [0.995] * 200 + [0.6] * 100
    >>> correct = [True] * 200 + [True, False] * 50  # the sure half is right, the rest every other time
    >>> abstention_threshold(confidence, correct)
    0.61

    ```
    """
    found = abstention_report(confidence, correct, accuracy, delta)
    if found.threshold is None:
        logger.warning("no threshold: %s", found.reason)
    return found.threshold


def abstention_report(
    confidence: ArrayLike, correct: ArrayLike, accuracy: float = 0.95, delta: float = 0.05
) -> AbstentionGuarantee:
    """[`abstention_threshold`] with the reason where there is none."""
    check_number("accuracy", accuracy, 0, 1)
    check_number("delta", delta, 0, 1)
    confidence, correct = on_cpu(confidence).double().numpy(), on_cpu(correct).numpy()
    if confidence.size or correct.size:  # without samples nothing can be guaranteed, and the reason says so
        check_confidences(confidence, correct)
    reached = confidence >= THRESHOLDS[:, None]
    answered, right = reached.sum(1), (reached & (correct > 0)).sum(1)
    could_pass, passed = (stats.binom.sf(count - 1, answered, accuracy) <= delta for count in (answered, right))
    testable = could_pass & (answered >= SMALLEST_SHARE * len(confidence))
    failed = np.flatnonzero(testable & ~passed)
    tests = np.flatnonzero(testable[: failed[0] if len(failed) else None])
    threshold, reason = float(THRESHOLDS[tests[-1]]) if len(tests) else None, None
    needed = math.ceil(math.log(delta) / math.log(accuracy))  # answers, if all of them are right
    if threshold is None and len(failed):
        first = failed[0]
        reason = (
            f"of the {answered[first]} held-out samples with a confidence of at least {THRESHOLDS[first]:.6g}, "
            f"{answered[first] - right[first]} are wrong, too many to guarantee an accuracy of {accuracy:g}"
        )
        if needed > SMALLEST_SHARE * len(confidence) and THRESHOLDS[first] < confidence.max():
            reason += f" (no higher confidence was tested, since a test takes {needed} samples: more may help)"
    elif threshold is None:
        reason = (
            f"{len(confidence)} held-out images are too few to guarantee an accuracy of {accuracy:g} with "
            f"delta={delta:g}: it takes at least {needed}, all of them right"
        )
    return AbstentionGuarantee(accuracy, delta, len(confidence), threshold, reason)
