"""The training objective as data: every method of the paper is one point in the space of these weights.

    loss = CE + lambda_margin * mean(max(0, margin - gap)^2) + lambda_consistency * mean KL(p(x) || p(T(x)))
              + lambda_jsd * JSD(x, AugMix(x), AugMix(x)) + lambda_mbls * mean(max(0, top logit - logit - mbls_margin))

with `gap` the logit of the label minus the largest other logit, and `T` a mild perturbation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Literal, get_args


Perturbation = Literal["noise", "blur", "noise+blur", "jpeg", "geometric"]
PerturbationSpace = Literal["normalized", "pixel"]
PERTURBATIONS, PERTURBATION_SPACES = get_args(Perturbation), get_args(PerturbationSpace)
NOT_NEGATIVE = (
    *("lambda_margin", "lambda_consistency", "lambda_jsd", "lambda_mbls", "focal_gamma", "mixup_alpha"),
    *("noise_std", "rotation_degrees", "translation_pixels"),
)


@dataclass
class Objective:
    """
    Weights and settings of the MaCS objective and of the baselines it is compared with.

    The defaults are those of the paper: full MaCS with Gaussian noise and blur as the perturbation.

    Args:
        lambda_margin (`float`, *optional*, defaults to `0.1`):
            Weight of the squared hinge on the logit margin; `0` turns it off.
        margin (`float`, *optional*, defaults to `1.0`):
            The gap between the label's logit and the runner-up that the hinge asks for.
        lambda_consistency (`float`, *optional*, defaults to `0.5`):
            Weight of KL(p(x) || p(T(x))); `0` turns it off, and with it the second view.
        consistency_fraction (`float`, *optional*, defaults to `1.0`):
            Share of each batch whose perturbed view is computed: an unbiased estimate of the same term, at a share of
            its cost. The paper uses all.
        separate_views (`bool`, *optional*, defaults to `False`):
            Run the perturbed view in a forward pass of its own, as Algorithm 1 is written, instead of one joint pass.
            They differ only for layers that look across the batch (BatchNorm).
        perturbation (`str`, *optional*, defaults to `"noise+blur"`):
            T: `noise`, `blur`, `noise+blur`, `jpeg` or `geometric`.
        perturbation_space (`str`, *optional*, defaults to `"normalized"`):
            Where noise and blur act: on `normalized` network inputs, as in Algorithm 1, or on `pixel` values in [0, 1]
            (clamped to valid pixels; much stronger noise).
        noise_std (`float`, *optional*, defaults to `0.1`):
            Standard deviation of the noise, in units of the perturbation space.
        blur_sigma_min (`float`, *optional*, defaults to `0.1`):
            Smallest standard deviation of the 3x3 Gaussian blur, in pixels; drawn uniformly per sample.
        blur_sigma_max (`float`, *optional*, defaults to `2.0`):
            Largest standard deviation of the 3x3 Gaussian blur, in pixels.
        jpeg_quality_min (`int`, *optional*, defaults to `50`):
            Lowest JPEG quality; drawn uniformly per sample.
        jpeg_quality_max (`int`, *optional*, defaults to `95`):
            Highest JPEG quality.
        rotation_degrees (`float`, *optional*, defaults to `5.0`):
            Largest rotation of `geometric`, either way.
        translation_pixels (`float`, *optional*, defaults to `2.0`):
            Largest shift of `geometric` along each axis, either way.
        two_view_cross_entropy (`bool`, *optional*, defaults to `False`):
            Cross-entropy is the mean of that on x and that on T(x): the control with the same forward passes as the
            consistency term. `consistency_fraction` sets its share of perturbed views too.
        perturbed_share (`float`, *optional*, defaults to `0.5`):
            Weight of T(x) in that mean. With a `consistency_fraction` f, f / (1 + f) gives every image the same
            weight, as if the perturbed ones were appended to the batch.
        perturb_as_augmentation (`bool`, *optional*, defaults to `False`):
            Train on T(x) in place of x: the perturbation as plain augmentation. Needs `lambda_consistency=0`.
        focal_gamma (`float`, *optional*, defaults to `0.0`):
            Focusing parameter: cross-entropy is weighted by (1 - p_label)^gamma. `0` is plain cross-entropy.
        label_smoothing_factor (`float`, *optional*, defaults to `0.0`):
            Label smoothing of the cross-entropy term, as in `TrainingArguments`.
        mixup_alpha (`float`, *optional*, defaults to `0.0`):
            Parameter of MixUp's Beta distribution; `0` turns MixUp off.
        lambda_jsd (`float`, *optional*, defaults to `0.0`):
            Weight of the Jensen-Shannon divergence between an image and its two AugMix views, which the batch must
            carry as `augmix_pixel_values`; the AugMix paper uses 12.
        lambda_mbls (`float`, *optional*, defaults to `0.0`):
            Weight of margin-based label smoothing, which caps logit gaps; its paper uses 0.1.
        mbls_margin (`float`, *optional*, defaults to `10.0`):
            The logit gap beyond which margin-based label smoothing penalises.
    """

    lambda_margin: float = field(default=0.1, metadata={"help": "Weight of the squared hinge on the logit margin."})
    margin: float = field(default=1.0, metadata={"help": "Logit gap that the margin term asks for."})
    lambda_consistency: float = field(
        default=0.5, metadata={"help": "Weight of KL(p(x) || p(T(x))); 0 also saves the second view."}
    )
    consistency_fraction: float = field(
        default=1.0, metadata={"help": "Share of each batch, in (0, 1], whose perturbed view is computed."}
    )
    separate_views: bool = field(
        default=False, metadata={"help": "Two forward passes, as Algorithm 1 is written, instead of one joint pass."}
    )
    perturbation: Perturbation = field(default="noise+blur", metadata={"help": "The perturbation T."})
    perturbation_space: PerturbationSpace = field(
        default="normalized", metadata={"help": "Where noise and blur act: network inputs, or pixels in [0, 1]."}
    )
    noise_std: float = field(default=0.1, metadata={"help": "Noise level in units of the perturbation space."})
    blur_sigma_min: float = field(default=0.1, metadata={"help": "Smallest sigma of the 3x3 blur, in pixels."})
    blur_sigma_max: float = field(default=2.0, metadata={"help": "Largest sigma of the 3x3 blur, in pixels."})
    jpeg_quality_min: int = field(default=50, metadata={"help": "Lowest JPEG quality."})
    jpeg_quality_max: int = field(default=95, metadata={"help": "Highest JPEG quality."})
    rotation_degrees: float = field(default=5.0, metadata={"help": "Largest rotation of `geometric`, either way."})
    translation_pixels: float = field(default=2.0, metadata={"help": "Largest shift of `geometric`, either way."})
    two_view_cross_entropy: bool = field(
        default=False, metadata={"help": "Cross-entropy on x and on T(x), their mean."}
    )
    perturbed_share: float = field(
        default=0.5, metadata={"help": "Weight of T(x) in the mean of two_view_cross_entropy."}
    )
    perturb_as_augmentation: bool = field(
        default=False, metadata={"help": "Train on T(x) in place of x; needs lambda_consistency 0."}
    )
    focal_gamma: float = field(default=0.0, metadata={"help": "Focal loss parameter; 0 is plain cross-entropy."})
    label_smoothing_factor: float = field(default=0.0, metadata={"help": "Label smoothing of cross-entropy."})
    mixup_alpha: float = field(default=0.0, metadata={"help": "MixUp's Beta parameter; 0 turns MixUp off."})
    lambda_jsd: float = field(
        default=0.0, metadata={"help": "Weight of the Jensen-Shannon divergence over AugMix views (AugMix: 12)."}
    )
    lambda_mbls: float = field(
        default=0.0, metadata={"help": "Weight of margin-based label smoothing (its paper: 0.1)."}
    )
    mbls_margin: float = field(default=10.0, metadata={"help": "Logit gap that margin-based label smoothing allows."})

    def __post_init__(self) -> None:
        validate(self)

    @property
    def uses_second_view(self) -> bool:
        """Whether the network also sees T(x), beside x."""
        return self.lambda_consistency > 0 or self.two_view_cross_entropy

    @property
    def uses_perturbation(self) -> bool:
        return self.perturb_as_augmentation or self.uses_second_view

    @property
    def needs_pixel_stats(self) -> bool:
        """Whether T has to leave the network's input space."""
        through_pixels = self.perturbation == "jpeg" or (
            self.perturbation_space == "pixel" and self.perturbation != "geometric"
        )
        return self.uses_perturbation and through_pixels


def objective_of(arguments: object) -> Objective:
    """The objective that `arguments` describe; what they do not say (plain `TrainingArguments`) is the paper's."""
    if arguments is None or isinstance(arguments, Mapping):
        raise TypeError(f"{arguments!r} has no attributes to read weights from. Write Objective(**weights).")
    known = {f.name: getattr(arguments, f.name) for f in fields(Objective) if hasattr(arguments, f.name)}
    return Objective(**known)


def validate(objective: Objective) -> None:
    """Raise a `ValueError` naming field, value and fix for values and combinations that make no sense."""
    for f in fields(Objective):
        value = getattr(objective, f.name)
        if f.type in (float, int) and not isinstance(value, Real):
            raise TypeError(f"{f.name}={value!r} must be a number.")
    for name in NOT_NEGATIVE:
        _require(objective, name, 0 <= getattr(objective, name) < float("inf"), "must be a finite number >= 0")
    for name in ("margin", "mbls_margin"):
        _require(objective, name, 0 < getattr(objective, name) < float("inf"), "must be a finite number > 0")
    _require(objective, "consistency_fraction", 0 < objective.consistency_fraction <= 1, "must lie in (0, 1]")
    _require(objective, "perturbed_share", 0 < objective.perturbed_share < 1, "must lie in (0, 1)")
    _require(objective, "label_smoothing_factor", 0 <= objective.label_smoothing_factor < 1, "must lie in [0, 1)")
    _require(objective, "perturbation", objective.perturbation in PERTURBATIONS, f"must be one of {PERTURBATIONS}")
    _require(
        objective,
        "perturbation_space",
        objective.perturbation_space in PERTURBATION_SPACES,
        f"must be one of {PERTURBATION_SPACES}",
    )
    _require(
        objective,
        "blur_sigma_min",
        0 < objective.blur_sigma_min <= objective.blur_sigma_max < float("inf"),
        f"must satisfy 0 < blur_sigma_min <= blur_sigma_max={objective.blur_sigma_max}",
    )
    _require(
        objective,
        "jpeg_quality_min",
        1 <= objective.jpeg_quality_min <= objective.jpeg_quality_max <= 100,
        f"must satisfy 1 <= jpeg_quality_min <= jpeg_quality_max={objective.jpeg_quality_max} <= 100",
    )
    if objective.mixup_alpha > 0 and objective.lambda_margin > 0:
        raise ValueError(
            f"mixup_alpha={objective.mixup_alpha} with lambda_margin={objective.lambda_margin}: a mixed-up image has "
            "no single label, so it has no logit margin. Set lambda_margin=0 or mixup_alpha=0."
        )
    if objective.mixup_alpha > 0 and objective.lambda_jsd > 0:
        raise ValueError(
            f"mixup_alpha={objective.mixup_alpha} with lambda_jsd={objective.lambda_jsd}: the AugMix views show one "
            "image, the mixed-up view two, so they should not agree. Set one of them to 0."
        )
    if objective.focal_gamma > 0 and (objective.mixup_alpha > 0 or objective.label_smoothing_factor > 0):
        raise ValueError(
            f"focal_gamma={objective.focal_gamma} with mixup_alpha={objective.mixup_alpha}, "
            f"label_smoothing_factor={objective.label_smoothing_factor}: the focal weight is defined by the "
            "probability of one label, and soft labels have several. Set focal_gamma=0, or the other two to 0."
        )
    if objective.perturb_as_augmentation and objective.uses_second_view:
        raise ValueError(
            f"perturb_as_augmentation=True with lambda_consistency={objective.lambda_consistency}, "
            f"two_view_cross_entropy={objective.two_view_cross_entropy}: no clean view is left to set beside "
            "the perturbed one. Set lambda_consistency=0 and two_view_cross_entropy=False (method `perturb_augment`)."
        )


def _require(objective: Objective, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name}={getattr(objective, name)!r} {rule}.")
