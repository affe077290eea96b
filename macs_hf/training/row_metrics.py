"""Logits reduced to a few numbers per sample on the device, so that no process ever holds all of them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import EvalPrediction, Trainer
from transformers.trainer_utils import EvalLoopOutput

from ..metrics import summarize
from ..report.logits import sample_rows
from ..report.rows import SampleRows


def rows_at(temperatures: Sequence[float] = (1.0,)) -> Callable[[Tensor, Tensor | None], Tensor]:
    """A `preprocess_logits_for_metrics` that gives the columns of [`SampleRows`], for each temperature in turn."""

    def rows(logits: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None:
            return logits
        return torch.cat([sample_rows(logits / temperature, labels) for temperature in temperatures], dim=1)

    return rows


def summary_of_rows(prediction: EvalPrediction) -> dict[str, float]:
    """A `compute_metrics` of such rows: accuracy, nll, ece, brier and the mean logit margin."""
    return summarize(SampleRows.from_array(prediction.predictions))


def with_loss_of_rows(output: EvalLoopOutput, prefix: str, trainer: Trainer) -> EvalLoopOutput:
    """With several processes, Trainer's loss counts the samples that fill up each one's last batch; rows do not."""
    several = trainer.args.world_size > 1 and trainer.compute_metrics is summary_of_rows
    if several and f"{prefix}_nll" in output.metrics:
        output.metrics[f"{prefix}_loss"] = output.metrics[f"{prefix}_nll"]
    return output
