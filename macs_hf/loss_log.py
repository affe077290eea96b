"""The parts of the loss between two log entries, summed on the device so that no step waits for it."""

import torch
from accelerate import Accelerator
from torch import Tensor

from .losses import MaCSLoss


# What is logged beside `loss`, where the objective has it.
LOGGED_PARTS = (
    "cross_entropy_loss",
    "margin_loss",
    "consistency_loss",
    "jensen_shannon_loss",
    "mbls_loss",
    "logit_margin",
)


class LossLog:
    """Weighted sums of the parts of the loss, and whether any loss was not finite."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.not_finite: Tensor | None = None

    def add(self, parts: MaCSLoss, weight: float) -> None:
        values = {name: getattr(parts, name) for name in LOGGED_PARTS}
        values["weight"] = torch.ones_like(parts.loss)
        for name, value in values.items():
            if value is not None:
                self.sums[name] = self.sums.get(name, 0) + value.detach() * weight
        not_finite = ~parts.loss.detach().isfinite()
        self.not_finite = not_finite if self.not_finite is None else self.not_finite | not_finite

    def means(self, accelerator: Accelerator) -> dict[str, float]:
        """Means over everything added since the last call, on all processes; the one place that reads the device."""
        if not self.sums:
            return {}
        totals = accelerator.reduce(torch.stack(list(self.sums.values())), "sum").tolist()
        totals = dict(zip(self.sums, totals, strict=True))
        self.sums = {}
        weight = totals.pop("weight")
        return {name: total / weight for name, total in totals.items()}

    def diverged(self, accelerator: Accelerator) -> bool | None:
        """Whether any process met a loss that is not finite since the last call; `None` if there was no loss."""
        if self.not_finite is None:
            return None
        flag, self.not_finite = self.not_finite, None
        return bool(accelerator.reduce(flag.float(), "sum").item() > 0)
