"""Pure tensor functions: logits and labels in, scalars out. They know nothing of models or trainers.

All terms are means over the samples of the batch, so their weights keep their meaning for any batch size, and all are
computed in float32 at least.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..exceptions import check_labels
from .objective import Objective


class MaCSLoss(NamedTuple):
    """The loss and the parts it was made of; a part that the objective does not use is `None`."""

    loss: Tensor
    cross_entropy_loss: Tensor  # with focal weights, smoothed or mixed labels where the objective asks for them
    margin_loss: Tensor | None
    consistency_loss: Tensor | None
    jensen_shannon_loss: Tensor | None
    mbls_loss: Tensor | None
    logit_margin: Tensor | None  # the mean gap, a diagnostic; None where labels are soft
    logits: Tensor  # of the view that carries the labels


def logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """
    Per sample, the label's logit minus the largest other logit: positive where the prediction is right.

    Args:
        logits (`Tensor` of shape `(batch, classes)`): At least two classes.
        labels (`Tensor` of shape `(batch,)`): Class indices.

    ```python
    >>> logit_margin(torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 5.0]]), torch.tensor([0, 1]))
    tensor([ 2., -3.])

    ```
    """
    _check_logits(logits)
    return _gaps(logits, checked_labels(labels, logits.shape[-1]))


def _gaps(logits: Tensor, labels: Tensor) -> Tensor:
    if logits.shape[-1] < 2:
        raise ValueError(f"A logit margin needs at least two classes, but logits have shape {tuple(logits.shape)}.")
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"`labels` of shape {tuple(labels.shape)} are not one for each of {len(logits)} rows of logits."
        )
    index = labels.unsqueeze(-1)
    runner_up = logits.scatter(-1, index, -torch.inf).amax(-1)
    return logits.gather(-1, index).squeeze(-1) - runner_up


def margin_loss(logits: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """Mean of max(0, margin - gap)^2: zero if and only if every label leads the runner-up by `margin`."""
    return F.relu(margin - logit_margin(_full_precision(logits), labels)).square().mean()


def consistency_loss(logits: Tensor, perturbed_logits: Tensor) -> Tensor:
    """Mean KL(p || p'), clean view first; the gradient flows through both views."""
    _check_views((logits, perturbed_logits))
    return F.kl_div(
        F.log_softmax(_full_precision(perturbed_logits), dim=-1),
        F.log_softmax(_full_precision(logits), dim=-1),
        log_target=True,
        reduction="batchmean",
    )


def focal_loss(logits: Tensor, labels: Tensor, gamma: float = 2.0) -> Tensor:
    """Mean of -(1 - p)^gamma log p, p the probability of the label ([Lin et al.](https://huggingface.co/papers/1708.02002))."""
    return _focal_losses(logits, checked_labels(labels, logits.shape[-1]), gamma).mean()


def _focal_losses(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    log_p = F.log_softmax(_full_precision(logits), dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    # 1 - p without cancellation; kept off zero, where the power has no finite slope for gamma < 1.
    miss = (-torch.expm1(log_p)).clamp_min(torch.finfo(log_p.dtype).tiny)
    return -(miss**gamma * log_p)


def mbls_penalty(logits: Tensor, margin: float = 10.0) -> Tensor:
    """
    Mean over samples and classes of max(0, largest logit - logit - margin): margin-based label smoothing
    ([Liu et al.](https://huggingface.co/papers/2111.15430)), which caps logit gaps where MaCS asks for one.
    """
    logits = _full_precision(logits)
    return F.relu(logits.amax(-1, keepdim=True) - logits - margin).mean()


def jensen_shannon(views: Sequence[Tensor]) -> Tensor:
    """Mean Jensen-Shannon divergence between the predictions of several views, in [0, log(number of views)]."""
    _check_views(views)
    log_p = torch.stack([F.log_softmax(_full_precision(view), dim=-1) for view in views])
    log_mixture = torch.logsumexp(log_p, dim=0) - math.log(len(views))
    divergences = F.kl_div(log_mixture.expand_as(log_p), log_p, log_target=True, reduction="none").sum(-1)
    return divergences.mean()


def macs_loss(
    logits: Tensor,
    labels: Tensor,
    perturbed_logits: Tensor | None = None,
    *,
    objective: Objective | None = None,
    perturbed_rows: Tensor | None = None,
    augmix_logits: Sequence[Tensor] = (),
    cross_entropy: Callable[[Tensor, Tensor], Tensor] | None = None,
    **weights: float,
) -> MaCSLoss:
    """
    The MaCS objective of logits that were already computed.

    Args:
        logits (`Tensor` of shape `(batch, classes)`): Of the view that carries the labels.
        labels (`Tensor` of shape `(batch,)`, or `(batch, classes)` for soft labels): Soft labels have no margin.
        perturbed_logits (`Tensor`, *optional*): Of T(x); needed for consistency and two-view cross-entropy.
        objective ([`Objective`], *optional*): The weights; the paper's if not given.
        perturbed_rows (`Tensor`, *optional*): Which rows of `logits` they belong to; all, if not given.
        augmix_logits (sequence of `Tensor`, *optional*): Of the AugMix views; needed if `lambda_jsd > 0`.
        cross_entropy (`Callable`, *optional*): A function of logits and labels that takes the place of the
            cross-entropy term: the mean over the samples of a loss of your own.
        weights (`float`, *optional*): Fields of [`Objective`] to change, such as `lambda_margin=0.2`.

    ```python
    >>> logits = torch.tensor([[2.0, 1.5]])
    >>> parts = macs_loss(logits, torch.tensor([0]), logits)
    >>> parts.margin_loss, parts.consistency_loss  # a gap of 0.5, and two equal views
    (tensor(0.2500), tensor(0.))

    ```
    """
    objective = replace(objective or Objective(), **weights) if weights else objective or Objective()
    logits, labels = _full_precision(logits), checked_labels(labels, logits.shape[-1])
    soft_labels = labels.ndim == 2
    if soft_labels and (objective.lambda_margin > 0 or objective.focal_gamma > 0):
        raise ValueError(
            f"Labels of shape {tuple(labels.shape)} are soft, and the margin and focal terms need one class per "
            "image. Set lambda_margin=0 and focal_gamma=0, or pass class indices."
        )
    class_weights = _class_weights(objective, logits)

    def classification_loss(logits: Tensor, labels: Tensor) -> Tensor:
        if cross_entropy is not None:
            return cross_entropy(_full_precision(logits), labels)
        return _classification_loss(_full_precision(logits), labels, objective, class_weights)

    classification = classification_loss(logits, labels)
    hinge = consistency = divergence = cap = gap = None
    if objective.uses_second_view:
        if perturbed_logits is None:
            raise ValueError(
                "The consistency term and two-view cross-entropy need `perturbed_logits`. Pass them, or set "
                "lambda_consistency=0 and two_view_cross_entropy=False."
            )
        chosen = slice(None) if perturbed_rows is None else perturbed_rows
        if objective.two_view_cross_entropy:
            share = objective.perturbed_share
            perturbed = classification_loss(perturbed_logits, labels[chosen])
            classification = (1 - share) * classification + share * perturbed
    loss = classification
    if not soft_labels:
        gaps = _gaps(logits if objective.lambda_margin > 0 else logits.detach(), labels)
        gap = gaps.detach().mean()
        if objective.lambda_margin > 0:
            hinges = F.relu(objective.margin - gaps).square()
            hinge = (hinges if class_weights is None else hinges * class_weights[labels]).mean()
            loss = loss + objective.lambda_margin * hinge
    if objective.lambda_consistency > 0:
        consistency = consistency_loss(logits[chosen], perturbed_logits)
        loss = loss + objective.lambda_consistency * consistency
    if objective.lambda_jsd > 0:
        if not augmix_logits:
            raise ValueError(f"lambda_jsd={objective.lambda_jsd} needs `augmix_logits`.")
        divergence = jensen_shannon([logits, *augmix_logits])
        loss = loss + objective.lambda_jsd * divergence
    if objective.lambda_mbls > 0:
        cap = mbls_penalty(logits, objective.mbls_margin)
        loss = loss + objective.lambda_mbls * cap
    return MaCSLoss(loss, classification, hinge, consistency, divergence, cap, gap, logits)


def checked_labels(labels: Tensor, classes: int) -> Tensor:
    """
    Labels as the losses take them: int64 class indices `(batch,)`, or probabilities `(batch, classes)`.

    Values are read on the CPU only, since an accelerator would have to be waited for.
    """
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a tensor, got {type(labels).__name__}.")
    on_cpu = labels.device.type == "cpu"
    if labels.ndim == 2 and labels.is_floating_point():
        if labels.shape[1] != classes:
            raise ValueError(f"Soft labels of shape {tuple(labels.shape)} do not fit logits of {classes} classes.")
        if on_cpu:
            wrong = (labels.min(1).values < 0) | ~((labels.detach().float().sum(1) - 1).abs() <= 1e-2)
            if wrong.any():
                row = int(wrong.nonzero()[0])
                raise ValueError(
                    f"Soft labels must be probabilities of one class per image, but row {row} is "
                    f"{labels[row].tolist()}. Images of several classes (multi-label) cannot be trained on here: pass "
                    "one class number per image."
                )
        return labels
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(
            f"`labels` of shape {tuple(labels.shape)} and type {labels.dtype} are neither class numbers, integers of "
            "shape (batch,), nor class probabilities, floats of shape (batch, classes). One class per image is needed."
        )
    labels = labels.long()
    if on_cpu and bool(((labels < 0) | (labels >= classes)).any()):
        check_labels(labels, classes)  # says which
    return labels


def _check_views(views: Sequence[Tensor]) -> None:
    """Rows of several views belong together; torch would repeat the only row of one for all rows of another."""
    shapes = [tuple(view.shape) for view in views]
    if len(set(shapes)) != 1 or len(shapes[0]) != 2:
        raise ValueError(f"Views must be logits of one shape (batch, classes), got {shapes[:3]}.")


def _classification_loss(logits: Tensor, labels: Tensor, objective: Objective, class_weights: Tensor | None) -> Tensor:
    reduction = "mean" if class_weights is None else "none"
    if objective.focal_gamma > 0:
        losses = _focal_losses(logits, labels, objective.focal_gamma)
    else:
        smoothing = objective.label_smoothing_factor
        losses = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction=reduction)
    if class_weights is None:
        return losses.mean()
    # The mean of weight times loss. torch's `weight` divides by the weights in the batch instead, so that batches of
    # 8 would not give what 4 batches of 2 give together.
    weights = class_weights[labels] if labels.ndim == 1 else labels.to(class_weights.dtype) @ class_weights
    return (weights * losses).mean()


def _class_weights(objective: Objective, logits: Tensor) -> Tensor | None:
    """One weight per class, on the device of the logits."""
    weights = objective.class_weights
    if weights is None:
        return None
    if weights == "balanced":
        raise ValueError(
            "class_weights='balanced' needs the number of training images of each class, which MaCSTrainer counts. "
            "Elsewhere pass the weights, such as [images / (classes * count) for count in counts]."
        )
    if len(weights) != logits.shape[-1]:
        raise ValueError(f"class_weights has {len(weights)} weights, but there are {logits.shape[-1]} classes.")
    return torch.tensor(weights, dtype=torch.float32).to(logits.device, non_blocking=True)


def _full_precision(logits: Tensor) -> Tensor:
    _check_logits(logits)
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _check_logits(logits: Tensor) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"logits must be a tensor of floating-point numbers, got {kind}.")
