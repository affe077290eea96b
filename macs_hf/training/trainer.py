"""`MaCSTrainer`: a `transformers.Trainer` that trains with Margin and Consistency Supervision."""

import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, extract_model_from_parallel
from huggingface_hub import CommitInfo
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.fsdp import StateDictType
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedModel, TimmWrapperForImageClassification, Trainer
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.modeling_outputs import ImageClassifierOutput
from transformers.trainer_utils import (
    EvalLoopOutput,
    HubStrategy,
    SaveStrategy,
    TrainOutput,
    default_compute_objective,
)
from transformers.utils import SAFE_WEIGHTS_NAME, logging
from transformers.utils.hub import PushInProgress

from ..calibration import calibrate_logits, fold_temperature, store_guarantees
from ..calibration.folding import calibration_record
from ..data.sources import check_numbered
from ..evaluation.evaluate import MeasuredModel, default_corruptions, evaluate_checkpoint, takes_pixel_values, tqdm_bar
from ..exceptions import check_labels
from ..models.loading import check_single_label, found_pixel_stats, processor_of, resized_processor
from ..models.timm_layout import WEIGHT_FILES, save_in_timm_layout
from ..objective.losses import MaCSLoss, checked_labels
from ..objective.objective import Objective, describe, expected_cost, objective_of
from ..objective.perturbations import OwnPerturbation, check_perturbation, name_of
from ..objective.supervision import logits_of, supervise
from ..pixels import PixelStats, Preparation, preparation
from ..publishing.access import open_repo, refuse_hub_token
from ..publishing.card import CardSettings, saved_report, write_card
from ..publishing.push import LAST_CHECKPOINT, STAGED, push_checkpoint, push_folder
from ..randomness import KeyedDataset, global_rng_preserved, mix_seed
from ..rendering.html import write_report
from ..report.report import TEMPERATURE_FIELD, EvaluationReport, Temperature, add_checksums, forget_calibration
from ..report.rows import SampleRows
from ..report.run_folder import atomic_folder
from ..sharding import divided_by_blocks, full_precision, local_parameters, sharded_modules, share_statistics
from .arguments import class_weights, ema_decay_of, recorded_arguments, recorded_processes
from .averaging import WeightAverage, averaging
from .callbacks import RowsBeside, TerminalCallback
from .checkpoints import (
    OBJECTIVE,
    SPACE,
    checkpoint_to_resume,
    identity_of,
    is_checkpoint,
    last_complete_checkpoint,
    read_identity,
    restore_weights,
    write_record,
)
from .signals import SignalStop, lost_processes_named, shield_workers, stopping_on_signals


logger = logging.get_logger(__name__)

BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# Of one channel of photos, as ImageNet's statistics have it: from units of pixels to those of normalised images.
TYPICAL_STD = 0.225
# Values a little beyond the processor's range, as noise adds them, and a few far beyond it, as random erasing does.
SLACK, TOLERATED_SHARE = 0.05, 0.01
UNKNOWN_STATS = "how images were normalised is not known"

Size = tuple[int, int]


class MaCSTrainer(Trainer):
    """
    Drop-in replacement for [`~transformers.Trainer`], for classifiers that take `pixel_values` and return `.logits`.
    Other modules are given the images as their first argument. It takes the same arguments, and three more.

    Args:
        args ([`MaCSTrainingArguments`] or [`~transformers.TrainingArguments`], *optional*):
            With plain `TrainingArguments` the method `recommended` applies.
        compute_loss_func (`Callable`, *optional*):
            As in `Trainer`, in place of the cross-entropy term: `f(outputs, labels, num_items_in_batch=...)` returns
            the mean loss of a batch. The margin and consistency terms are added to it.
        pixel_stats ([`PixelStats`], *optional*):
            How images were normalised. If it is not given, it is looked for in `processing_class`, in the config of a
            timm model and in the files beside the model, and used if the first batch may have been made with it.
            Otherwise noise and blur in units of pixels act on normalised images instead, with a warning.
        perturbation (`Callable`, *optional*):
            A perturbation T of your own, in place of the one that `args` name: `f(pixels, generator)` gets RGB pixels
            in [0, 1] and a `torch.Generator`, from which it has to draw all its random numbers, and returns pixels.
        run_facts (`Mapping[str, Any]`, *optional*):
            What makes this the same run when it is resumed, beside objective, recipe and batches: say, the dataset. A
            warning names those that differ.
    """

    # compute_loss returns the mean over the micro-batch, so Trainer has to divide by the accumulation steps.
    loss_is_scaled_for_ga = False
    # Whether a line at the start of training says what is minimised; a command's header says it already.
    introduces_itself = True
    # What a checkpoint has to have in common with the run that is resumed from it; `None` for everything.
    resumes_only_same: Collection[str] | None = OBJECTIVE

    def __init__(
        self,
        *args: Any,
        pixel_stats: PixelStats | None = None,
        perturbation: OwnPerturbation | None = None,
        run_facts: Mapping | None = None,
        **kwargs: Any,
    ) -> None:
        self.pixel_stats, self.perturbation, self.run_facts = pixel_stats, perturbation, run_facts
        self.perturbed_in: str | None = None  # pixel or normalized; known from the first batch on
        self.trained_size: Size | None = None  # height and width of the last images that the model saw
        self.evaluated_size: Size | None = None
        self.current_gradient_accumulation_steps = 1  # Trainer's own, before the first step
        self._objective: Objective | None = None
        self._keyed_dataset: KeyedDataset | None = None
        self._loss_log, self._micro_step = LossLog(), (-1, 0)
        self._average, self._stop = WeightAverage(), SignalStop()
        self._warned_of_override = type(self).compute_loss is MaCSTrainer.compute_loss
        self._warned_of_size: Size | None = None
        super().__init__(*args, **kwargs)
        # The model never sees labels; this also saves a count of them, gathered over processes, at each step.
        self.model_accepts_loss_kwargs = False
        if self.args.label_names is None:
            # Trainer reads them off the model's signature, which a wrapper may hide.
            self.label_names = ["labels"]
        self._check_run()
        self._takes_pixel_values = takes_pixel_values(self.model)
        if not self._takes_pixel_values:
            # With remove_unused_columns, Trainer keeps what the model's signature names.
            self._set_signature_columns_if_needed()
            self._signature_columns.append("pixel_values")
        self._stats_were_given = self.pixel_stats is not None
        self.pixel_stats = self.pixel_stats or found_pixel_stats(self.model, self.processing_class)
        objective = objective_of(self.args)
        if self.pixel_stats is None:
            self._check_perturbation(objective, UNKNOWN_STATS)
        if self.perturbation is not None and objective.uses_perturbation:
            self.run_facts = {**(self.run_facts or {}), "perturbation_function": name_of(self.perturbation)}
        if self.train_dataset is not None:
            self._with_class_weights(objective)

    # ---- Checks ----

    def _check_run(self) -> None:
        """Refuse what can be known to be wrong from what a trainer is given."""
        refuse_hub_token(self.args)
        if self.train_dataset is not None and self.args.n_gpu > 1:
            raise ValueError(
                f"{self.args.n_gpu} GPUs are visible to one process, which would split each batch over them, views "
                "apart from one another. Start one process per GPU with `accelerate launch`, or set "
                "CUDA_VISIBLE_DEVICES to one GPU."
            )
        started = int(os.environ.get("WORLD_SIZE", 1))
        if started > 1 and self.args.world_size == 1:
            raise ValueError(
                f"This is one of {started} processes, which do not know of each other and would all train alone. "
                "Without a GPU pass use_cpu=True; with one, start them with `accelerate launch`."
            )
        check_single_label(self.model)
        ema_decay = ema_decay_of(self.args)
        in_16_bits = {weight.dtype for weight in self.model.parameters()} & {torch.float16, torch.bfloat16}
        if ema_decay is not None and (in_16_bits or not self._is_whole_model):
            raise ValueError(
                f"ema_decay={ema_decay} needs a transformers model that is whole in each process, in float32 (as with "
                "bf16=True). Leave it out under FSDP or DeepSpeed, with adapters, and for other modules."
            )
        self._check_sharding()

    def _check_sharding(self) -> None:
        if self.is_deepspeed_enabled and is_deepspeed_zero3_enabled():
            config = self.accelerator.state.deepspeed_plugin.hf_ds_config
            if not config.get_value("zero_optimization.stage3_gather_16bit_weights_on_model_save"):
                raise ValueError(
                    "DeepSpeed's stage 3 saves no whole model that can be loaded and pushed. Set "
                    "zero3_save_16bit_model to true (stage3_gather_16bit_weights_on_model_save in its own file)."
                )
        if not self.is_fsdp_enabled:
            return
        kind = self.accelerator.state.fsdp_plugin.state_dict_type
        if kind != StateDictType.FULL_STATE_DICT:
            raise ValueError(
                f"fsdp_state_dict_type {kind.name} saves no whole model that can be loaded and pushed. Set it to "
                "FULL_STATE_DICT."
            )
        in_16_bits = self.accelerator.mixed_precision in ("bf16", "fp16")
        if self.accelerator.is_fsdp2 and in_16_bits and any(isinstance(m, BATCH_NORM) for m in self.model.modules()):
            raise ValueError(
                f"FSDP2 would compute BatchNorm with weights in {self.accelerator.mixed_precision} and statistics in "
                "float32, which torch does not do. Pass bf16=False and fp16=False, or train without FSDP."
            )

    def _check_perturbation(self, objective: Objective, found: str) -> None:
        """Refuse what only pixels can be given; noise and blur can be moved to normalised images instead."""
        if objective.uses_perturbation and (self.perturbation is not None or objective.perturbation == "jpeg"):
            name = repr(objective.perturbation) if self.perturbation is None else name_of(self.perturbation)
            raise ValueError(
                f"perturbation={name} acts on pixels, but {found}. Pass the image processor as processing_class, or "
                "pixel_stats=PixelStats(mean, std) with the values that images were normalised with."
            )

    def _check_label_columns(self) -> None:
        """Refuse wrong labels of a `datasets.Dataset` before the first step; others are seen batch by batch."""
        dataset, num_labels = self.train_dataset, self._num_labels
        if not isinstance(dataset, datasets.Dataset):
            return
        for name in {"label", *self.label_names} & set(dataset.column_names):
            check_numbered(dataset, name, "the training set")
            labels = torch.as_tensor(dataset.with_format("torch", columns=[name])[:][name])
            if num_labels is not None and not labels.is_floating_point():
                advice = "Load the model with num_labels of the dataset, or map the labels to 0 .. num_labels - 1."
                check_labels(labels.flatten(), num_labels, f"column {name!r} of the training set", advice)

    @property
    def _num_labels(self) -> int | None:
        """The number of classes in the model's config; `None` for a module that has none."""
        return getattr(getattr(self.model, "config", None), "num_labels", None)

    @property
    def _is_whole_model(self) -> bool:
        """Whether each process holds the whole model and saves it with `save_pretrained` (no adapters, no shards)."""
        spread = self.is_deepspeed_enabled or self.is_fsdp_enabled
        return isinstance(self.model, PreTrainedModel) and not spread

    # ---- Data ----

    def get_train_dataloader(self) -> DataLoader:
        """As in `Trainer`; random transforms of the images depend on (seed, epoch, index) only."""
        dataset, seed = self.train_dataset, self.args.seed if self.args.data_seed is None else self.args.data_seed
        if isinstance(dataset, datasets.Dataset):
            dataset = self._remove_unused_columns(dataset, description="Training")
        is_stream = isinstance(dataset, IterableDataset)  # which has no indices
        self._keyed_dataset = None if is_stream else KeyedDataset(dataset, seed)
        with temporarily(self, train_dataset=self._keyed_dataset or dataset):
            return shield_workers(super().get_train_dataloader(), self.args)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """As in `Trainer`, of every sample."""
        if not (eval_dataset is None or isinstance(eval_dataset, str) or eval_dataset is self.eval_dataset):
            # With persistent workers, Trainer would use the loader of its own `eval_dataset` again.
            return self.get_test_dataloader(eval_dataset)
        with temporarily(self.args, dataloader_drop_last=False):
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        """As in `Trainer`, of every sample."""
        with temporarily(self.args, dataloader_drop_last=False):
            return super().get_test_dataloader(test_dataset)

    # ---- Training ----

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """
        As in `Trainer`. A warning names what is not exact about resuming, and a checkpoint of another objective is
        refused. A Hub id has its `last-checkpoint` resumed from.
        """
        objective = objective_of(self.args)  # also checks values that a search may have set
        self._objective, self.perturbed_in = None, None
        if self.introduces_itself:
            name = None if self.perturbation is None else name_of(self.perturbation)
            cost = expected_cost(objective)
            price = f"; a step takes about {cost:.1f} times as long as with cross-entropy alone" if cost > 1 else ""
            self._warn(f"MaCS: {describe(objective, name)}{price}.")
        self._check_label_columns()
        checkpoint = checkpoint_to_resume(resume_from_checkpoint, self.args, self._identity(), self.resumes_only_same)
        if checkpoint is not None and (earlier := read_identity(checkpoint)) is not None:
            self.perturbed_in = earlier.get(SPACE)
        with (
            lost_processes_named(self.args),
            averaging(self.callback_handler, checkpoint) as self._average,
            stopping_on_signals(self) as self._stop,
        ):
            return super().train(checkpoint, *args, **kwargs)

    def _identity(self) -> dict[str, Any]:
        return identity_of(self.args, self.train_dataset, self.run_facts)

    def _run_epoch(self, *, epoch: int, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            # A finished run was resumed; Trainer would take one more step before it notices.
            self.control.should_training_stop = True
            return
        if self._keyed_dataset is not None:
            self._keyed_dataset.set_epoch(epoch)  # accelerate does not, in a distributed run
        super()._run_epoch(epoch=epoch, **kwargs)

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> tuple[nn.Module, DataLoader]:
        # After a batch size that did not fit in memory, training starts anew here.
        self._loss_log, self._micro_step = LossLog(), (-1, 0)
        # What was folded into the weights that training starts from says nothing of those it ends with.
        forget_calibration(calibration_record(self.model))
        with divided_by_blocks(self.model, self.accelerator):
            return super()._prepare_for_training(*args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if not self._is_whole_model:
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        restore_weights(self.model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if not self._is_whole_model:
            return super()._load_best_model()
        restore_weights(self.model, self.state.best_model_checkpoint)
        self._average.discard()  # the checkpoint's model is the average of its own step

    # ---- Loss ----

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """In training, the objective; in evaluation the clean cross-entropy, which means the same for every method."""
        images, labels = self._images_and_labels(inputs)
        forward = (lambda views: model(pixel_values=views)) if self._takes_pixel_values else model
        own_loss = None if self.compute_loss_func is None else self._loss_of_user
        if model.training:
            if self.trained_size is None:
                self._warn_of_unlike_images(images)
            self.trained_size = tuple(images.shape[-2:])
            parts = supervise(
                forward,
                images,
                labels,
                self._objective or self._settle_objective(images),
                pixel_stats=self.pixel_stats,
                augmix_images=inputs.get("augmix_pixel_values"),
                num_labels=self._num_labels,
                perturbation=self.perturbation,
                cross_entropy=own_loss,
                seed=self._next_batch_seed(),
            )
            # Each micro-batch weighs as much as in Trainer's own `loss`, so that the logged parts add up to it.
            self._loss_log.add(parts, 1 / self.current_gradient_accumulation_steps)
            loss, logits = parts.loss, parts.logits
        else:
            self._note_evaluated(images)
            # A bfloat16 checkpoint gives bfloat16 logits outside of autocast.
            logits = logits_of(forward(images)).float()
            labels = checked_labels(labels, logits.shape[-1])
            loss = (own_loss or F.cross_entropy)(logits, labels)
        # Whatever is returned here besides the loss becomes the predictions.
        return (loss, {"logits": logits}) if return_outputs else loss

    def _images_and_labels(self, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """What every method needs. The loss checks labels on the CPU; a GPU is waited for once per log entry."""
        if "labels" not in inputs or "pixel_values" not in inputs:
            raise ValueError(
                f"A batch must have `pixel_values` and `labels`, but has {sorted(inputs)}. Let the dataset or the "
                "collator give them these names, labels as numbers (and keep remove_unused_columns=False with "
                "on-the-fly transforms)."
            )
        labels = inputs["labels"] if inputs["labels"].is_floating_point() else inputs["labels"].long()
        if labels.device.type != "cpu" and self._num_labels is not None and self._loss_log.sums is None:
            checked_labels(labels.cpu(), self._num_labels)
        return inputs["pixel_values"], labels

    def _settle_objective(self, images: Tensor) -> Objective:
        """What this run minimises, decided when all processes see their first batch: in which space T acts."""
        objective = self._with_class_weights(objective_of(self.args))
        on_pixels = objective.uses_perturbation and (objective.needs_pixel_stats or self.perturbation is not None)
        if on_pixels and self.perturbed_in is None:
            stats, found = self.pixel_stats, UNKNOWN_STATS
            if stats is not None:
                found = f"the first batch does not fit mean={stats.mean} and std={stats.std}, which were found"
            fits = stats is not None and (self._stats_were_given or fits_range(images, stats.mean, stats.std))
            fits = bool(self.accelerator.gather(torch.tensor([fits], device=images.device)).all())
            self.perturbed_in = "pixel" if fits else "normalized"
            if not fits:
                self._check_perturbation(objective, found)
                self._warn(
                    f"Noise and blur act on normalised images, with noise_std={objective.noise_std / TYPICAL_STD:.3g} "
                    f"in place of {objective.noise_std:g} in units of pixels, since {found}. Pass processing_class or "
                    "pixel_stats=PixelStats(mean, std) for units of pixels."
                )
        if on_pixels and self.perturbed_in == "normalized":
            noise_std = objective.noise_std / TYPICAL_STD
            objective = replace(objective, perturbation_space="normalized", noise_std=noise_std)
        if self.perturbation is not None and objective.uses_perturbation:
            with global_rng_preserved():
                check_perturbation(self.perturbation, self.pixel_stats.to_pixels(images.detach()))
        self._objective = objective
        return objective

    def _warn(self, message: str) -> None:
        if self.is_world_process_zero():
            logger.warning(message)

    def _with_class_weights(self, objective: Objective) -> Objective:
        if objective.class_weights is None:
            return objective
        weights = class_weights(objective.class_weights, self.train_dataset, self.label_names, self._num_labels)
        return replace(objective, class_weights=weights)

    def _loss_of_user(self, logits: Tensor, labels: Tensor) -> Tensor:
        # Trainer divides by the accumulation steps, so this has to be the mean over the batch, however it is computed.
        return self.compute_loss_func(ImageClassifierOutput(logits=logits), labels, num_items_in_batch=len(labels))

    def _next_batch_seed(self) -> int:
        """Keyed by (seed, step, micro step, process): each process draws its own noise, and resuming repeats it."""
        step, micro = self._micro_step
        self._micro_step = (step, micro + 1) if step == self.state.global_step else (self.state.global_step, 0)
        return mix_seed(self.args.seed, *self._micro_step, self.args.process_index)

    # ---- Images ----
    # A saved model is used with its image processor, so its accuracy and its temperature hold only if the images that
    # it was given are like those that the processor makes.

    def _note_evaluated(self, images: Tensor) -> None:
        self.evaluated_size = tuple(images.shape[-2:])

    def _warn_of_unlike_images(self, images: Tensor) -> None:
        """Compare the first training batch with what the processor makes."""
        made = _prepared(processor_of(self.model, self.processing_class))
        if made is None:
            return
        size = tuple(images.shape[-2:])
        if made.size not in (None, size):
            self._warn(
                f"Training images have {_pixels(size)}, but the image processor makes {_pixels(made.size)}, at which "
                "the model would be used. The processor is saved with the size of the images that the model is "
                "evaluated with, or else trained with; to choose it yourself, pass a processing_class of that size."
            )
        if images.is_floating_point() and not fits_range(images, made.mean, made.std):
            low, high = images.min().item(), images.max().item()
            self._warn(
                f"Training images have values from {low:.3g} to {high:.3g}, which the image processor would not make. "
                f"Normalise them as it does, with image_mean={made.mean} and image_std={made.std}, or pass the "
                "processing_class that they were prepared with."
            )

    def _processor_to_save(self) -> Any:
        """The processor at the size that the model was evaluated with, or trained with if it was not evaluated."""
        size, used = self.evaluated_size or self.trained_size, processor_of(self.model, self.processing_class)
        made = None if size is None else _prepared(used)
        if made is None or made.size in (None, size):
            return self.processing_class
        processor = self.processing_class
        try:
            if size[0] != size[1]:
                raise ValueError(f"{type(used).__name__} can be resized to squares only.")
            processor = resized_processor(used, size[0])
            message = f"The processor is saved for images of {_pixels(size)}, in place of {_pixels(made.size)}."
        except ValueError as error:
            message = f"The saved processor still makes {_pixels(made.size)}, not {_pixels(size)}: {error}"
        if self._warned_of_size != size:  # once, not at each checkpoint
            self._warn(message)
        self._warned_of_size = size
        return processor

    # ---- Logging ----

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # Only for Trainer's own entries about training, which all processes make together.
        if "loss" in logs or "train_loss" in logs:
            if self._loss_log.sums is None and "loss" in logs and not self._warned_of_override:
                self._warned_of_override = True
                logger.warning(
                    f"{type(self).__name__}.compute_loss does not call MaCSTrainer.compute_loss, so the margin and "
                    "consistency terms are not trained with. To change the cross-entropy term only, pass "
                    "compute_loss_func."
                )
            means = self._loss_log.finite_means(self.accelerator, self.state.global_step, self.args.output_dir)
            logs.update({name: mean for name, mean in means.items() if name != "loss" and "loss" in logs})
            self._loss_log.clear()
        super().log(logs, start_time)

    def _check_finite(self) -> None:
        """Stop a run that diverged. A finite loss may still have had a gradient that was not: see the weights too."""
        self._loss_log.finite_means(self.accelerator, self.state.global_step, self.args.output_dir, self.model)

    # ---- Evaluation ----

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As in `Trainer`, with accuracy, nll, ece, brier and logit_margin beside metrics of yours."""
        if self.is_in_train:
            self._check_finite()
        added = isinstance(getattr(self.compute_metrics, "__self__", None), RowsBeside)
        # A search without an objective of its own adds up all metrics but the loss.
        if added or (self.state.is_hyper_param_search and self.compute_objective is default_compute_objective):
            return super().evaluate(*args, **kwargs)
        beside = RowsBeside(self, keeps_logits=self.compute_metrics is not None)
        with temporarily(self, compute_metrics=beside.metrics, preprocess_logits_for_metrics=beside.observe):
            return super().evaluate(*args, **kwargs)

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        """As in `Trainer`, of the averaged weights if there are any; training goes on as if it had not been."""
        if self.accelerator.is_fsdp2 and not sharded_modules(self.model):
            # accelerate divides a model together with its optimiser only.
            raise ValueError(
                "FSDP2 divides a model when it is trained, so it cannot be evaluated before. Train first, or evaluate "
                "without FSDP."
            )
        # Each evaluation loader draws from the global generator, which dropout and drop-path share on a CPU.
        with global_rng_preserved(), self._average.applied():
            share_statistics(self.model)
            output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        beside = getattr(self.compute_metrics, "__self__", None)
        measured = beside.measured if isinstance(beside, RowsBeside) else None
        if self.args.world_size > 1 and measured is not None and self.compute_loss_func is None:
            # Trainer's loss counts the samples that fill up each process's last batch; rows do not.
            output.metrics[f"{metric_key_prefix}_loss"] = float(measured.nll.mean(dtype=np.float64))
        return output

    def measured_model(self) -> MeasuredModel:
        """The model, to be measured on other data than it was trained on; of the averaged weights if there are any."""
        screens = [part.screen for part in self.callback_handler.callbacks if isinstance(part, TerminalCallback)]
        quiet = self.args.disable_tqdm or not self.is_world_process_zero()
        recorded = {} if self.perturbation is None else {"perturbation_function": name_of(self.perturbation)}
        return MeasuredModel(
            self.model,
            self.processing_class,
            self.pixel_stats,
            self.accelerator,
            self.args.eval_batch_size,
            collate_fn=self._get_collator_with_removed_columns(self.data_collator),
            num_workers=self.args.dataloader_num_workers,
            prepared=self._average.applied,
            progress=screens[0].phase if screens else partial(tqdm_bar, disable=quiet),
            on_images=self._note_evaluated,
            train_dataset=self.train_dataset,
            chosen_by_validation=self.args.load_best_model_at_end,
            recorded=recorded,
        )

    def predict_rows(self, dataset: Any) -> SampleRows:
        """One row per sample: label, prediction, confidence, nll, brier score and margin."""
        return self.measured_model().rows(dataset)

    def evaluate_and_report(
        self, test: Any, calibration: Any = None, *, corruptions: str | None = "auto", **metadata: Any
    ) -> EvaluationReport:
        """
        Measure the model on `test`, calibrated on `calibration`, and leave in the output folder all that a person or
        the Hub needs: the model, `evaluation.json`, `samples.parquet`, the card, `report.html` and the pictures.

        Args:
            test, calibration (`Dataset`): Neither trained the model. With `calibration` the temperature is folded into
                the head, and thresholds are stored in the config; without, the model stays as it is.
            corruptions (`str`, *optional*, defaults to `"auto"`): Parameter set of the corruption benchmark, 95 passes
                over `test`; `None` for none. `auto` also means none where it is not known how pixels were normalised.
            metadata: Other arguments of [`evaluate_checkpoint`], such as `corruption_samples=500`, `dataset="pets"`.

        Returns:
            [`EvaluationReport`]: `print(report)` shows it; `trainer.push_to_hub(report=report)` pushes it.
        """
        if corruptions == "auto":
            known = self.pixel_stats is not None and self.processing_class is not None
            corruptions = default_corruptions(self.processing_class) if known else None
        recorded = recorded_arguments(self.args) | recorded_processes(self.args)
        metadata = {"training_arguments": recorded, "seeds": {"seed": self.args.seed}} | metadata
        report, rows = evaluate_checkpoint(self, test, calibration, corruptions=corruptions, **metadata)
        if report.temperature is not None:
            self.fold_temperature(report.temperature.value, calibration)
            store_guarantees(calibration_record(self.model), report.guarantees)
        self.save_model(_internal_call=True)
        if self.is_world_process_zero():
            write_report(report, rows, self.args.output_dir)
        self.create_model_card(report=report)
        return report

    # ---- Calibration ----

    def predict_logits(self, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
        """Logits and labels of samples that neither train the model nor test it."""
        return self.measured_model().logits(dataset)

    def calibrate(self, dataset: Any, *, force_temperature: bool = False) -> Temperature:
        """
        Fold a temperature into the head, if it helps beyond chance or is forced, and store guarantees in the config,
        both from held-out data.
        """
        exact = not self.args.load_best_model_at_end
        found = calibrate_logits(*self.predict_logits(dataset), exact=exact, force_temperature=force_temperature)
        fit, guarantees = found
        self.fold_temperature(fit.value, dataset)
        store_guarantees(calibration_record(self.model), guarantees)
        return fit

    def fold_temperature(self, temperature: float, dataset: Any) -> None:
        """Divide the logits by `temperature` for good, checked on a few samples of `dataset`."""
        spread = is_deepspeed_zero3_enabled() if self.is_deepspeed_enabled else self.is_fsdp_enabled
        if spread and not self.accelerator.is_fsdp2:
            raise ValueError(
                "Weights that DeepSpeed's stage 3 or FSDP version 1 has spread over processes cannot be folded. Save "
                "the model, then run `macs-hf calibrate` on the saved folder, or train with fsdp_version 2."
            )
        images = next(iter(self.get_test_dataloader(dataset)))["pixel_values"][:4].cpu()
        with full_precision(self.model):
            fold_temperature(self.model, temperature, *broadcast_object_list([images]))  # the same in all processes

    # ---- Saving ----

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self._check_finite()
        # A run that a signal stops has to continue from here.
        with temporarily(self.args, save_only_model=self.args.save_only_model and not self._stop.stopping):
            super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)  # the last file that each process writes; only the state is written later
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            write_record(output_dir, self._identity() | {SPACE: self.perturbed_in})

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As in `Trainer`: of the averaged weights if there are any, and a timm model in timm's own layout."""
        folder, writes = Path(output_dir or self.args.output_dir), self.args.should_save
        replaces_model = writes and folder == Path(self.args.output_dir)
        processor = self._processor_to_save()
        with (
            atomic_folder(folder, replaces=WEIGHT_FILES) if replaces_model else nullcontext(folder) as draft,
            self._average.applied(),
            temporarily(self, processing_class=processor),
        ):
            super().save_model(str(draft), _internal_call=True)
            model = extract_model_from_parallel(self.model, keep_torch_compile=False)
            if writes and isinstance(model, TimmWrapperForImageClassification):
                # Of weights that are divided, only the file has all.
                saved = load_file(draft / SAFE_WEIGHTS_NAME)
                save_in_timm_layout(model, draft, getattr(processor, "data_config", None), saved)
        if writes and is_checkpoint(folder) and not self.args.save_only_model:
            self._average.save_raw_weights(folder)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    # ---- The Hub ----

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Find out who pushes and whether they may, and make the repository and its branch."""
        self._check_run()  # before anything is made
        if self.is_world_process_zero():
            for folder in Path(self.args.output_dir).glob(f"{STAGED}*"):
                shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed: it keeps deleted checkpoints
            self.hub_model_id = open_repo(self.args, token, private)
            self.push_in_progress = None

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
        report: EvaluationReport | None = None,
        gallery: bool | None = None,
        draft: str | Path | None = None,
    ) -> None:
        """
        Write `README.md` from `report`, with the parameters of `Trainer`; `tasks`, `dataset` and `dataset_args` are
        accepted because it has them, but the task and the dataset are those of the report. `gallery` says whether the
        card shows the test images of `mistakes.png`. The card goes to `draft`, if given, a folder whose files will be
        moved to the output folder.
        """
        if not self.is_world_process_zero():
            return
        folder = Path(self.args.output_dir)
        tags = [tags] if isinstance(tags, str) else tags
        if found := self._model_tags:
            earlier = CardSettings.load(folder)
            kept = [tag for tag in tags or (earlier.tags if earlier else ()) if not tag.startswith("trackio:")]
            tags = list(dict.fromkeys([*kept, *found]))
        name = model_name or (self.hub_model_id or folder.absolute().name).rpartition("/")[2]
        write_card(
            draft or folder,
            self.hub_model_id or name,
            report,
            earlier=folder,
            name=name,
            license=license,
            language=language,
            tags=tags,
            base_model=finetuned_from or getattr(getattr(self.model, "config", None), "_name_or_path", None) or None,
            datasets=[dataset_tags] if isinstance(dataset_tags, str) else dataset_tags,
            gallery=gallery,
            module=calibration_record(self.model) is self.model,
            # Of the model as it is now; it may not be saved yet.
            temperature=getattr(calibration_record(self.model), TEMPERATURE_FIELD, None),
        )

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        saved: bool = False,
        **card: Any,
    ) -> "CommitInfo | Future[CommitInfo] | None":
        """
        Save the model, then push it with its processor, its report, pictures and card, in one commit.

        Fold the temperature, write the report (`write_report`) and pass it as `report` too. If the push fails, nothing
        is lost: [`~macs_hf.publishing.PushError`] says how to push again. All processes have to call it; one pushes.

        Args:
            commit_message, blocking, token, revision, private: As in `Trainer.push_to_hub`.
            saved (`bool`, *optional*, defaults to `False`): Whether the model and its card are in the output folder
                already.
            card: Passed to [`~MaCSTrainer.create_model_card`], such as `license` and `report`.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if self.hub_model_id is None:
            self.init_hf_repo(token, private)
        if not saved:
            self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        if self.push_in_progress is not None:
            self.push_in_progress.wait_until_done()
        settings = CardSettings.load(self.args.output_dir)
        # Trackio names its page only when a push begins, after the card was written.
        if not saved or (settings is not None and not set(self._model_tags) <= set(settings.tags)):
            self.create_model_card(**card)
        report = card.get("report")
        if not saved and report is not None and saved_report(self.args.output_dir) == report:
            add_checksums(self.args.output_dir, is_folded=True)  # of the weights that were saved just now
        return push_folder(
            self.args.output_dir,
            self.hub_model_id,
            private=self.args.hub_private_repo if private is None else private,
            revision=revision or self.args.hub_revision,
            commit_message=commit_message,
            token=token,
            blocking=blocking,
            with_report=report is not None,
            allow_chance_level=True,  # the card says so; on a rented machine, what is not pushed is lost
        )

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """
        Push a checkpoint while training goes on, if `hub_strategy` asks for it and no other is still on its way. One
        that was saved because the run stops is only pushed to be resumed from.
        """
        args, state = self.args, self.state
        wanted = (
            args.hub_strategy == HubStrategy.CHECKPOINT
            if self._stop.stopping
            else args.hub_strategy != HubStrategy.END
        )
        if not (wanted and self.is_world_process_zero()):
            return
        running = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if running and not args.hub_always_push:
            return
        self.callback_handler.on_push_begin(args, state, self.control)
        where = {HubStrategy.CHECKPOINT: LAST_CHECKPOINT, HubStrategy.ALL_CHECKPOINTS: Path(checkpoint_folder).name}
        steps = args.save_strategy == SaveStrategy.STEPS
        at = f"step {state.global_step}" if steps else f"epoch {int(state.epoch)}"
        jobs = self.push_in_progress.jobs if running else []
        try:
            job = push_checkpoint(
                checkpoint_folder,
                self.hub_model_id,
                commit_message=f"Training in progress, {at}",
                revision=args.hub_revision,
                path_in_repo=where.get(args.hub_strategy),
                tags=self._model_tags,
            )
            self.push_in_progress = PushInProgress([*jobs, job])
        except OSError as error:  # such as a full disk: no reason to end the training
            logger.warning(f"{checkpoint_folder} is not pushed: {error}.")

    @property
    def _model_tags(self) -> tuple[str, ...]:
        """What was added with `model.add_model_tags`; trackers put the page with the training's curves there."""
        return tuple(getattr(self.model, "model_tags", None) or ())  # a plain module has none


# ---- The parts of the loss ----


class LossLog:
    """
    Weighted means of the parts of the loss between two log entries, summed on the device so that no step waits for it,
    and a watch over whether they are finite.
    """

    def __init__(self) -> None:
        self.last_finite_step = 0
        self.clear()

    def clear(self) -> None:
        """Begin the next log entry."""
        self._names: tuple[str, ...] = ()
        self.sums: Tensor | None = None
        self._weight = 0.0

    def add(self, parts: MaCSLoss, weight: float) -> None:
        # A loss that is not finite shows in its sum.
        used = {name: value for name, value in parts._asdict().items() if value is not None and name != "logits"}
        added = torch.stack([value.detach() for value in used.values()]) * weight
        self._names, self._weight = tuple(used), self._weight + weight
        self.sums = added if self.sums is None else self.sums + added

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
        if self.sums is not None:
            reduced = accelerator.reduce(self.sums / self._weight, "mean").tolist()
            means = dict(zip(self._names, reduced, strict=True))
        flags = [] if model is None else [weights.detach().isfinite().all() for weights in local_parameters(model)]
        finite = not flags or bool(accelerator.gather(torch.stack(flags).all()).all())
        if not finite or not math.isfinite(means.get("loss", 0.0)):
            checkpoint = last_complete_checkpoint(output_dir, up_to_step=self.last_finite_step)
            raise FloatingPointError(
                f"The loss became nan or infinite between steps {self.last_finite_step} and {step}. Lower "
                "learning_rate, set max_grad_norm, or use bf16 in place of fp16, then start a new run, with the last "
                f"good checkpoint as its model: {checkpoint or 'none was saved'}."
            )
        self.last_finite_step = step
        return means


# ---- Images ----


def fits_range(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> bool:
    """
    Whether `images` may be pixels in [0, 1] that were normalised with `mean` and `std`: hardly any value lies outside
    of their range, and they are not pixels as they were before. What cannot be compared, such as another number of
    channels, fits.
    """
    if images.ndim != 4 or len(mean) not in (1, images.shape[1]):
        return True
    mean_, std_ = (images.new_tensor(part).float().view(-1, 1, 1) for part in (mean, std))
    pixels = images.detach().float() * std_ + mean_  # in [0, 1] if they were prepared alike
    outside = ((pixels < -SLACK) | (pixels > 1 + SLACK)).float().mean().item()
    not_normalised = images.min().item() >= 0 and images.max().item() <= 1 and (-mean_ / std_).min().item() < -0.5
    return outside <= TOLERATED_SHARE and not not_normalised


def _prepared(processor: Any) -> Preparation | None:
    """What the processor does; `None` if there is none, or one that does not make scaled RGB."""
    try:
        return None if processor is None else preparation(processor)
    except ValueError:
        return None


def _pixels(size: Size) -> str:
    return f"{size[0]} x {size[1]} pixels"


# ---- Beside the class ----


@contextmanager
def temporarily(target: Any, **attributes: Any) -> Iterator[None]:
    """Give attributes of `target` other values inside the block; afterwards they are what they were."""
    before = {name: getattr(target, name) for name in attributes}
    vars(target).update(attributes)
    try:
        yield
    finally:
        vars(target).update(before)
