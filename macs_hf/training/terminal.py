"""`TerminalCallback`: training in a terminal as one bar and one line an epoch."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import has_length

from .epoch_line import IN_TRAINING, EpochLine, epoch_text, scores_in
from .screen import SECONDS_BETWEEN_SIGNS_OF_LIFE, Bar, Screen


class TerminalCallback(TrainerCallback):
    """
    Shows a run of any `Trainer` as one bar with the loss and the time left, and one line for each epoch or evaluation
    with the mean loss, accuracy, ECE, and whether a checkpoint was saved. In a log file there are lines only.

    [`~TerminalCallback.add_to`] puts it in place of the bar and the dictionaries that `Trainer` prints. It asks
    `Trainer` for one more log entry at the end of each epoch, so that the line has the loss of the whole epoch.

    Args:
        screen ([`Screen`], *optional*): Where to write; defaults to `sys.stdout`.
    """

    def __init__(self, screen: Screen | None = None) -> None:
        self.screen = Screen() if screen is None else screen
        self._training: Bar | None = None
        self._other: Bar | None = None  # of an evaluation outside of training
        self._in_phase = False
        self._line = EpochLine()
        self._sign_of_life = 0.0

    def add_to(self, trainer: Trainer) -> None:
        """Add this callback to `trainer`, and remove the one that shows its progress now."""
        for callback in (DEFAULT_PROGRESS_CALLBACK, PrinterCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(self)
        if not trainer.is_world_process_zero():
            self.screen = Screen(enabled=False)

    @contextmanager
    def phase(self, label: str) -> Iterator[Bar]:
        """Inside, evaluations and predictions are shown as one piece of work with this label."""
        with self.screen.phase(label) as bar:
            self._other, self._in_phase = bar, True
            try:
                yield bar
            finally:
                self._other, self._in_phase = None, False

    @contextmanager
    def counted_phase(self, label: str, total: int | None = None, **of_tqdm: Any) -> Iterator[Bar]:
        """A phase whose work counts by itself, called as tqdm is."""
        with self.phase(label) as bar:
            bar.total = total
            yield bar

    # ---- Training ----

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self._training = self.screen.bar(epoch_text(args, state, begun=True), state.max_steps)
            self._training.begin_at(state.global_step)
            self._line = EpochLine(first_step=state.global_step)
            self._sign_of_life = time.monotonic()

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._show_line(args, state)
        if self._training is not None:
            self._training.label = epoch_text(args, state, begun=True)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._show_line(args, state)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._training is not None:
            self._training.update(state.global_step - self._training.done)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        control.should_log = True  # in all processes, which log together
        self._line.is_due = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self._training is None or not logs or "loss" not in logs:
            return
        self._line.add_loss(float(logs["loss"]), state.global_step)
        self._training.set_postfix_str(f"loss {float(logs['loss']):.4f}")
        if time.monotonic() - self._sign_of_life > SECONDS_BETWEEN_SIGNS_OF_LIFE and not self._line.is_due:
            self._sign_of_life = time.monotonic()
            if not self.screen.is_terminal:
                counted = f"step {state.global_step:,}/{state.max_steps:,}"
                self.screen.line(f"{counted}   loss {float(logs['loss']):.4f}   {self._training.left}")

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._line.is_saved = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._show_line(args, state)
        if self._training is not None:
            self._training.close()
            self._training = None

    # ---- Evaluation ----

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero:
            return
        if self._training is not None and not self._in_phase:
            self._training.label = f"{epoch_text(args, state)}, validating"
            self._training.draw()
            return
        if self._other is None:
            self._other = self.screen.bar("evaluating")
        if self._other.total is None and has_length(eval_dataloader):
            self._other.total = len(eval_dataloader)
        self._other.update()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        found = scores_in(metrics or {})
        if self._training is not None:
            self._line.scores += found[:IN_TRAINING]
            self._line.is_due = True
            self._training.label = epoch_text(args, state)
        elif state.is_world_process_zero:
            self._end_of_other()
            self.screen.line("   ".join(["evaluated", *found]))

    def on_predict(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._end_of_other()

    def _end_of_other(self) -> None:
        if self._other is not None and not self._in_phase:
            self._other.close()
            self._other = None

    def _show_line(self, args: TrainingArguments, state: TrainerState) -> None:
        """Write the line of an epoch or evaluation. When the next step begins, it is known whether it was saved."""
        if self._training is None or not self._line.is_due:
            return
        self.screen.line(self._line.text(epoch_text(args, state)))
        self._line = EpochLine(first_step=state.global_step)
        self._sign_of_life = time.monotonic()


def view_of(trainer: Trainer) -> TerminalCallback | None:
    """The callback that shows what `trainer` does, if it has one."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TerminalCallback):
            return callback
    return None


@contextmanager
def phase(trainer: Trainer, label: str) -> Iterator[None]:
    """Inside, what `trainer` predicts is shown with a label, if a [`TerminalCallback`] shows it."""
    view = view_of(trainer)
    if view is None:
        yield
        return
    with view.phase(label):
        yield
