"""What makes a run the same run: recorded in each of its checkpoints, and compared when one is resumed."""

import dataclasses
import json
from collections.abc import Mapping, Sized
from typing import Any, NamedTuple

from accelerate.utils import parse_flag_from_env
from transformers import TrainingArguments

from ..objective.objective import objective_of


# All of `TrainingArguments` that changes what is learned, beside the objective and the length of the schedule.
RECIPE = (
    *("seed", "data_seed", "per_device_train_batch_size", "gradient_accumulation_steps", "dataloader_drop_last"),
    *("train_sampling_strategy", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    *("optim", "optim_args", "optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("max_grad_norm", "bf16", "fp16", "ema_decay"),
)
# The same of accelerate's data loaders: how images are divided among processes.
BATCHING = ("split_batches", "even_batches", "use_seedable_sampler")
# How long it learns. More steps than before are another schedule of the same run.
LENGTH = ("num_train_epochs", "max_steps")


class Identity(NamedTuple):
    """
    Args:
        run (`dict[str, Any]`): What has to be the same when a checkpoint is resumed.
        length (`dict[str, Any]`): The epochs and steps that were asked for, which may change.
    """

    run: dict[str, Any]
    length: dict[str, Any]


def identity_of(args: TrainingArguments, train_dataset: Any, facts: Mapping[str, Any] | None = None) -> Identity:
    """
    Args:
        args ([`~transformers.TrainingArguments`]): Of the run.
        train_dataset (`Any`): Its size counts; of a stream, the number of workers that read it.
        facts (`Mapping[str, Any]`, *optional*): What else counts, such as the names of the dataset and the model.
    """
    settings = args.to_dict()
    # A stream is divided among its workers; a map-style dataset gives the same batches with any number of them.
    data = (
        {"training_samples": len(train_dataset)}
        if isinstance(train_dataset, Sized)
        else {"dataloader_num_workers": args.dataloader_num_workers}
    )
    run = (
        dict(facts or {})
        | dataclasses.asdict(objective_of(args))
        | {name: settings.get(name) for name in RECIPE}
        | {name: getattr(args.accelerator_config, name) for name in BATCHING}
        | data
        | {"processes": args.world_size, "sharding": sharding_of(args), "device": args.device.type}
    )
    return Identity(_as_in_json(run), _as_in_json({name: settings[name] for name in LENGTH}))


def sharding_of(args: TrainingArguments) -> str | None:
    """What divides the model over processes, and so saves it its own way: FSDP, DeepSpeed, or nothing."""
    if args.fsdp or parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return "FSDP"
    return None if args.deepspeed_plugin is None else "DeepSpeed"


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`name: value, now other value` for all that differs, those that only one of them has included."""
    names = [name for name in {**earlier, **now} if earlier.get(name) != now.get(name)]
    return ", ".join(f"{name}: {earlier.get(name)!r}, now {now.get(name)!r}" for name in names)


def _as_in_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(values, default=str))
