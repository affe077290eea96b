"""The line that a terminal shows for an epoch, or for the steps up to an evaluation."""

import math
import re
import time
from collections.abc import Mapping
from typing import Any

from transformers import TrainerState, TrainingArguments

from .screen import duration


# What a line shows of an evaluation, where it was measured: the end of the key, the label, whether in percent.
SHOWN = (
    ("accuracy", "accuracy", True),
    ("ece", "ECE", True),
    ("nll", "NLL", False),
    ("loss", "validation loss", False),
)
IN_TRAINING = 2  # of the above: a line has to fit a narrow terminal


def epoch_text(args: TrainingArguments, state: TrainerState, begun: bool = False) -> str:
    """Where training is: epochs where it is asked for them and is between two of them, else steps."""
    epochs = math.ceil(args.num_train_epochs)
    if args.max_steps > 0 or args.eval_strategy == "steps":
        return f"step {state.global_step:{len(f'{state.max_steps:,}')},}/{state.max_steps:,}"
    epoch = state.epoch or 0.0
    number = math.floor(epoch + 1e-6) + 1 if begun else math.ceil(epoch - 1e-6)
    return f"epoch {min(number, epochs):{len(str(epochs))}}/{epochs}"


def scores_in(metrics: Mapping[str, Any]) -> list[str]:
    """Those of an evaluation's metrics that are shown, with the name of its dataset if there are several."""
    found = []
    for name, label, in_percent in SHOWN:
        for key, value in metrics.items():
            if found_key := re.fullmatch(rf"eval_(?:(.+)_)?{name}", key):
                dataset = f"{found_key[1]} " if found_key[1] else ""
                found.append(
                    f"{dataset}{label} {100 * value:5.2f}%" if in_percent else f"{dataset}{label} {value:.4f}"
                )
    return found


class EpochLine:
    """What is known of an epoch, or of the steps up to an evaluation."""

    def __init__(self, first_step: int = 0) -> None:
        self.is_due = self.is_saved = False
        self.scores: list[str] = []
        self._start = time.monotonic()
        self._step = self._first = first_step
        self._sum = 0.0

    def add_loss(self, loss: float, step: int) -> None:
        """The mean loss of the steps since the last one."""
        self._sum += loss * (step - self._step)
        self._step = step

    def text(self, place: str) -> str:
        steps = self._step - self._first
        parts = [place]
        if steps > 0 and math.isfinite(self._sum):
            parts.append(f"loss {self._sum / steps:.4f}")
        parts += self.scores
        parts += ["saved"] if self.is_saved else []
        return "   ".join([*parts, duration(time.monotonic() - self._start)])
