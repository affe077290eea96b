"""Averaged weights: an exponential moving average of all weights, evaluated and saved in place of the last ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from .arguments import check_ema_decay, ema_decay_of


# In a checkpoint whose model is the average: the weights that the optimiser continues from.
RAW_WEIGHTS_FILE = "raw_weights.pt"


def restore_raw_weights(model: nn.Module, checkpoint: str | Path) -> None:
    """Load into `model` the weights that were trained, not the averaged ones, of a checkpoint with both."""
    model.load_state_dict(torch.load(Path(checkpoint) / RAW_WEIGHTS_FILE, map_location="cpu", weights_only=True))


class WeightAverage(TrainerCallback):
    """
    The average of a model's weights and BatchNorm statistics over the steps of a run; inert without `ema_decay`.

    After step t, `average = d * average + (1 - d) * weights` with `d = min(ema_decay, (t - 1) / (t + 9))`. The second
    value is a warm-up: the average covers about the last tenth of a run so far, so that a short run is not dominated
    by the weights it started from. Counters, which are no floating-point numbers, are copied.
    """

    def __init__(self, checkpoint: str | None = None) -> None:
        self._checkpoint = checkpoint
        self.discard()

    # ---- Called by the trainer's loop ----

    def on_train_begin(self, args: TrainingArguments, *_: Any, model: nn.Module, **__: Any) -> None:
        decay = ema_decay_of(args)
        check_ema_decay(decay)  # a hyperparameter search sets values that the arguments have not seen
        if decay is not None:
            # These share their memory with the model; all that changes them does so in place.
            self._weights = model.state_dict()
            # What was loaded from a checkpoint is the average, if there was one.
            self._average = {name: weight.clone() for name, weight in self._weights.items()}
        if self._checkpoint is not None and (Path(self._checkpoint) / RAW_WEIGHTS_FILE).is_file():
            restore_raw_weights(model, self._checkpoint)

    def on_optimizer_step(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        if not self._average:
            return
        averages, weights = [], []
        for average, weight in zip(self._average.values(), self._weights.values(), strict=True):
            if average.is_floating_point():
                averages.append(average)
                weights.append(weight)
            else:
                average.copy_(weight)
        updates = state.global_step  # before this one
        decay = min(ema_decay_of(args), updates / (updates + 10))
        get_ema_multi_avg_fn(decay)(averages, weights, updates)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.finish()

    # ---- Called by the trainer ----

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def save_raw_weights(self, checkpoint: str | Path) -> None:
        if self._average:
            torch.save(self._weights, Path(checkpoint) / RAW_WEIGHTS_FILE)

    def finish(self) -> None:
        """Leave the averaged weights in the model for good."""
        for name, average in self._average.items():
            self._weights[name].copy_(average)
        self.discard()

    def discard(self) -> None:
        """Forget the average; the model keeps the weights that it has."""
        self._weights: dict[str, Tensor] = {}
        self._average: dict[str, Tensor] = {}

    def _exchange(self) -> None:
        """In place, since the optimiser, DistributedDataParallel and compiled code hold the model's tensors."""
        for name, average in self._average.items():
            raw = self._weights[name].clone()
            self._weights[name].copy_(average)
            average.copy_(raw)


@contextmanager
def averaging(callbacks: CallbackHandler, checkpoint: str | None) -> Iterator[WeightAverage]:
    """Average inside the block, in which `Trainer` trains; however it ends, the model then has the average."""
    average = WeightAverage(checkpoint)
    callbacks.callbacks.insert(0, average)  # first, so that other callbacks see what it did
    try:
        yield average
    finally:
        callbacks.remove_callback(average)
        average.finish()
