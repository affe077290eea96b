"""`MaCSTrainer`: a `transformers.Trainer` that trains with Margin and Consistency Supervision.

The objective is in `supervision.py`, what makes runs repeatable in `repeatable.py`, evaluation and calibration in
`calibrating_trainer.py`; here is what ties them together.
"""

import os
from typing import Any

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.utils import logging

from ..data.columns import check_numbered
from ..objective.objective import Objective, objective_of
from ..objective.supervision import logits_of, supervise
from ..pixels import PixelStats
from ..randomness import mix_seed
from .calibrating_trainer import CalibratingTrainer
from .checkpoints import last_complete_checkpoint, weights_are_finite
from .hub_trainer import HubTrainer
from .loss_log import LossLog
from .repeatable import RepeatableTrainer


logger = logging.get_logger(__name__)


class MaCSTrainer(CalibratingTrainer, HubTrainer, RepeatableTrainer):
    """
    Drop-in replacement for [`~transformers.Trainer`], for classifiers that take `pixel_values` and return `.logits`.

    Args:
        args ([`MaCSTrainingArguments`] or [`~transformers.TrainingArguments`], *optional*):
            With plain `TrainingArguments` the paper's objective applies.
        pixel_stats ([`PixelStats`], *optional*):
            How images were normalised, if the perturbation acts on pixels and `processing_class` does not tell.

    All other arguments are those of `Trainer`.
    """

    # compute_loss returns the mean over the micro-batch, so Trainer has to divide by the accumulation steps.
    loss_is_scaled_for_ga = False

    def __init__(self, *args: Any, pixel_stats: PixelStats | None = None, **kwargs: Any) -> None:
        self.pixel_stats = pixel_stats
        self._objective: Objective | None = None
        self._loss_log = LossLog()
        self._last_finite_step = 0
        self._micro_step = (-1, 0)
        super().__init__(*args, **kwargs)
        # The model never sees labels; this also saves a count of them, gathered over processes, at each step.
        self.model_accepts_loss_kwargs = False
        if self.args.label_names is None:
            # Trainer reads them off the model's signature, which a wrapper may hide.
            self.label_names = ["labels"]

    @property
    def training_objective(self) -> Objective:
        """What `args` ask for now (a hyperparameter search changes them between runs)."""
        return objective_of(self.args)

    # ---- Checks before anything runs ----

    def _validate_args(self) -> None:
        super()._validate_args()
        if self.args.n_gpu > 1:
            raise ValueError(
                f"{self.args.n_gpu} GPUs are visible to one process, which torch.nn.DataParallel would split each "
                "batch over, views apart from one another. Start one process per GPU with `accelerate launch`, or set "
                "CUDA_VISIBLE_DEVICES to one GPU."
            )
        started = int(os.environ.get("WORLD_SIZE", 1))
        if started > 1 and self.args.world_size == 1:
            raise ValueError(
                f"This is one of {started} processes, but they do not know of each other and would all train alone. "
                "Without a GPU pass use_cpu=True (--use_cpu true); with one, start them with `accelerate launch`."
            )
        if isinstance(self.train_dataset, datasets.DatasetDict):
            raise ValueError(
                f"train_dataset is a DatasetDict of the splits {sorted(self.train_dataset)}. Pass one of them, "
                "such as data['train']."
            )
        if self.compute_loss_func is not None:
            raise ValueError("compute_loss_func would replace the MaCS objective. Leave it out, or use plain Trainer.")
        config = getattr(self.model, "config", None)
        problem_type = getattr(config, "problem_type", None)
        if problem_type not in (None, "single_label_classification"):
            raise ValueError(
                f"problem_type={problem_type!r} has no single label per image, so it has no margin. Use a model with "
                "problem_type='single_label_classification'."
            )
        num_labels = getattr(config, "num_labels", None)
        if num_labels is not None and num_labels < 2:
            raise ValueError(f"num_labels={num_labels}: a classifier needs at least two classes to choose between.")
        if self.pixel_stats is None:
            self.pixel_stats = PixelStats.from_processor(self.processing_class)
        if self.training_objective.needs_pixel_stats and self.pixel_stats is None:
            raise ValueError(
                f"perturbation={self.training_objective.perturbation!r} with perturbation_space="
                f"{self.training_objective.perturbation_space!r} acts on pixels, but their normalisation is not "
                "known. Pass the image processor as processing_class, or pixel_stats=PixelStats(mean, std)."
            )

    def _check_labels(self, labels: Tensor, where: str) -> None:
        num_labels = getattr(getattr(self.model, "config", None), "num_labels", None)
        if num_labels is None or labels.is_floating_point() or labels.numel() == 0:
            return
        low, high = labels.min().item(), labels.max().item()
        if low < 0 or high >= num_labels:
            raise ValueError(
                f"Label {low if low < 0 else high} in {where} is outside [0, {num_labels}), the model's num_labels. "
                "Load the model with num_labels of the dataset, or map the labels to 0 .. num_labels - 1."
            )

    # ---- Training ----

    def train(self, *args: Any, **kwargs: Any) -> Any:
        # Objective() validates; a search may have set values that the arguments' own check has not seen.
        logger.info(f"Training with {self.training_objective}")
        if isinstance(self.train_dataset, datasets.Dataset):
            for name in {"label", *self.label_names} & set(self.train_dataset.column_names):
                check_numbered(self.train_dataset, name, "the training set")
                column = self.train_dataset.with_format("torch", columns=[name])[:][name]
                self._check_labels(torch.as_tensor(column), f"column {name!r} of the training set")
        if hasattr(getattr(self.model, "config", None), "calibration_temperature"):
            # Folded into the weights that training starts from; it says nothing of those it ends with.
            del self.model.config.calibration_temperature
        self._loss_log, self._last_finite_step = LossLog(), 0
        return super().train(*args, **kwargs)

    def _run_epoch(self, **kwargs: Any) -> None:
        self._objective = self.training_objective
        super()._run_epoch(**kwargs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """
        In training, the MaCS objective; in evaluation the clean cross-entropy from one forward pass, which is
        deterministic and means the same for every method.
        """
        if "labels" not in inputs or "pixel_values" not in inputs:
            raise ValueError(
                f"A batch must have `pixel_values` and `labels`, but has {sorted(inputs)}. Let the dataset or the "
                "collator give them these names (and keep remove_unused_columns=False with on-the-fly transforms)."
            )
        images, labels = inputs["pixel_values"], inputs["labels"]
        if labels.is_floating_point() == (labels.ndim == 1) or labels.ndim > 2:
            raise ValueError(
                f"`labels` of shape {tuple(labels.shape)} and type {labels.dtype} are neither class numbers, "
                "integers of shape (batch,), nor class probabilities, floats of shape (batch, classes)."
            )
        labels = labels if labels.is_floating_point() else labels.long()

        def forward(pixel_values: Tensor) -> Any:
            return model(pixel_values=pixel_values)

        # Reading labels on an accelerator waits for it, so there only one batch between two log entries is checked.
        if labels.device.type == "cpu" or self._loss_log.sums is None:
            self._check_labels(labels, "a batch")
        if model.training:
            parts = supervise(
                forward,
                images,
                labels,
                self._objective or self.training_objective,
                pixel_stats=self.pixel_stats,
                augmix_images=inputs.get("augmix_pixel_values"),
                num_labels=getattr(getattr(self.model, "config", None), "num_labels", None),
                seed=self._next_batch_seed(),
            )
            # Each micro-batch weighs as much as in Trainer's own `loss`, so that the logged parts add up to it.
            self._loss_log.add(parts, 1 / getattr(self, "current_gradient_accumulation_steps", 1))
            loss, logits = parts.loss, parts.logits
        else:
            # A bfloat16 checkpoint gives bfloat16 logits outside of autocast.
            logits = logits_of(forward(images)).float()
            loss = F.cross_entropy(logits, labels)
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
            means = self._stop_if_diverged()
            logs.update({name: mean for name, mean in means.items() if name != "loss" and "loss" in logs})
            self._loss_log = LossLog()
        super().log(logs, start_time)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self._check_finite()
        super()._save_checkpoint(model, trial)

    def _check_finite(self) -> None:
        # A finite loss may still have had a gradient that was not.
        if self.is_whole_model() and not weights_are_finite(self.model):
            self._raise_diverged()
        self._stop_if_diverged()

    def _stop_if_diverged(self) -> dict[str, float]:
        """The means of the parts since the last log entry, if the loss was finite all along."""
        means = self._loss_log.means(self.accelerator)
        if not np.isfinite(means.get("loss", 0.0)):
            self._raise_diverged()
        self._last_finite_step = self.state.global_step
        return means

    def _raise_diverged(self) -> None:
        checkpoint = last_complete_checkpoint(self.args.output_dir, up_to_step=self._last_finite_step)
        resume = f" with resume_from_checkpoint={str(checkpoint)!r}" if checkpoint else ""
        raise FloatingPointError(
            f"The loss became nan or infinite between steps {self._last_finite_step} and {self.state.global_step}. "
            f"Last good checkpoint: {checkpoint or 'none was saved'}. Lower learning_rate, set max_grad_norm, or use "
            f"bf16 in place of fp16, then train again{resume}."
        )

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        if self.is_in_train:
            self._check_finite()
        return super().evaluate(*args, **kwargs)
