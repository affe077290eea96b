"""Margin and Consistency Supervision of one batch: make the views, run them in one forward pass, compare.

This is what [`MaCSTrainer`] calls at each step, and all that a training loop of your own needs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..pixels import PixelStats
from ..randomness import cpu_rng_seeded, mix_seed
from .losses import MaCSLoss, macs_loss
from .objective import Objective
from .perturbations import OwnPerturbation, perturb


def supervise(
    forward: Callable[[Tensor], Any],
    images: Tensor,
    labels: Tensor,
    objective: Objective,
    *,
    pixel_stats: PixelStats | None = None,
    augmix_images: Tensor | None = None,
    num_labels: int | None = None,
    perturbation: OwnPerturbation | None = None,
    cross_entropy: Callable[[Tensor, Tensor], Tensor] | None = None,
    seed: int | None = None,
) -> MaCSLoss:
    """
    The loss of one batch under `objective`, ready for `backward`.

    Args:
        forward (`Callable`): The model, or a function of images; returns logits, or an output that has `.logits`.
        images (`Tensor` of shape `(batch, channels, height, width)`): Normalised.
        labels (`Tensor` of shape `(batch,)`, or `(batch, classes)` for soft labels).
        objective ([`Objective`]): What to optimise, for example `Objective(**METHODS["macs"])`.
        pixel_stats ([`PixelStats`], *optional*): Needed where the perturbation acts on pixels.
        augmix_images (`Tensor` of shape `(batch, views, channels, height, width)`, *optional*): Needed for AugMix.
        num_labels (`int`, *optional*): Needed for MixUp.
        perturbation (`Callable`, *optional*): T, in place of the objective's own: a function of pixels in [0, 1] and
            a `torch.Generator`, the only place to draw from, that returns pixels. Needs `pixel_stats`.
        cross_entropy (`Callable`, *optional*): A loss of logits and labels in place of the cross-entropy term.
        seed (`int`, *optional*): Fixes all draws; by default it is drawn from torch's global CPU generator.
    """
    if not isinstance(objective, Objective):
        raise TypeError(f"`objective` must be an Objective, such as Objective(**METHODS['macs']), got {objective!r}.")
    if seed is None and (objective.uses_perturbation or objective.mixup_alpha > 0):
        seed = int(torch.randint(2**62, ()))
    if objective.mixup_alpha > 0:
        images, labels = _mix_up(images, labels, objective.mixup_alpha, num_labels, seed)
    generator = torch.Generator(images.device).manual_seed(seed) if objective.uses_perturbation else None

    def perturbed(share: float) -> tuple[Tensor | None, Tensor]:
        """Which rows were drawn, and T of them."""
        rows = _random_rows(len(images), share, generator)
        chosen = images if rows is None else images[rows]
        return rows, perturb(chosen, objective, pixel_stats, generator, perturbation)

    if objective.perturb_as_augmentation:
        rows, view = perturbed(objective.augment_fraction)
        images = view if rows is None else images.index_copy(0, rows, view)
    views, rows = [images], None
    if objective.uses_second_view:
        rows, view = perturbed(objective.consistency_fraction)
        views.append(view)
    if objective.lambda_jsd > 0:
        if augmix_images is None:
            raise ValueError(
                f"lambda_jsd={objective.lambda_jsd} compares each image with its AugMix views, but the batch has "
                "none. Put them in the batch as `augmix_pixel_values` of shape (batch, 2, channels, height, width); "
                "macs_hf.data.TrainTransform(processor, augmix=True) makes them."
            )
        views.extend(augmix_images.unbind(1))

    logits = _logits_of_views(forward, views, separate=objective.separate_views)
    second, augmix = (logits[1], logits[2:]) if objective.uses_second_view else (None, logits[1:])
    return macs_loss(
        logits[0],
        labels,
        second,
        objective=objective,
        perturbed_rows=rows,
        augmix_logits=augmix,
        cross_entropy=cross_entropy,
    )


def _logits_of_views(forward: Callable[[Tensor], Any], views: list[Tensor], separate: bool) -> list[Tensor]:
    if separate or len(views) == 1:
        return [logits_of(forward(view)) for view in views]
    # One pass: one BatchNorm update over all views, and one forward of a DistributedDataParallel module per backward.
    return list(logits_of(forward(torch.cat(views))).split([len(view) for view in views]))


def logits_of(output: Any) -> Tensor:
    """The logits in what a model returned: these alone, or an output that has `.logits`."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"The model returned {type(output).__name__!r}, neither a tensor of logits nor an output with a tensor "
            "`.logits`. Let it return one, such as transformers.modeling_outputs.ImageClassifierOutput(logits=...); a "
            "transformers model does so with return_dict=True."
        )
    return logits


def _random_rows(size: int, fraction: float, generator: torch.Generator) -> Tensor | None:
    """A random `fraction` of the batch, at least one row; `None` stands for all of it, in order."""
    if fraction == 1:
        return None
    count = max(1, round(size * fraction))
    return torch.randperm(size, device=generator.device, generator=generator)[:count]


def _mix_up(images: Tensor, labels: Tensor, alpha: float, num_labels: int | None, seed: int) -> tuple[Tensor, Tensor]:
    if num_labels is None:
        raise ValueError(f"mixup_alpha={alpha} turns labels into class probabilities; pass `num_labels`.")
    from torchvision.transforms import v2  # takes a second to import, and only MixUp needs it

    # It draws from the global CPU generator; the perturbation starts from `seed` itself.
    with cpu_rng_seeded(mix_seed(seed, 1)):
        return v2.MixUp(alpha=alpha, num_classes=num_labels)(images, labels)
