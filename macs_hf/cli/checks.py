"""Training arguments that transformers accepts, and that would end a run at its first step or after its last one."""

import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..disk.free_space import check_free_space, readable_size
from ..training.run_identity import sharding_of


# What `eval_` is put in front of when a model is evaluated during training.
METRICS = ("loss", "accuracy", "nll", "ece", "brier", "logit_margin")
AT_LEAST = {
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "eval_accumulation_steps": 1,
    "dataloader_num_workers": 0,
    "learning_rate": 0,
    "weight_decay": 0,
    "warmup_steps": 0,
    "adam_epsilon": 0,
    "max_grad_norm": 0,
    "eval_delay": 0,
    "save_total_limit": 1,
    "dataloader_prefetch_factor": 1,
}
MOST_WORKERS = 512
ABOVE_ZERO = ("logging_steps", "eval_steps", "save_steps")
SEEDS = ("seed", "data_seed")
BETAS = ("adam_beta1", "adam_beta2")
COMPILE_MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# Arguments of transformers that would do nothing here, or make a run fail at its end: the only values they may have.
FIXED = {
    "train_sampling_strategy": (("random", "sequential"), "images have no lengths to sort them by"),
    "include_num_input_tokens_seen": ((False, "no"), "images have no tokens"),
    "ignore_data_skip": ((False,), "a run that is stopped could not be resumed exactly"),
    "use_liger_kernel": ((False,), "there are no such kernels for image classifiers"),
    "prediction_loss_only": ((False,), "a run is measured by its predictions"),
    "batch_eval_metrics": ((False,), "calibration is measured on all predictions at once"),
    "eval_do_concat_batches": ((True,), "calibration is measured on all predictions at once"),
    "include_for_metrics": (([],), "no metric of this command reads them"),
}
# What is always done, so that `false` would be a wish that is not granted.
ALWAYS = {
    "do_train": "macs-hf train trains. To measure a model, run `macs-hf evaluate MODEL`.",
    "do_eval": "a run ends with the measurement of its model. To measure nothing before, pass eval_strategy=no.",
    "do_predict": "a run ends with the test of its model. To test on fewer images, pass max_eval_samples=...",
}
# What says how to push.
PUSHING = ("hub_model_id", "hub_private_repo", "hub_revision")


def check_wishes(asked: Any) -> None:
    """
    Refuse `do_eval=False` and its like.

    Args:
        asked (`argparse.Namespace`): As the flags say, where `None` stands for what was not given. The arguments that
            are made of it no longer tell.
    """
    for name, reason in ALWAYS.items():
        if getattr(asked, name) is False:
            raise ValueError(f"{name}=False: {reason}")


def check_gallery(gallery: int | None, publish_gallery: bool) -> None:
    if publish_gallery and gallery is None:
        raise ValueError("publish_gallery=True shows a gallery in the card: say how many images, with gallery=...")


def check_training_arguments(args: Any, trackers: Mapping[str, bool] | None = None) -> None:
    """
    Refuse values that can be known to be wrong before training.

    Args:
        args ([`~transformers.TrainingArguments`]): As parsed.
        trackers (`Mapping[str, bool]`, *optional*): The trackers that `report_to` may name, and whether they are
            installed; defaults to what transformers finds.

    Raises:
        `ValueError`: With the argument, its value and what it may be.
    """
    for name, least in AT_LEAST.items():
        value = getattr(args, name)
        if value is not None and not (math.isfinite(value) and value >= least):
            raise ValueError(f"{name}={value} must be a finite number of at least {least}.")
    for name in ABOVE_ZERO:
        value = getattr(args, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}={value} must be above 0: a number of steps, or a share of all steps below 1.")
    for name in BETAS:
        if not 0 <= getattr(args, name) < 1:
            raise ValueError(f"{name}={getattr(args, name)} must lie in [0, 1).")
    for name in SEEDS:
        value = getattr(args, name)
        if value is not None and not 0 <= value < 2**32:
            raise ValueError(f"{name}={value} must lie in [0, 2**32).")
    if args.dataloader_num_workers > MOST_WORKERS:
        raise ValueError(f"dataloader_num_workers={args.dataloader_num_workers} processes are too many for a machine.")
    if any("=" not in part for part in (args.optim_args or "a=b").split(",")):
        raise ValueError(f"optim_args={args.optim_args!r} must be name=value, or several of them between commas.")
    if args.optim_target_modules is not None and not re.match("galore|apollo", args.optim.value):
        raise ValueError(
            f"optim_target_modules={args.optim_target_modules!r} is for GaLore and APOLLO; optim={args.optim.value} "
            "trains all modules. Leave it out."
        )
    if args.torch_compile_mode not in (None, *COMPILE_MODES):
        raise ValueError(f"torch_compile_mode={args.torch_compile_mode!r} is not one of {', '.join(COMPILE_MODES)}.")
    if args.label_names not in (None, ["labels"]):
        raise ValueError(f"label_names={args.label_names} are not in the data, whose labels are called 'labels'.")
    for name, (possible, reason) in FIXED.items():
        if (value := getattr(args, name)) not in possible:
            raise ValueError(f"{name}={value} is not possible: {reason}. Leave it out.")
    for name in PUSHING:
        if getattr(args, name) is not None and not args.push_to_hub:
            raise ValueError(f"{name}={getattr(args, name)!r}, but nothing would be pushed. Add push_to_hub=True.")
        if getattr(args, name) == "":
            raise ValueError(f"{name}='' is empty. Name something, or leave it out.")
    _check_length(args)
    _check_metric(args.metric_for_best_model)
    _check_trackers(args.report_to, _known_trackers() if trackers is None else trackers)


def check_warmup(args: Any, images: int | None) -> None:
    """
    Refuse to warm up for longer than the run.

    Args:
        args ([`~transformers.TrainingArguments`]): As parsed.
        images (`int`, *optional*): In the training set; `None` for a stream, whose `max_steps` is given.
    """
    steps = args.max_steps
    if steps < 1:
        batches = math.ceil(images / (args.per_device_train_batch_size * args.world_size))
        steps = math.ceil(args.num_train_epochs * math.ceil(batches / args.gradient_accumulation_steps))
    if args.warmup_steps > steps:
        raise ValueError(
            f"warmup_steps={args.warmup_steps:g} is more than the {steps:,} steps of the run, which would end before "
            "it has reached its learning rate. Give fewer steps, or a share of them below 1."
        )


def check_disk(args: Any, model: Any) -> None:
    """
    Refuse a run whose checkpoints and final model do not fit on the disk, as far as their sizes are known.

    Args:
        args ([`~transformers.TrainingArguments`]): As parsed.
        model (`torch.nn.Module`): What will be saved.
    """
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    # The average, or what FSDP continues from, lies beside the model.
    copies = 1 + (args.ema_decay is not None) + (sharding_of(args) == "FSDP")
    if not args.save_only_model and "adam" in str(args.optim.value) and "8bit" not in str(args.optim.value):
        copies += 2  # moments of the gradient
    count = _checkpoints(args)
    # The final model is written beside the one that it replaces.
    needed = weights * (copies * count + 2)
    there = sum(path.stat().st_size for path in Path(args.output_dir).glob("checkpoint-*/*") if path.is_file())
    what = f"{count} checkpoints of {readable_size(weights * copies)} and the final model of {readable_size(weights)}"
    check_free_space(args.output_dir, needed - there, f"{what}; save_total_limit=1 and save_only_model=True need less")


def _checkpoints(args: Any) -> int:
    """How many checkpoints lie on the disk at one time."""
    if args.save_strategy == "no":
        return 0
    if args.save_total_limit is not None:
        # One is written before another is removed; the best one stays.
        return args.save_total_limit + 1 + args.load_best_model_at_end
    if args.save_strategy == "epoch" and args.max_steps == -1:
        return math.ceil(args.num_train_epochs)
    if args.save_strategy == "steps" and args.save_steps < 1:
        return math.ceil(1 / args.save_steps)
    return max(1, int(args.max_steps / args.save_steps)) if args.save_strategy == "steps" else 1


def _check_length(args: Any) -> None:
    if args.max_steps != -1 and args.max_steps < 1:
        raise ValueError(f"max_steps={args.max_steps} must be at least 1, or -1 to train for num_train_epochs.")
    epochs = args.num_train_epochs
    if args.max_steps == -1 and not (math.isfinite(epochs) and epochs > 0):
        raise ValueError(f"num_train_epochs={epochs} must be a finite number above 0.")


def _check_metric(metric: str | None) -> None:
    if metric is not None and metric.removeprefix("eval_") not in METRICS:
        raise ValueError(f"metric_for_best_model={metric!r} is not measured; choose one of {', '.join(METRICS)}.")


def _check_trackers(named: Collection[str], trackers: Mapping[str, bool]) -> None:
    for tracker in named:
        if tracker not in trackers:
            raise ValueError(
                f"report_to={tracker!r} is not a tracker: write 'none' for no tracker, 'all' for all that are "
                f"installed, or some of {', '.join(trackers)}."
            )
        if not trackers[tracker]:
            raise ValueError(f"report_to={tracker!r} is not installed. Install it with pip, or name another tracker.")


def _known_trackers() -> dict[str, bool]:
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    installed = get_available_reporting_integrations()
    # Whether flyte is there, transformers does not say beforehand.
    return {name: name in installed or name == "flyte" for name in INTEGRATION_TO_CALLBACK}
