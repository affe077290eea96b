"""The training objective as data: every method of the paper is one point in the space of these weights.

    loss = CE + lambda_margin * mean(max(0, margin - gap)^2) + lambda_consistency * mean KL(p(x) || p(T(x)))
              + lambda_jsd * JSD(x, AugMix(x), AugMix(x)) + lambda_mbls * mean(max(0, top logit - logit - mbls_margin))

with `gap` the logit of the label minus the largest other logit, and `T` a mild perturbation.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, Literal, NoReturn, get_args

from ..exceptions import ArgumentError


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
        augment_fraction (`float`, *optional*, defaults to `1.0`):
            Share of each batch that `perturb_as_augmentation` perturbs; the other images stay as they are.
        class_weights (`"balanced"` or sequence of `float`, *optional*):
            One weight per class for the cross-entropy and margin terms, scaled to a mean of 1 over the training set;
            `"balanced"` weighs each class by one over its number of images. The trainer knows that number; elsewhere
            pass the weights themselves.
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
    augment_fraction: float = field(
        default=1.0, metadata={"help": "Share of each batch, in (0, 1], that perturb_as_augmentation perturbs."}
    )
    class_weights: str | Sequence[float] | None = field(
        default=None,
        metadata={"help": "`balanced`, or a weight per class between commas, for cross-entropy and margin."},
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


# What each part of an objective adds to it, with its weight, the perturbation, and the share of images that get it.
TERMS = {
    "label_smoothing_factor": "label smoothing {0:g}",
    "mixup_alpha": "MixUp with alpha {0:g}",
    "perturb_as_augmentation": "on images with {T}{augmented}",
    "two_view_cross_entropy": "also on images with {T}{share}",
    "lambda_margin": "{0:g} x margin",
    "lambda_consistency": "{0:g} x consistency ({T}{share})",
    "lambda_jsd": "{0:g} x AugMix divergence",
    "lambda_mbls": "{0:g} x margin-based smoothing",
}
# Measured: a perturbed view costs 0.9 of a training step without one, since no data has to be loaded for it.
COST_OF_VIEW = 0.9


def describe(objective: Objective, perturbation: str | None = None) -> str:
    """
    What is minimised, in a line: the terms with their weights, the perturbation and its share of the images.

    Args:
        objective ([`Objective`]): The weights.
        perturbation (`str`, *optional*): The name of a perturbation of the user's own.

    ```python
    >>> describe(Objective(**METHODS["recommended"]))
    'cross-entropy + 0.5 x consistency (noise+blur of pixels, on 25% of the images)'

    ```
    """
    first = f"focal loss with gamma {objective.focal_gamma:g}" if objective.focal_gamma else "cross-entropy"
    if objective.class_weights is not None:
        first += " with class weights"
    space = " of pixels" if objective.perturbation_space == "pixel" else ""
    shares = {"share": objective.consistency_fraction, "augmented": objective.augment_fraction}
    names = {name: "" if share == 1 else f", on {share:.0%} of the images" for name, share in shares.items()}
    names["T"] = perturbation or f"{objective.perturbation}{space}"
    used = {name: text for name, text in TERMS.items() if getattr(objective, name)}
    return " + ".join([first, *(text.format(getattr(objective, name), **names) for name, text in used.items())])


def expected_cost(objective: Objective) -> float:
    """About how long a training step takes, as a multiple of that with cross-entropy alone."""
    views = objective.consistency_fraction * objective.uses_second_view + 2 * (objective.lambda_jsd > 0)
    return 1 + COST_OF_VIEW * views


def objective_of(arguments: object) -> Objective:
    """
    The objective that `arguments` describe; what they do not say (plain `TrainingArguments`) is that of the default
    method, `METHODS["recommended"]`.
    """
    if arguments is None or isinstance(arguments, Mapping):
        raise TypeError(f"{arguments!r} has no attributes to read weights from. Write Objective(**weights).")
    said = {f.name: getattr(arguments, f.name, None) for f in fields(Objective)}
    return Objective(**METHODS[DEFAULT_METHOD] | {name: value for name, value in said.items() if value is not None})


def validate(objective: Objective) -> None:
    """Raise a `ValueError` naming field, value and fix for values and combinations that make no sense."""
    objective.class_weights = check_class_weights(objective.class_weights)
    for f in fields(Objective):
        value = getattr(objective, f.name)
        if f.type in (float, int) and not isinstance(value, Real):
            raise TypeError(f"{f.name}={value!r} must be a number.")
    for name in NOT_NEGATIVE:
        _require(objective, name, 0 <= getattr(objective, name) < float("inf"), "must be a finite number >= 0")
    for name in ("margin", "mbls_margin"):
        _require(objective, name, 0 < getattr(objective, name) < float("inf"), "must be a finite number > 0")
    _require(objective, "consistency_fraction", 0 < objective.consistency_fraction <= 1, "must lie in (0, 1]")
    _require(objective, "augment_fraction", 0 < objective.augment_fraction <= 1, "must lie in (0, 1]")
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
        raise ArgumentError(
            "mixup_alpha",
            f"with lambda_margin={objective.lambda_margin}: a mixed-up image has "
            "no single label, so it has no logit margin. Set lambda_margin=0 or mixup_alpha=0.",
            objective.mixup_alpha,
        )
    if objective.mixup_alpha > 0 and objective.lambda_jsd > 0:
        raise ArgumentError(
            "mixup_alpha",
            f"with lambda_jsd={objective.lambda_jsd}: the AugMix views show one "
            "image, the mixed-up view two, so they should not agree. Set one of them to 0.",
            objective.mixup_alpha,
        )
    if objective.focal_gamma > 0 and (objective.mixup_alpha > 0 or objective.label_smoothing_factor > 0):
        raise ArgumentError(
            "focal_gamma",
            f"with mixup_alpha={objective.mixup_alpha}, "
            f"label_smoothing_factor={objective.label_smoothing_factor}: the focal weight is defined by the "
            "probability of one label, and soft labels have several. Set focal_gamma=0, or the other two to 0.",
            objective.focal_gamma,
        )
    if objective.perturb_as_augmentation and objective.uses_second_view:
        raise ArgumentError(
            "perturb_as_augmentation",
            f"with lambda_consistency={objective.lambda_consistency}, "
            f"two_view_cross_entropy={objective.two_view_cross_entropy}: no clean view is left to set beside "
            "the perturbed one. Set lambda_consistency=0 and two_view_cross_entropy=False (method `perturb_augment`).",
            True,
        )


def check_class_weights(weights: object) -> str | tuple[float, ...] | None:
    """
    Class weights as an objective holds them: `"balanced"`, a number per class, or `None`.

    Raises:
        `ValueError`: If they are something else, negative, not finite, or all zero.
    """
    if weights is None or weights == "balanced":
        return weights
    try:
        values = tuple(float(part) for part in (weights.split(",") if isinstance(weights, str) else weights))
    except (TypeError, ValueError):
        raise ArgumentError(
            "class_weights", "must be 'balanced' or a number per class, such as 1,2.5.", weights
        ) from None
    if not values or not all(0 <= value < float("inf") for value in values) or not any(values):
        raise ArgumentError("class_weights", "must be finite numbers >= 0, one per class, and not all zero.", weights)
    return values


def _require(objective: Objective, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise ArgumentError(name, f"{rule}.", getattr(objective, name))


# ---- Methods ----
# The methods by name: what each sets of an [`Objective`], whose own defaults are the paper's.


class Methods(dict[str, dict[str, Any]]):
    """A dictionary that says which method was probably meant, where it has none of that name."""

    def __missing__(self, name: object) -> NoReturn:
        raise KeyError(str(unknown_method(name)))


def unknown_method(name: object) -> ArgumentError:
    """What to raise for a name that no method has."""
    similar = difflib.get_close_matches(str(name), METHODS, n=1)
    meant = f" Did you mean {similar[0]!r}?" if similar else ""
    return ArgumentError("method", f"is not one of {', '.join(METHODS)}.{meant}", name)


# Every method spells out all that another one changes, so that it is the same whatever the defaults around it are.
PAPER = {
    "lambda_margin": 0.1,
    "margin": 1.0,
    "lambda_consistency": 0.5,
    "consistency_fraction": 1.0,
    "perturbation": "noise+blur",
    "perturbation_space": "normalized",
    "noise_std": 0.1,
}
PLAIN = PAPER | {"lambda_margin": 0.0, "lambda_consistency": 0.0}
AUGMIX = {"lambda_jsd": 12.0}

# `macs` is the paper to the letter, and stays so. `recommended` is its consistency term alone, with noise in units of
# pixels, on a quarter of each batch. A rule that was fixed before fresh seeds were run decided about the margin term:
# with it, calibration as trained was better, but NLL under corruption was worse than the rule allows (docs/study.md).
METHODS = Methods(
    {
        "ce": PLAIN,
        "label_smoothing": PLAIN | {"label_smoothing_factor": 0.1},
        "focal": PLAIN | {"focal_gamma": 2.0},
        "mixup": PLAIN | {"mixup_alpha": 0.2},
        "augmix": PLAIN | AUGMIX,
        "mbls": PLAIN | {"lambda_mbls": 0.1, "mbls_margin": 10.0},
        "perturb_augment": PLAIN | {"perturb_as_augmentation": True, "augment_fraction": 1.0},
        "two_view_ce": PLAIN | {"two_view_cross_entropy": True, "perturbed_share": 0.5},
        "margin_only": PAPER | {"lambda_consistency": 0.0},
        "consistency_only": PAPER | {"lambda_margin": 0.0},
        "macs": PAPER,
        "macs_pixel": PAPER | {"perturbation_space": "pixel"},
        "macs_augmix": PAPER | AUGMIX,
        "recommended": PAPER | {"lambda_margin": 0.0, "perturbation_space": "pixel", "consistency_fraction": 0.25},
    }
)
DEFAULT_METHOD = "recommended"


def settings_of(method: str) -> dict[str, Any]:
    """What a method sets; a name that no method has is a `ValueError`."""
    if method not in METHODS:
        raise unknown_method(method)
    return dict(METHODS[method])
