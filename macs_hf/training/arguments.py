"""`TrainingArguments` that also carry the objective."""

import os
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, make_dataclass
from enum import Enum
from typing import Any

import datasets
import numpy as np
import torch
from accelerate.utils import parse_flag_from_env
from torch.distributed.fsdp import FSDPModule
from transformers import TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from ..exceptions import ArgumentError
from ..objective.objective import DEFAULT_METHOD, METHODS, Objective, objective_of, settings_of
from ..report.run_folder import public_name


LOWER_IS_BETTER = ("ece", "nll", "brier")

# The fields of [`Objective`], each `None` where it is not given, so that the method can fill it. Their types stay,
# since the parser of a command line reads them.
ObjectiveArguments = make_dataclass(
    "ObjectiveArguments",
    [
        (each.name, str if each.name == "class_weights" else each.type, field(default=None, metadata=each.metadata))
        for each in fields(Objective)
    ],
    bases=(Objective,),
)


def check_ema_decay(ema_decay: float | None) -> None:
    if ema_decay is not None and not 0 < ema_decay < 1:
        raise ArgumentError(
            "ema_decay",
            "must be above 0 and below 1, such as 0.99 for runs of a few thousand steps, or None for no average.",
            ema_decay,
        )


@dataclass
class MaCSTrainingArguments(ObjectiveArguments, TrainingArguments):
    """
    All of [`~transformers.TrainingArguments`], all fields of [`Objective`], three more, and some defaults changed.

    Args:
        method (`str`, *optional*, defaults to `"recommended"`):
            A name in `METHODS`. It sets all fields of the objective that are not given as arguments of their own.
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
    >>> from macs_hf import MaCSTrainingArguments

    >>> args = MaCSTrainingArguments("runs/few-views", method="recommended", consistency_fraction=0.1)
    >>> args.consistency_fraction, args.lambda_consistency  # as given, and as the method has it
    (0.1, 0.5)

    ```
    """

    method: str = field(
        default=DEFAULT_METHOD,
        metadata={"help": f"Sets the objective, where its arguments are not given: {', '.join(METHODS)}."},
    )
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
        chosen = Objective(**settings_of(self.method))
        for each in fields(Objective):
            if getattr(self, each.name) is None:
                setattr(self, each.name, getattr(chosen, each.name))
        objective_of(self)  # raises where values and combinations make no sense
        check_ema_decay(self.ema_decay)
        if self.stop_on_signals and self.enable_jit_checkpoint:
            raise ArgumentError(
                "enable_jit_checkpoint",
                "and stop_on_signals=True both handle SIGTERM. Leave out the first: the "
                "second also makes processes agree on the step, and does not go on with the script.",
                True,
            )


def ema_decay_of(args: TrainingArguments) -> float | None:
    """The decay that `args` ask for; plain `TrainingArguments` ask for none."""
    return args.ema_decay if isinstance(args, MaCSTrainingArguments) else None


def sharding_of(args: TrainingArguments) -> str | None:
    """What divides the model over processes, and so saves it its own way: FSDP, DeepSpeed, or nothing."""
    if args.fsdp or parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return "FSDP"
    return None if args.deepspeed_plugin is None else "DeepSpeed"


def check_ends_calibrated(args: TrainingArguments) -> None:
    """Refuse, before anything is loaded, to train what could not be calibrated in the end."""
    version = (args.fsdp_plugin_args or {}).get("fsdp_version", os.environ.get("FSDP_VERSION", "1"))
    kind = None
    if sharding_of(args) == "FSDP" and str(version) != "2":
        kind, fix = f"FSDP version {version}", "Set fsdp_version to 2"
    elif sharding_of(args) == "FSDP" and not hasattr(FSDPModule, "set_reshard_after_forward"):
        raise ValueError(
            f"FSDP2 of torch {torch.__version__} cannot keep a model gathered to measure it: update torch."
        )
    elif args.deepspeed_plugin is not None and is_deepspeed_zero3_enabled():
        kind, fix = "DeepSpeed's stage 3", "Use stage 2, or FSDP with fsdp_version 2, which divides as much"
    if kind is not None:
        raise ValueError(
            f"{kind} spreads the weights over processes in a way that takes no temperature, so the run could not end "
            f"with a calibrated model. {fix} (examples/accelerate)."
        )


def class_weights(
    weights: str | Sequence[float], train_dataset: Any, label_names: Sequence[str], num_labels: int | None
) -> tuple[float, ...]:
    """
    One weight per class, scaled to a mean of 1 over the training set, or over the classes where its labels are not
    known.

    Args:
        weights (`str` or `Sequence[float]`): `"balanced"`, which is one over the number of images, or the weights.
        train_dataset (`Any`): Its labels are read from a column, without the images.
        label_names (`Sequence[str]`): Columns that may hold them.
        num_labels (`int`, *optional*): How many classes the model has, if its config says so.
    """
    labels = _labels_of(train_dataset, label_names)
    if weights == "balanced":
        if labels is None:
            raise ValueError(
                "class_weights='balanced' needs a training set with a column of labels, to count them. Pass a "
                "sequence with one weight per class."
            )
        counts = np.bincount(labels, minlength=num_labels or 0)
        values = np.divide(1.0, counts, out=np.zeros(len(counts)), where=counts > 0)
    else:
        values = np.asarray(weights, dtype=float)
        if num_labels not in (None, len(values)):
            raise ValueError(f"class_weights={list(weights)} has not one weight for each of {num_labels} classes.")
        counts = np.ones(len(values)) if labels is None else np.bincount(labels, minlength=len(values))
    mean = values @ counts[: len(values)] / counts.sum()
    if not mean > 0:
        raise ValueError(f"class_weights={list(values)} is 0 for every class that the training set has.")
    return tuple((values / mean).tolist())


def _labels_of(dataset: Any, label_names: Sequence[str]) -> np.ndarray | None:
    """The class numbers of a dataset that has them beside the images; `None` if it does not."""
    if isinstance(dataset, datasets.Dataset):
        names = [name for name in (*label_names, "label") if name in dataset.column_names]
        labels = np.asarray(dataset.with_format("numpy", columns=names[:1])[:][names[0]]) if names else None
    else:
        labels = getattr(dataset, "labels", None)
        labels = None if labels is None else np.asarray(labels)
    return labels if labels is not None and labels.ndim == 1 and labels.dtype.kind in "iu" else None


# ---- Recorded arguments ----
# What a report records of how a run was made.


# What identifies a training run is recorded even where it is the default.
ALWAYS_RECORDED = {"method", "model", "dataset", "seed", "num_train_epochs", "learning_rate"}
ALWAYS_RECORDED |= {"per_device_train_batch_size"}
# Not about what was learned, or about one machine only.
NEVER_RECORDED = {"output_dir", "run_name", "hub_token", "local_rank", "logging_dir", "resume_from_checkpoint"}
NEVER_RECORDED |= {"stop_on_signals", "quiet", "verbose"}
PAPER = asdict(Objective())


def recorded_arguments(arguments: Any) -> dict[str, Any]:
    """Arguments (a dataclass) as a report has them: the main ones, and others that differ from their defaults."""
    recorded = {}
    for each in fields(arguments):
        value = getattr(arguments, each.name)
        default = each.default_factory() if each.default is MISSING else each.default
        default = PAPER.get(each.name, default)  # a method has filled these
        wanted = each.name in ALWAYS_RECORDED or value != default
        if wanted and each.init and each.name not in NEVER_RECORDED:
            recorded[each.name] = _plain(value)
    return recorded


def recorded_processes(args: TrainingArguments) -> dict[str, Any]:
    """Where there are several processes, how many: `per_device_train_batch_size` is the batch of one of them."""
    if args.world_size == 1:
        return {}
    sharding = sharding_of(args)
    return {"processes": args.world_size} | ({} if sharding is None else {"sharding": sharding})


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value if isinstance(value, bool | int | float | str | None) else str(value)
    return public_name(value) if isinstance(value, str) else value
