"""Averaged weights: an exponential moving average of all weights, evaluated and saved in place of the last ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast
from timm.utils import ModelEmaV3
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from .arguments import MaCSTrainingArguments, check_ema_decay


# In a checkpoint whose model is the average: the weights that the optimiser goes on from.
RAW_WEIGHTS_FILE = "raw_weights.pt"


def ema_decay_of(args: TrainingArguments) -> float | None:
    """The decay that `args` ask for; plain `TrainingArguments` ask for none."""
    return args.ema_decay if isinstance(args, MaCSTrainingArguments) else None


def restore_raw_weights(model: nn.Module, checkpoint: str | Path) -> None:
    """Load into `model` the weights that were trained, not the averaged ones, of a checkpoint with both."""
    path = Path(checkpoint) / RAW_WEIGHTS_FILE
    if not path.is_file():
        raise ValueError(
            f"{str(checkpoint)!r} has no {RAW_WEIGHTS_FILE}: it was saved without ema_decay, or with "
            "save_only_model=True. Resume without ema_decay, or choose another checkpoint."
        )
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))


class WeightAverage(TrainerCallback):
    """
    The average of a model's weights and BatchNorm statistics over the steps of a run; inert without `ema_decay`.

    After step t, `average = d * average + (1 - d) * weights` with `d = min(ema_decay, (t - 1) / (t + 9))`. The second
    value is a warm-up: the average covers about the last tenth of a run so far, so that a short run is not dominated
    by the weights it started from. Counters, which are no floating-point numbers, are copied.
    """

    def __init__(self, checkpoint: str | None = None) -> None:
        self._checkpoint = checkpoint
        self._model: nn.Module | None = None
        self._average: ModelEmaV3 | None = None

    # ---- Called by the trainer's loop ----

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        decay = ema_decay_of(args)
        check_ema_decay(decay)  # a hyperparameter search sets values that the arguments have not seen
        if decay is None:
            if self._checkpoint is not None and (Path(self._checkpoint) / RAW_WEIGHTS_FILE).is_file():
                raise ValueError(
                    f"The model in {self._checkpoint!r} is an average, from which training cannot go on. Resume with "
                    "the ema_decay that it was trained with."
                )
            return
        self._model = model
        # What was loaded from a checkpoint is the average.
        self._average = ModelEmaV3(model, decay=decay, use_warmup=True, warmup_gamma=10, warmup_power=1)
        if self._checkpoint is not None:
            restore_raw_weights(model, self._checkpoint)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._average is not None:
            self._average.update(self._model, step=state.global_step + 1)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.finish()

    # ---- Called by the trainer ----

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        if self._average is None:
            yield
            return
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def share_statistics(self) -> None:
        """
        Give all processes the BatchNorm statistics of the first, which are the ones that are saved. Each process
        averages those of its own batches.
        """
        if self._average is not None:
            broadcast(list(self._average.module.buffers()))

    def save_raw_weights(self, checkpoint: str | Path) -> None:
        if self._average is not None:
            torch.save(self._model.state_dict(), Path(checkpoint) / RAW_WEIGHTS_FILE)

    def finish(self) -> None:
        """Leave the averaged weights in the model for good."""
        if self._average is not None:
            self._model.load_state_dict(self._average.module.state_dict())
            self.discard()

    def discard(self) -> None:
        """Forget the average; the model keeps the weights that it has."""
        self._model = self._average = None

    @torch.no_grad()
    def _exchange(self) -> None:
        """In place, since the optimiser, DistributedDataParallel and compiled code hold the model's tensors."""
        averaged = self._average.module.state_dict()
        for name, weight in self._model.state_dict().items():
            raw = weight.clone()
            weight.copy_(averaged[name])
            averaged[name].copy_(raw)


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
