"""The parts of the loss between two log entries, summed on the device so that no step waits for it."""

import math
from collections.abc import Iterable

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..objective.losses import MaCSLoss
from ..sharding import local_parameters
from .checkpoints import last_complete_checkpoint


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


def all_finite(tensors: Iterable[Tensor], accelerator: Accelerator) -> bool:
    """Whether every number is finite, in all processes; waits for the device once."""
    flags = [tensor.detach().isfinite().all() for tensor in tensors]
    if not flags:
        return True
    return bool(accelerator.gather(torch.stack(flags).all()).all())


class LossLog:
    """Weighted means of the parts of the loss, and a watch over whether they are finite."""

    def __init__(self) -> None:
        self.last_finite_step = 0
        self.clear()

    def clear(self) -> None:
        """Begin the next log entry."""
        self._names: list[str] = []
        self._sums: Tensor | None = None
        self._weight = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether no batch was added since the last log entry."""
        return self._sums is None

    def add(self, parts: MaCSLoss, weight: float) -> None:
        values = {name: value.detach() for name in LOGGED_PARTS if (value := getattr(parts, name)) is not None}
        added = torch.stack(list(values.values())) * weight
        self._names = list(values)
        self._sums = added if self._sums is None else self._sums + added
        self._weight += weight

    def finite_means(
        self, accelerator: Accelerator, step: int, output_dir: str, model: nn.Module | None = None
    ) -> dict[str, float]:
        """
        Means over all that was added, on all processes; the one place that waits for the device.

        Raises:
            `FloatingPointError`: If the loss was not finite all along, or the weights of `model` are not now. It
                names the last good checkpoint in `output_dir`.
        """
        means = {}
        if self._sums is not None:
            reduced = accelerator.reduce(self._sums / self._weight, "mean").tolist()
            means = dict(zip(self._names, reduced, strict=True))
        weights = () if model is None else local_parameters(model)
        if not math.isfinite(means.get("loss", 0.0)) or not all_finite(weights, accelerator):
            raise _divergence(output_dir, self.last_finite_step, step)
        self.last_finite_step = step
        return means


def _divergence(output_dir: str, last_finite_step: int, step: int) -> FloatingPointError:
    checkpoint = last_complete_checkpoint(output_dir, up_to_step=last_finite_step)
    anew = f" from model={str(checkpoint)!r}" if checkpoint else ""
    return FloatingPointError(
        f"The loss became nan or infinite between steps {last_finite_step} and {step}. Last good checkpoint: "
        f"{checkpoint or 'none was saved'}. Lower learning_rate, set max_grad_norm, or use bf16 in place of fp16, "
        f"then start a new run{anew}."
    )
