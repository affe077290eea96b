"""MarginAnalysis: margins, logit statistics and local sensitivity of a classifier, as numbers."""

from dataclasses import dataclass, fields
from typing import Literal

from .checks import check_count, check_range, check_share


@dataclass(frozen=True)
class MarginAnalysis:
    """
    Means over the images, misclassified ones included; `macs_hf.evaluation.margins` has the equations.

    Args:
        num_samples (`int`): Images seen.
        logit_norm (`float`): L2 norm of the logits.
        max_logit (`float`): Largest logit.
        margin (`float`): Signed margin, negative where the prediction is wrong.
        margin_threshold (`float`): The margin that `margin_share` asks for.
        margin_share (`float`): Share of images whose margin exceeds the threshold.
        logit_sensitivity (`float`): Change of the logits in the maximum norm over the L2 length of the noise.
        logit_sensitivity_l2 (`float`): The same with the change in L2.
        probability_sensitivity (`float`): L1 change of the probabilities, in [0, 2].
        consistency (`float`): KL(p(x) || p(x + e)) in nats.
        margin_to_sensitivity (`float`, *optional*): `margin / logit_sensitivity`, a ratio of means; `None` for a
            constant model, for which it has no value.
        radius_estimate (`float`): Radius of the theorem, from estimated constants; 0 where the prediction is wrong.
        radius_estimate_lipschitz (`float`): The same by the corollary, from the change of single logits: never larger.
        sigma (`float`): Standard deviation of the noise.
        num_draws (`int`): Noise samples per image.
        space (`str`): `"normalized"` or `"pixel"`, the units of sigma and of every length.
        spectral_complexity_log10 (`float`, *optional*): Of the model's weights; `None` if it was not computed, or if a
            layer is all zero.
    """

    num_samples: int
    logit_norm: float
    max_logit: float
    margin: float
    margin_threshold: float
    margin_share: float
    logit_sensitivity: float
    logit_sensitivity_l2: float
    probability_sensitivity: float
    consistency: float
    margin_to_sensitivity: float | None
    radius_estimate: float
    radius_estimate_lipschitz: float
    sigma: float
    num_draws: int
    space: Literal["normalized", "pixel"]
    spectral_complexity_log10: float | None = None

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples, at_least=1)
        check_count("num_draws", self.num_draws, at_least=1)
        check_share("margin_share", self.margin_share)
        check_range("probability_sensitivity", self.probability_sensitivity, 0, 2)
        for name in ("logit_norm", "logit_sensitivity", "logit_sensitivity_l2", "consistency", "radius_estimate"):
            check_range(name, getattr(self, name), 0)
        for field in fields(self):
            if field.name != "space":
                check_range(field.name, getattr(self, field.name))
