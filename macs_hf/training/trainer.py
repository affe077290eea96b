"""`MaCSTrainer`: a `transformers.Trainer` that trains with Margin and Consistency Supervision."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch.nn.functional as F
from accelerate.utils import broadcast_object_list
from huggingface_hub import CommitInfo
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.trainer_utils import EvalLoopOutput, PredictionOutput, TrainOutput
from transformers.utils import logging

from ..calibration import TemperatureFit, calibrate_logits, fit_temperature_report, fold_temperature, store_guarantees
from ..calibration.folding import calibration_record
from ..data.keyed_draws import KeyedDataset, keyed
from ..disk.atomic_writes import atomic_folder
from ..models.saving import WEIGHT_FILES
from ..objective.losses import checked_labels
from ..objective.objective import Objective, objective_of
from ..objective.supervision import logits_of, supervise
from ..pixels import PixelStats
from ..publishing.access import refuse_hub_token
from ..randomness import global_rng_preserved, mix_seed
from ..report.config_fields import forget_calibration
from ..report.rows import SampleRows
from ..sharding import share_statistics
from . import checks
from .averaging import WeightAverage, averaging
from .checkpoints import is_checkpoint, restore_weights, save_timm_weights
from .fsdp_blocks import divided_by_blocks
from .full_precision import full_precision
from .inputs import Inputs
from .loss_log import LossLog
from .preemption import SignalStop, shield_workers, stopping_on_signals
from .pushing import open_trainer_repo, push_in_background, push_model, write_trainer_card
from .resuming import checkpoint_to_resume, finish_checkpoint
from .row_metrics import rows_at, summary_of_rows, with_loss_of_rows
from .temporary_attributes import temporarily


logger = logging.get_logger(__name__)


class MaCSTrainer(Trainer):
    """
    Drop-in replacement for [`~transformers.Trainer`], for classifiers that take `pixel_values` and return `.logits`.
    It takes the same arguments, and two more.

    Args:
        args ([`MaCSTrainingArguments`] or [`~transformers.TrainingArguments`], *optional*):
            With plain `TrainingArguments` the paper's objective applies.
        pixel_stats ([`PixelStats`], *optional*):
            How images were normalised, if the perturbation acts on pixels and `processing_class` does not say.
        run_facts (`Mapping[str, Any]`, *optional*):
            What makes this the same run when it is resumed, beside objective, recipe and batches: say, the dataset.
    """

    # compute_loss returns the mean over the micro-batch, so Trainer has to divide by the accumulation steps.
    loss_is_scaled_for_ga = False

    def __init__(
        self, *args: Any, pixel_stats: PixelStats | None = None, run_facts: Mapping | None = None, **kwargs: Any
    ) -> None:
        self.pixel_stats, self.run_facts = pixel_stats, run_facts
        self.current_gradient_accumulation_steps = 1  # Trainer's own, before the first step
        self._objective: Objective | None = None
        self._keyed_dataset: KeyedDataset | None = None
        self._loss_log, self._micro_step, self.inputs = LossLog(), (-1, 0), Inputs()
        self._average, self._stop = WeightAverage(), SignalStop()
        super().__init__(*args, **kwargs)
        # The model never sees labels; this also saves a count of them, gathered over processes, at each step.
        self.model_accepts_loss_kwargs = False
        if self.args.label_names is None:
            # Trainer reads them off the model's signature, which a wrapper may hide.
            self.label_names = ["labels"]

    def _validate_args(self) -> None:
        super()._validate_args()
        refuse_hub_token(self.args)
        checks.check_run(self)
        self.pixel_stats = self.pixel_stats or PixelStats.from_processor(self.processing_class)
        checks.check_pixel_stats(objective_of(self.args), self.pixel_stats)

    # ---- Data ----

    def _get_dataloader(self, dataset: Any, *args: Any, is_training: bool = False, **kwargs: Any) -> DataLoader:
        """Random transforms of training images depend on (seed, epoch, index) only; evaluation uses every sample."""
        if is_training:
            if isinstance(dataset, datasets.Dataset):
                dataset = self._remove_unused_columns(dataset, description="Training")
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            self._keyed_dataset = keyed(dataset, seed)
            dataset = dataset if self._keyed_dataset is None else self._keyed_dataset
        with temporarily(self.args, dataloader_drop_last=self.args.dataloader_drop_last and is_training):
            loader = super()._get_dataloader(dataset, *args, is_training=is_training, **kwargs)
        return shield_workers(loader, self.args)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        if eval_dataset is None or isinstance(eval_dataset, str) or eval_dataset is self.eval_dataset:
            return super().get_eval_dataloader(eval_dataset)
        # With persistent workers, Trainer would use the loader of its own `eval_dataset` again.
        return self.get_test_dataloader(eval_dataset)

    # ---- Training ----

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """As in `Trainer`, or refused if it would not be exact; a Hub id has its `last-checkpoint` resumed from."""
        # Also checks values that a search may have set.
        logger.info(f"Training with {objective_of(self.args)}")
        checks.check_label_columns(self.train_dataset, self.label_names, checks.num_labels_of(self.model))
        checkpoint = checkpoint_to_resume(self, resume_from_checkpoint)
        with averaging(self.callback_handler, checkpoint) as self._average, stopping_on_signals(self) as self._stop:
            return super().train(checkpoint, *args, **kwargs)

    def _run_epoch(self, *, epoch: int, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            # A finished run was resumed; Trainer would take one more step before it notices.
            self.control.should_training_stop = True
            return
        self._objective = objective_of(self.args)
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
        if not checks.is_whole_model(self):
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        restore_weights(self.model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if not checks.is_whole_model(self):
            return super()._load_best_model()
        restore_weights(self.model, self.state.best_model_checkpoint)
        self._average.discard()  # the checkpoint's model is the average of its own step

    # ---- Loss ----

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """In training, the objective; in evaluation the clean cross-entropy, which means the same for every method."""
        num_labels = checks.num_labels_of(self.model)
        images, labels = checks.images_and_labels(inputs, num_labels, wait=self._loss_log.is_empty)  # once per log
        self.inputs.see(images, model, self.processing_class)
        if model.training:
            parts = supervise(
                lambda views: model(pixel_values=views),
                images,
                labels,
                self._objective or objective_of(self.args),
                pixel_stats=self.pixel_stats,
                augmix_images=inputs.get("augmix_pixel_values"),
                num_labels=num_labels,
                seed=self._next_batch_seed(),
            )
            # Each micro-batch weighs as much as in Trainer's own `loss`, so that the logged parts add up to it.
            self._loss_log.add(parts, 1 / self.current_gradient_accumulation_steps)
            loss, logits = parts.loss, parts.logits
        else:
            # A bfloat16 checkpoint gives bfloat16 logits outside of autocast.
            logits = logits_of(model(pixel_values=images)).float()
            loss = F.cross_entropy(logits, checked_labels(labels, logits.shape[-1]))
        # Whatever is returned here besides the loss becomes the predictions.
        return (loss, {"logits": logits}) if return_outputs else loss

    def _next_batch_seed(self) -> int:
        """Keyed by (seed, step, micro step, process): each process draws its own noise, and resuming repeats it."""
        step, micro = self._micro_step
        self._micro_step = (step, micro + 1) if step == self.state.global_step else (self.state.global_step, 0)
        return mix_seed(self.args.seed, *self._micro_step, self.args.process_index)

    # ---- Logging ----

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # Only for Trainer's own entries about training, which all processes make together.
        if "loss" in logs or "train_loss" in logs:
            means = self._loss_log.finite_means(self.accelerator, self.state.global_step, self.args.output_dir)
            logs.update({name: mean for name, mean in means.items() if name != "loss" and "loss" in logs})
            self._loss_log.clear()
        super().log(logs, start_time)

    def _check_finite(self) -> None:
        """Stop a run that diverged. A finite loss may still have had a gradient that was not: see the weights too."""
        self._loss_log.finite_means(self.accelerator, self.state.global_step, self.args.output_dir, self.model)

    # ---- Evaluation ----

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As in `Trainer`; without metrics of yours it reports accuracy, nll, ece, brier and the mean logit margin."""
        if self.is_in_train:
            self._check_finite()
        if self.compute_metrics or self.preprocess_logits_for_metrics or self.args.batch_eval_metrics:
            return super().evaluate(*args, **kwargs)
        with temporarily(self, compute_metrics=summary_of_rows, preprocess_logits_for_metrics=rows_at()):
            return super().evaluate(*args, **kwargs)

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        """As in `Trainer`, of the averaged weights if there are any; training goes on as if it had not been."""
        checks.check_sharded(self)
        # Each evaluation loader draws from the global generator, which dropout and drop-path share on a CPU.
        with global_rng_preserved(), self._average.applied():
            share_statistics(self.model)
            output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        return with_loss_of_rows(output, metric_key_prefix, self)

    def predict_rows(self, dataset: Any, temperatures: Sequence[float] = (1.0,)) -> list[SampleRows]:
        """For each temperature, one row per sample: label, prediction, confidence, nll, brier score and margin."""
        rows = self.predict_labelled(dataset, rows_at(temperatures)).predictions
        return [SampleRows.from_array(part) for part in np.split(rows, len(temperatures), axis=1)]

    def predict_labelled(self, dataset: Any, preprocess: Callable | None) -> PredictionOutput:
        """Predictions that no metric of the user's sees, each batch reduced on the device by `preprocess`."""
        with full_precision(self), temporarily(self, compute_metrics=None, preprocess_logits_for_metrics=preprocess):
            prediction = self.predict(dataset)
        checks.check_labelled(prediction)
        return prediction

    # ---- Calibration ----

    def fit_temperature(self, dataset: Any) -> TemperatureFit:
        """Fit a temperature on labelled samples that neither train the model nor test it; the model stays as it is."""
        return fit_temperature_report(*self.predict_logits(dataset))

    def predict_logits(self, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
        """Logits and labels of samples that neither train the model nor test it."""
        checks.check_held_out(dataset, self.train_dataset)
        prediction = self.predict_labelled(dataset, None)
        return prediction.predictions, prediction.label_ids

    def calibrate(self, dataset: Any) -> TemperatureFit:
        """Fold a temperature into the head and store promises in the config, both from held-out data."""
        fit, guarantees = calibrate_logits(*self.predict_logits(dataset), exact=not self.args.load_best_model_at_end)
        self.fold_temperature(fit.temperature, dataset)
        store_guarantees(calibration_record(self.model), guarantees)
        return fit

    def fold_temperature(self, temperature: float, dataset: Any) -> None:
        """Divide the logits by `temperature` for good, checked on a few samples of `dataset`."""
        checks.check_foldable(self)
        images = next(iter(self.get_test_dataloader(dataset)))["pixel_values"][:4].cpu()
        with full_precision(self):
            fold_temperature(self.model, temperature, *broadcast_object_list([images]))  # the same in all processes

    # ---- Saving ----

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self._check_finite()
        # A run that a signal stops has to continue from here.
        with temporarily(self.args, save_only_model=self.args.save_only_model and not self._stop.stopping):
            super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)  # the last file that each process writes
        finish_checkpoint(self, output_dir)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        if not self.args.should_save:  # since 5.23, Trainer calls this in all processes; some models need all to save
            return super()._save(output_dir, state_dict) if self.is_distributed_loading_by_transformers else None
        folder = Path(output_dir or self.args.output_dir)
        if folder == Path(self.args.output_dir):
            with atomic_folder(folder, replaces=WEIGHT_FILES) as draft:
                return self._save(str(draft), state_dict)
        processor = self.inputs.processor_to_save(self.model, self.processing_class)
        with self._average.applied(), temporarily(self, processing_class=processor):
            super()._save(str(folder), state_dict and dict(state_dict))  # it empties the one that it is given
            save_timm_weights(self.model, folder, processor, state_dict)
        if is_checkpoint(folder) and not self.args.save_only_model:
            self._average.save_raw_weights(folder)

    # ---- The Hub ----

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Find out who pushes and whether they may, and make the repository and its branch."""
        open_trainer_repo(self, token, private)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write `README.md` from `report`; the arguments are those of [`write_trainer_card`]."""
        write_trainer_card(self, *args, **kwargs)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> "CommitInfo | Future[CommitInfo] | None":
        """Save the model and push it with report and card in one commit; the arguments are those of [`push_model`]."""
        return push_model(self, *args, **kwargs)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        push_in_background(self, checkpoint_folder, stopping=bool(self._stop.stopping))
