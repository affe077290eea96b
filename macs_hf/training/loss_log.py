"""The parts of the loss between two log entries, summed on the device so that no step waits for it."""

import torch
from accelerate import Accelerator
from torch import Tensor

from ..objective.losses import MaCSLoss


# What is logged, where the objective has it. A loss that is not finite shows in the sum.
LOGGED_PARTS = (
    "loss",
    "cross_entropy_loss",
    "margin_loss",
    "consistency_loss",
    "jensen_shannon_loss",
    "mbls_loss",
    "logit_margin",
)


class LossLog:
    """Weighted means of the parts of the loss."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sums: Tensor | None = None
        self.weight = 0.0

    def add(self, parts: MaCSLoss, weight: float) -> None:
        values = {name: value.detach() for name in LOGGED_PARTS if (value := getattr(parts, name)) is not None}
        added = torch.stack(list(values.values())) * weight
        self.names = list(values)
        self.sums = added if self.sums is None else self.sums + added
        self.weight += weight

    def means(self, accelerator: Accelerator) -> dict[str, float]:
        """Means over all that was added, on all processes; the one place that waits for the device."""
        if self.sums is None:
            return {}
        means = accelerator.reduce(self.sums / self.weight, "mean").tolist()
        return dict(zip(self.names, means, strict=True))
