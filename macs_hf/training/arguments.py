"""`TrainingArguments` that also carry the objective."""

from dataclasses import dataclass, field

from transformers import TrainingArguments

from ..objective.objective import Objective, validate


LOWER_IS_BETTER = ("ece", "nll", "brier")


def check_ema_decay(ema_decay: float | None) -> None:
    if ema_decay is not None and not 0 < ema_decay < 1:
        raise ValueError(
            f"ema_decay={ema_decay} must be above 0 and below 1, such as 0.99 for runs of a few thousand steps, or "
            "None for no average."
        )


@dataclass
class MaCSTrainingArguments(Objective, TrainingArguments):
    """
    All of [`~transformers.TrainingArguments`], all fields of [`Objective`], two more, and some defaults changed.

    Args:
        ema_decay (`float`, *optional*):
            Keep an exponential moving average of the weights and of BatchNorm's statistics with this decay, in
            (0, 1). The averaged weights are what is evaluated, calibrated, saved and pushed; checkpoints hold the
            others too, to resume from. After step t the decay is `min(ema_decay, (t - 1) / (t + 9))`, so that short
            runs do not average over the weights they started from. It costs one copy of the model in memory.
        stop_on_signals (`bool`, *optional*, defaults to `False`):
            While training, let SIGTERM and SIGINT (Ctrl-C) save a checkpoint after the step that runs and end the
            program with exit code 143 or 130; the same run continues from it. A second Ctrl-C ends it at once.

    Changed defaults:

    - `remove_unused_columns=False`: image datasets make `pixel_values` on the fly from an `image` column, which the
      parent would strip because no model takes it.
    - `logging_nan_inf_filter=False`: the filter hides a diverged loss and costs a device sync per step; the trainer
      keeps a flag on the device and stops at the next log instead.
    - `greater_is_better=False` where `metric_for_best_model` is `ece`, `nll` or `brier`.
    - `ddp_find_unused_parameters=False`: image classifiers use all their parameters, and the search costs time.

    ```python
    >>> from macs_hf import METHODS, MaCSTrainingArguments

    >>> MaCSTrainingArguments("runs/focal", **METHODS["focal"] | {"learning_rate": 3e-4}).focal_gamma
    2.0

    ```
    """

    ema_decay: float | None = field(
        default=None,
        metadata={
            "help": "Decay of a moving average of the weights, in (0, 1), such as 0.99; the average is what is "
            "evaluated, calibrated, saved and pushed."
        },
    )
    stop_on_signals: bool = field(
        default=False,
        metadata={
            "help": "Let SIGTERM and Ctrl-C save a checkpoint after the step that runs, and end the program; the same "
            "run continues from it."
        },
    )
    remove_unused_columns: bool = field(
        default=False, metadata={"help": "Strip columns that the model does not take, before transforms see them."}
    )
    logging_nan_inf_filter: bool = field(
        default=False, metadata={"help": "Leave nan and inf out of the logged loss (the trainer stops at them)."}
    )
    ddp_find_unused_parameters: bool | None = field(
        default=False, metadata={"help": "Let DistributedDataParallel look for parameters without a gradient."}
    )

    def __post_init__(self) -> None:
        metric = (self.metric_for_best_model or "").removeprefix("eval_")
        if self.greater_is_better is None and metric in LOWER_IS_BETTER:
            # The parent takes every name that does not end in `loss` for one to be maximised.
            self.greater_is_better = False
        TrainingArguments.__post_init__(self)
        validate(self)
        check_ema_decay(self.ema_decay)
        if self.stop_on_signals and self.enable_jit_checkpoint:
            raise ValueError(
                "enable_jit_checkpoint=True and stop_on_signals=True both handle SIGTERM. Leave out the first: the "
                "second also makes processes agree on the step, and does not go on with the script."
            )
