"""What a trainer refuses: before anything runs, before the first step, and in a batch."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import datasets
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, StateDictType
from transformers import PreTrainedModel, TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.trainer_utils import PredictionOutput

from ..data.columns import check_numbered
from ..objective.objective import Objective
from ..pixels import PixelStats
from ..report.checks import check_labels
from ..sharding import sharded_modules
from .averaging import ema_decay_of
from .run_identity import sharding_of


if TYPE_CHECKING:
    from .trainer import MaCSTrainer


BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


# ---- The run ----


def check_run(trainer: "MaCSTrainer") -> None:
    """What can be known to be wrong from what a trainer is given."""
    check_processes(trainer.args, trains=trainer.train_dataset is not None)
    check_training_set(trainer.train_dataset)
    check_loss_function(trainer.compute_loss_func)
    check_model(trainer.model)
    check_sharding(trainer)
    check_averaging(ema_decay_of(trainer.args), trainer.model, is_whole_model(trainer))


def check_processes(args: TrainingArguments, trains: bool = True) -> None:
    if trains and args.n_gpu > 1:
        raise ValueError(
            f"{args.n_gpu} GPUs are visible to one process, which torch.nn.DataParallel would split each batch over, "
            "views apart from one another. Start one process per GPU with `accelerate launch`, or set "
            "CUDA_VISIBLE_DEVICES to one GPU."
        )
    started = int(os.environ.get("WORLD_SIZE", 1))
    if started > 1 and args.world_size == 1:
        raise ValueError(
            f"This is one of {started} processes, but they do not know of each other and would all train alone. "
            "Without a GPU pass use_cpu=True; with one, start them with `accelerate launch`."
        )


def check_loss_function(compute_loss_func: Callable | None) -> None:
    if compute_loss_func is not None:
        raise ValueError("compute_loss_func would replace the MaCS objective. Leave it out, or use plain Trainer.")


def is_whole_model(trainer: "MaCSTrainer") -> bool:
    """Whether each process holds the whole model and saves it with `save_pretrained` (no adapters, no shards)."""
    spread = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    return isinstance(trainer.model, PreTrainedModel) and not spread


def is_foldable(trainer: "MaCSTrainer") -> bool:
    """Whether each process has the whole head, or a shard of it that can be divided by a temperature (FSDP2)."""
    if trainer.is_deepspeed_enabled:
        return not is_deepspeed_zero3_enabled()
    return trainer.accelerator.is_fsdp2 or not trainer.is_fsdp_enabled


def check_foldable(trainer: "MaCSTrainer") -> None:
    if not is_foldable(trainer):
        raise ValueError(
            "Weights that DeepSpeed's stage 3 or FSDP version 1 has spread over processes cannot be folded. Save the "
            "model, then run `macs-hf calibrate` on the saved folder, or train with fsdp_version 2."
        )


def check_ends_calibrated(args: TrainingArguments) -> None:
    """Refuse, from the arguments alone, to train what [`check_foldable`] would refuse to calibrate in the end."""
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


def check_sharding(trainer: "MaCSTrainer") -> None:
    if trainer.is_deepspeed_enabled and is_deepspeed_zero3_enabled():
        config = trainer.accelerator.state.deepspeed_plugin.hf_ds_config
        if not config.get_value("zero_optimization.stage3_gather_16bit_weights_on_model_save"):
            raise ValueError(
                "DeepSpeed's stage 3 saves no whole model by itself, which is what can be loaded and pushed. Set "
                "zero3_save_16bit_model to true (stage3_gather_16bit_weights_on_model_save in a file of DeepSpeed's)."
            )
    if not trainer.is_fsdp_enabled:
        return
    kind = trainer.accelerator.state.fsdp_plugin.state_dict_type
    if kind != StateDictType.FULL_STATE_DICT:
        raise ValueError(
            f"fsdp_state_dict_type {kind.name} saves no whole model, which is what can be loaded and pushed. Set it "
            "to FULL_STATE_DICT."
        )
    in_16_bits = trainer.accelerator.mixed_precision in ("bf16", "fp16")
    if trainer.accelerator.is_fsdp2 and in_16_bits and any(isinstance(m, BATCH_NORM) for m in trainer.model.modules()):
        raise ValueError(
            f"FSDP2 would compute BatchNorm with weights in {trainer.accelerator.mixed_precision} and statistics in "
            "float32, which torch does not do. Pass bf16=False and fp16=False, or train without FSDP."
        )


def check_sharded(trainer: "MaCSTrainer") -> None:
    """Refuse to evaluate before training under FSDP2: accelerate divides a model together with its optimiser only."""
    if trainer.accelerator.is_fsdp2 and not sharded_modules(trainer.model):
        raise ValueError(
            "FSDP2 divides a model when it is trained, so it cannot be evaluated before. Train first, or evaluate "
            "without FSDP."
        )


def num_labels_of(model: nn.Module) -> int | None:
    """The number of classes in the model's config; `None` for a module that has none."""
    return getattr(getattr(model, "config", None), "num_labels", None)


def check_model(model: nn.Module) -> None:
    problem_type = getattr(getattr(model, "config", None), "problem_type", None)
    if problem_type not in (None, "single_label_classification"):
        raise ValueError(
            f"problem_type={problem_type!r} has no single label per image, so it has no margin. Use a model with "
            "problem_type='single_label_classification'."
        )
    num_labels = num_labels_of(model)
    if num_labels is not None and num_labels < 2:
        raise ValueError(f"num_labels={num_labels}: a classifier needs at least two classes to choose between.")


def check_averaging(ema_decay: float | None, model: nn.Module, whole_model: bool) -> None:
    if ema_decay is None:
        return
    if not whole_model:
        raise ValueError(
            f"ema_decay={ema_decay} needs a transformers model that is whole in each process. Leave it out under FSDP "
            "or DeepSpeed, with adapters, and for other modules."
        )
    half = {parameter.dtype for parameter in model.parameters()} & {torch.float16, torch.bfloat16}
    if half:
        raise ValueError(
            f"ema_decay={ema_decay} would average {half.pop()} weights, where small changes are rounded away. Load "
            "the model with dtype=torch.float32, and pass bf16=True for speed."
        )


def check_pixel_stats(objective: Objective, pixel_stats: PixelStats | None) -> None:
    if objective.needs_pixel_stats and pixel_stats is None:
        raise ValueError(
            f"perturbation={objective.perturbation!r} with perturbation_space={objective.perturbation_space!r} acts "
            "on pixels, but their normalisation is not known. Pass the image processor as processing_class, or "
            "pixel_stats=PixelStats(mean, std)."
        )


# ---- The data ----


def check_training_set(dataset: Any) -> None:
    if isinstance(dataset, datasets.DatasetDict):
        raise ValueError(
            f"train_dataset is a DatasetDict of the splits {sorted(dataset)}. Pass one of them, such as data['train']."
        )


def check_label_columns(dataset: Any, label_names: Sequence[str], num_labels: int | None) -> None:
    """Refuse wrong labels of a `datasets.Dataset` before the first step; other datasets are seen batch by batch."""
    if not isinstance(dataset, datasets.Dataset):
        return
    for name in {"label", *label_names} & set(dataset.column_names):
        check_numbered(dataset, name, "the training set")
        column = dataset.with_format("torch", columns=[name])[:][name]
        check_label_range(torch.as_tensor(column), num_labels, f"column {name!r} of the training set")


def check_label_range(labels: Tensor, num_labels: int | None, where: str) -> None:
    if num_labels is None or labels.is_floating_point() or labels.numel() == 0:
        return
    advice = "Load the model with num_labels of the dataset, or map the labels to 0 .. num_labels - 1."
    check_labels(labels.cpu().flatten(), num_labels, where, advice)


def images_and_labels(inputs: Mapping[str, Any], num_labels: int | None, wait: bool = True) -> tuple[Tensor, Tensor]:
    """
    The two parts of a batch that every method needs; class numbers of any integer type become int64. They are checked
    where that does not take waiting for an accelerator, or if `wait` allows it.
    """
    if "labels" not in inputs or "pixel_values" not in inputs:
        raise ValueError(
            f"A batch must have `pixel_values` and `labels`, but has {sorted(inputs)}. Let the dataset or the "
            "collator give them these names (and keep remove_unused_columns=False with on-the-fly transforms)."
        )
    labels = inputs["labels"] if inputs["labels"].is_floating_point() else inputs["labels"].long()
    if wait or labels.device.type == "cpu":
        check_label_range(labels, num_labels, "a batch")
    return inputs["pixel_values"], labels


def check_held_out(dataset: Any, train_dataset: Any) -> None:
    """Refuse to fit a temperature on the training set, as far as a dataset says which data it holds."""
    fingerprint = getattr(dataset, "_fingerprint", None)  # of `datasets.Dataset`; other datasets may have one too
    same_data = fingerprint is not None and fingerprint == getattr(train_dataset, "_fingerprint", None)
    if dataset is train_dataset or same_data:
        raise ValueError(
            "A temperature was to be fitted on the training set, where the model is more confident than anywhere "
            "else. Pass a validation split that was held out."
        )


def check_labelled(prediction: PredictionOutput) -> None:
    if prediction.label_ids is None:
        raise ValueError("Labelled samples are needed, but the dataset gives no `labels`.")
