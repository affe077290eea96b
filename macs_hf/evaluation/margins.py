"""Margins, logit statistics and local sensitivity of a classifier f on labelled images.

With noise e ~ N(0, sigma^2 I) and p = softmax(f), per image x of label y:

    margin           gamma(x) = f_y(x) - max_{j != y} f_j(x)
    sensitivity      L(x) = E ||f(x + e) - f(x)|| / ||e||_2, the numerator in the maximum norm or in L2
    of probabilities S(x) = E ||p(x + e) - p(x)||_1, bounded by E sqrt(2 KL(p(x) || p(x + e))) (Pinsker)
    radius           min(r, gamma(x) / L_g), or min(r, gamma(x) / (2 L_f)), where L_g bounds the change of every
                     f_y - f_j, and L_f that of every logit, over the distance, up to the distance r

The radius would be a certificate if L_g were a true bound. Here the constants are the largest values met among a few
random draws, and r the longest of them: an *estimate*, which an adversary can undercut.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from ..objective.losses import logit_margin
from ..randomness import mix_seed
from ..report.report import MarginAnalysis


# What is measured of each image: from its logits, then what `_local_sensitivity` gives.
MEANS = ("logit_norm", "max_logit", "margin", "logit_sensitivity", "logit_sensitivity_l2", "probability_sensitivity")
MEANS += ("consistency", "radius_estimate", "radius_estimate_lipschitz")
MARGIN_THRESHOLD = 1.0


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
    count, above, totals = 0, 0, torch.zeros(len(MEANS), dtype=torch.float64)
    for images, labels in batches:
        labels = labels.cpu()
        clean = forward(images).cpu().double()
        margins = logit_margin(clean, labels)
        perturbed = (_perturbed(images, count, sigma, draw) for draw in range(num_draws))
        moved = ((forward(inputs).cpu().double(), distance) for inputs, distance in perturbed)
        rows = [clean.norm(dim=1), clean.amax(1), margins, *_local_sensitivity(clean, labels, margins, moved)]
        totals += torch.stack(rows).sum(1)
        above += int((margins > MARGIN_THRESHOLD).sum())
        count += len(labels)
    means = dict(zip(MEANS, (totals / count).tolist(), strict=True))
    sensitivity = means["logit_sensitivity"]
    return MarginAnalysis(
        **means,
        num_samples=count,
        margin_threshold=MARGIN_THRESHOLD,
        margin_share=above / count,
        margin_to_sensitivity=means["margin"] / sensitivity if sensitivity > 0 else None,
        sigma=sigma,
        num_draws=num_draws,
        space="normalized",
    )


def spectral_complexity(model: nn.Module) -> float | None:
    """
    log10 of the spectral complexity `prod ||W||_2 * (sum (||W||_F / ||W||_2)^(2/3))^(3/2)` over the layers of `model`.

    A heuristic for comparing models of one architecture, not a bound for it: it takes the weights of Linear and
    convolution layers as matrices (outputs by the rest; block-diagonal if grouped), and leaves out everything else,
    such as normalisation, attention and shortcuts. `None` if a layer is all zero, for which it has no logarithm.
    """
    log_norms, ratios = [], []
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            blocks = module.weight.detach().cpu().double()
            groups = 1 if isinstance(module, nn.Linear) else module.groups
            blocks = blocks.reshape(groups, blocks.shape[0] // groups, -1)
            if blocks.shape[1] > blocks.shape[2]:
                blocks = blocks.mT
            # The largest singular value from the smaller Gram matrix, many times faster than an SVD.
            spectral = torch.linalg.eigvalsh(blocks @ blocks.mT).amax().clamp_min(0).sqrt().item()
            if spectral == 0:
                return None
            log_norms.append(math.log10(spectral))
            ratios.append((blocks.norm().item() / spectral) ** (2 / 3))
    if not ratios:
        raise ValueError(f"{type(model).__name__} has no Linear or convolution layer.")
    return sum(log_norms) + 1.5 * math.log10(sum(ratios))


def _local_sensitivity(
    clean: Tensor, labels: Tensor, margins: Tensor, moved: Iterable[tuple[Tensor, Tensor]]
) -> tuple[Tensor, ...]:
    """Per image, from logits at some distance: sensitivity of logits (maximum norm, L2), that of probabilities, KL,
    and the two radii."""
    log_p, means = clean.log_softmax(1), []
    gap_constant, logit_constant, reach = torch.zeros(3, len(labels), dtype=torch.float64)
    for logits, distance in moved:
        change, log_q = logits - clean, logits.log_softmax(1)
        linf, l2 = change.abs().amax(1) / distance, change.norm(dim=1) / distance
        divergence = (log_p.exp() * (log_p - log_q)).sum(1).clamp_min(0)  # rounding can leave -1e-17
        means.append(torch.stack([linf, l2, (log_p.exp() - log_q.exp()).abs().sum(1), divergence]))
        gap_change = (change.gather(1, labels[:, None]) - change).abs().amax(1)
        gap_constant = gap_constant.maximum(gap_change / distance)
        logit_constant = logit_constant.maximum(linf)
        reach = reach.maximum(distance)
    radii = (
        torch.where(margins > 0, reach.minimum(margins / constant), 0.0)
        for constant in (gap_constant, 2 * logit_constant)
    )
    return *(sum(means) / len(means)), *radii


def _perturbed(images: Tensor, first_index: int, sigma: float, draw: int) -> tuple[Tensor, Tensor]:
    """The images with their noise, and how far each one moved."""
    # Drawn on the CPU, one generator per image: the same noise on any device and in any batch.
    keys = (mix_seed(0, first_index + place, draw) for place in range(len(images)))
    draws = [torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(key)) for key in keys]
    perturbed = images + sigma * torch.stack(draws).to(images)
    return perturbed, (perturbed - images).flatten(1).norm(dim=1).cpu().double()
