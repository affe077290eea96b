"""Evaluation without holding logits, and calibration: what `MaCSTrainer` does once there is a model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import EvalPrediction, Trainer
from transformers.trainer_utils import EvalLoopOutput

from ..calibration import TemperatureFit, fit_temperature_report, fold_temperature
from ..metrics import summarize
from ..report.rows import SampleRows, sample_rows


class CalibratingTrainer(Trainer):
    """A `Trainer` that reports calibration, and gives its model a temperature."""

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """
        As in `Trainer`; without a `compute_metrics` of yours it reports accuracy, nll, ece, brier and the mean logit
        margin. Logits are reduced to a few numbers per sample on the device, so no process ever holds all of them.
        """
        if self.compute_metrics or self.preprocess_logits_for_metrics or self.args.batch_eval_metrics:
            return super().evaluate(*args, **kwargs)
        with self._reducing_to_rows():
            return super().evaluate(*args, **kwargs)

    @contextmanager
    def _reducing_to_rows(self, temperatures: Sequence[float] = (1.0,)) -> Iterator[None]:
        def rows(logits: Tensor, labels: Tensor | None) -> Tensor:
            if labels is None:
                return logits
            return torch.cat([sample_rows(logits / temperature, labels) for temperature in temperatures], dim=1)

        self.preprocess_logits_for_metrics, self.compute_metrics = rows, _summary
        try:
            yield
        finally:
            self.preprocess_logits_for_metrics = self.compute_metrics = None

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        nll = output.metrics.get(f"{metric_key_prefix}_nll")
        if self.args.world_size > 1 and self.compute_metrics is _summary and nll is not None:
            # Trainer's mean has the samples in it that fill up the last batch of each process; the rows have not.
            output.metrics[f"{metric_key_prefix}_loss"] = nll
        return output

    def predict_rows(self, dataset: Any, temperatures: Sequence[float] = (1.0,)) -> list[SampleRows]:
        """For each temperature, one row per sample: label, prediction, confidence, nll, brier score and margin."""
        with self._reducing_to_rows(temperatures):
            rows = self.predict(dataset).predictions
        return [SampleRows.from_array(part) for part in np.split(rows, len(temperatures), axis=1)]

    def fit_temperature(self, dataset: Any) -> TemperatureFit:
        """Fit a temperature on labelled samples that neither train the model nor test it; the model stays as it is."""
        same_data = _fingerprint(dataset) is not None and _fingerprint(dataset) == _fingerprint(self.train_dataset)
        if dataset is self.train_dataset or same_data:
            raise ValueError(
                "A temperature was to be fitted on the training set, where the model is more confident than anywhere "
                "else. Pass a validation split that was held out."
            )
        prediction = self.predict(dataset)
        if prediction.label_ids is None:
            raise ValueError("A temperature needs labelled samples, but the dataset gives no `labels`.")
        return fit_temperature_report(prediction.predictions, prediction.label_ids)

    def calibrate(self, dataset: Any) -> TemperatureFit:
        """
        Fit a temperature on held-out data and fold it into the classifier head, once training is over.

        Whoever loads the saved model then gets calibrated probabilities without any code of this package. Checkpoints
        written during training stay as they are.
        """
        fit = self.fit_temperature(dataset)
        self.fold_temperature(fit.temperature, dataset)
        return fit

    def fold_temperature(self, temperature: float, dataset: Any) -> None:
        """Divide the logits by `temperature` for good, checked on a few samples of `dataset`."""
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise ValueError(
                "A model that is spread over processes cannot be folded. Save it, then run `macs-hf calibrate` on the "
                "saved folder."
            )
        batch = next(iter(self.get_test_dataloader(dataset)))
        fold_temperature(self.model, temperature, batch["pixel_values"][:4].to(self.args.device))


def _summary(prediction: EvalPrediction) -> dict[str, float]:
    return summarize(SampleRows.from_array(prediction.predictions[:, :6]))


def _fingerprint(dataset: Any) -> str | None:
    """Which data a dataset holds, if it tells (`datasets.Dataset` does)."""
    return getattr(dataset, "_fingerprint", None)
