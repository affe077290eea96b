"""What a report records of how a run was made."""

import dataclasses
from enum import Enum
from typing import Any

from transformers import TrainingArguments

from ..disk.public_names import public_name
from ..training.run_identity import sharding_of


# What identifies a training run is recorded even where it is the default.
ALWAYS_RECORDED = {"method", "model", "dataset", "seed", "num_train_epochs", "learning_rate"}
ALWAYS_RECORDED |= {"per_device_train_batch_size"}
# Not about what was learned, or about one machine only.
NEVER_RECORDED = {"output_dir", "run_name", "hub_token", "local_rank", "logging_dir", "resume_from_checkpoint"}
NEVER_RECORDED |= {"stop_on_signals", "quiet", "verbose"}


def recorded_arguments(arguments: Any) -> dict[str, Any]:
    """Arguments (a dataclass) as a report has them: the main ones, and others that differ from their defaults."""
    recorded = {}
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        default = field.default_factory() if field.default is dataclasses.MISSING else field.default
        wanted = field.name in ALWAYS_RECORDED or value != default
        if wanted and field.init and field.name not in NEVER_RECORDED:
            recorded[field.name] = _plain(value)
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
