"""Logits, margins and local sensitivity of a classifier f on labelled images: what the study compares methods by.

With noise e ~ N(0, sigma^2 I), per image x of label y:

    margin         f_y(x) - max_{j != y} f_j(x)
    sensitivity    E ||f(x + e) - f(x)||_inf / ||e||_2
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..objective.losses import logit_margin
from ..randomness import mix_seed
from ..report.report import MarginAnalysis


@torch.no_grad()
def analyze_margins(
    forward: Callable[[Tensor], Tensor],
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    sigma: float = 0.1,
    num_draws: int = 10,
) -> MarginAnalysis:
    """
    Logit statistics, margins and local sensitivity over a stream of batches, in `1 + num_draws` forwards of each.

    The noise of an image depends on its position in the stream and the draw, so the size of the batches does not
    matter. Only sums are kept.

    Args:
        forward (`Callable[[Tensor], Tensor]`): Normalised images to logits of shape `(batch, classes)`, in evaluation
            mode.
        batches (`Iterable[tuple[Tensor, Tensor]]`): Normalised images `(batch, channels, height, width)`, and labels
            `(batch,)`, always in the same order.
        sigma (`float`, *optional*, defaults to 0.1): Standard deviation of the noise, in the units the network sees.
        num_draws (`int`, *optional*, defaults to 10): Noise samples per image.
    """
    count, totals = 0, torch.zeros(4, dtype=torch.float64)
    for images, labels in batches:
        clean, sensitivity = forward(images).cpu().double(), 0.0
        for draw in range(num_draws):
            perturbed, distance = _perturbed(images, count, sigma, draw)
            sensitivity += (forward(perturbed).cpu().double() - clean).abs().amax(1) / distance
        rows = [clean.norm(dim=1), clean.amax(1), logit_margin(clean, labels.cpu()), sensitivity / num_draws]
        totals += torch.stack(rows).sum(1)
        count += len(labels)
    logit_norm, max_logit, margin, sensitivity = (totals / count).tolist()
    return MarginAnalysis(
        num_samples=count,
        logit_norm=logit_norm,
        max_logit=max_logit,
        margin=margin,
        logit_sensitivity=sensitivity,
        margin_to_sensitivity=margin / sensitivity if sensitivity > 0 else None,
        sigma=sigma,
        num_draws=num_draws,
        space="normalized",
    )


def _perturbed(images: Tensor, first_index: int, sigma: float, draw: int) -> tuple[Tensor, Tensor]:
    """The images with their noise, and how far each one moved."""
    # Drawn on the CPU, one generator per image: the same noise on any device and in any batch.
    keys = (mix_seed(0, first_index + place, draw) for place in range(len(images)))
    draws = [torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(key)) for key in keys]
    perturbed = images + sigma * torch.stack(draws).to(images)
    return perturbed, (perturbed - images).flatten(1).norm(dim=1).cpu().double()
