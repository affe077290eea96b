"""`CalibrationCallback`: calibration at each evaluation of any `Trainer`, beside the user's own metrics."""

import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback, rewrite_logs

from ..metrics import measure, summarize
from ..plots.reliability import plot_measurements
from ..plots.style import png
from ..report.logits import sample_rows
from ..report.rows import SampleRows


TRACKERS = (TensorBoardCallback, TrackioCallback, WandbCallback)
DPI = 110


class CalibrationCallback(TrainerCallback):
    """
    Logs accuracy, NLL, ECE, Brier score and the mean logit margin at each evaluation, and the reliability diagram to
    TensorBoard, trackio or wandb, for a classifier in any [`~transformers.Trainer`]:

        trainer.add_callback(CalibrationCallback(trainer))

    `Trainer` gives a callback its metrics but no predictions. So this one takes the places of the trainer's
    `compute_metrics` and `preprocess_logits_for_metrics`, and calls those that were there with what they were called
    with before: their results, and those of `predict`, stay the same. Where both have a metric of one name, the
    user's is kept.

    Args:
        trainer ([`~transformers.Trainer`]):
            The trainer, with the `compute_metrics` that it shall have; one given to it later would replace this.
        figures (`bool`, *optional*, defaults to `True`):
            Whether to draw the reliability diagram, if there is a tracker that can show it.
    """

    def __init__(self, trainer: Trainer, *, figures: bool = True) -> None:
        if trainer.args.prediction_loss_only:
            raise ValueError("CalibrationCallback needs predictions: set prediction_loss_only=False.")
        if len(trainer.label_names) != 1:
            raise ValueError(
                f"CalibrationCallback needs one column of labels, but label_names is {trainer.label_names}: set "
                "label_names=['labels'] in the training arguments."
            )
        if any(isinstance(callback, CalibrationCallback) for callback in trainer.callback_handler.callbacks):
            raise ValueError("the trainer has a CalibrationCallback already: remove one of them.")
        self.figures = figures
        self._trainer = trainer
        self._users_metrics, self._users_preprocessing = trainer.compute_metrics, trainer.preprocess_logits_for_metrics
        trainer.compute_metrics, trainer.preprocess_logits_for_metrics = self._metrics, self._observe
        self._rows: list[Tensor] = []
        self._labels = 0
        self._measured: SampleRows | None = None

    def _observe(self, logits: Any, labels: Tensor | None) -> Any:
        """Keep six numbers of each sample, on its device, and hand the logits on."""
        if labels is not None:
            scores = logits[0] if isinstance(logits, tuple | list) else logits  # further outputs, as hidden states
            # All processes are here at once, and samples that fill up the last batch are left out.
            self._rows.append(self._trainer.accelerator.gather_for_metrics(sample_rows(scores, labels)))
        return logits if self._users_preprocessing is None else self._users_preprocessing(logits, labels)

    def _metrics(self, prediction: EvalPrediction, **batch: bool) -> dict[str, float]:
        """Called once or, with `batch_eval_metrics`, for each batch, and with `compute_result=True` for the last."""
        given = {} if self._users_metrics is None else self._users_metrics(prediction, **batch)
        labels = prediction.label_ids
        # A list has the labels of each batch, with `eval_do_concat_batches=False`.
        self._labels += sum(map(len, labels)) if isinstance(labels, list) else len(labels)
        if not batch.get("compute_result", True):
            return given
        # Only the last rows: an evaluation that failed may have left some.
        rows = torch.cat(self._rows)[-self._labels :].cpu().numpy()
        self._rows, self._labels = [], 0
        self._measured = SampleRows.from_array(rows)
        given = given or {}
        prefixes = ("", "eval_", "test_")  # Trainer adds the prefix to names that lack it
        own = summarize(self._measured).items()
        return {name: value for name, value in own if not any(f"{p}{name}" in given for p in prefixes)} | given

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        rows, self._measured = self._measured, None
        trackers = [part for part in self._trainer.callback_handler.callbacks if isinstance(part, TRACKERS)]
        if rows is None or not (self.figures and trackers and state.is_world_process_zero):
            return
        prefix = min((name for name in kwargs["metrics"] if name.endswith("_runtime")), key=len)
        ((name, _),) = rewrite_logs({f"{prefix.removesuffix('_runtime')}_reliability": None}).items()
        figure = plot_measurements({f"Step {state.global_step:,}, n = {len(rows):,}": measure(rows)})
        with Image.open(io.BytesIO(png(figure, DPI))) as image:
            for tracker in trackers:
                _send(tracker, name, image.convert("RGB"), state.global_step)


def _send(tracker: TrainerCallback, name: str, image: Image.Image, step: int) -> None:
    if isinstance(tracker, TensorBoardCallback):
        tracker.tb_writer.add_image(name, np.asarray(image), step, dataformats="HWC")
        tracker.tb_writer.flush()
    elif isinstance(tracker, TrackioCallback):
        import trackio

        trackio.log({name: trackio.Image(image), "train/global_step": step})
    else:
        import wandb

        wandb.log({name: wandb.Image(image), "train/global_step": step})
