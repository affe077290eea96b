"""Callbacks: calibration at each evaluation of any `Trainer`; training in a terminal as a bar and a line an epoch."""

import atexit
import io
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, TextIO

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text
from torch import Tensor
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback, rewrite_logs
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import has_length

from ..metrics import measure, summarize
from ..rendering.pictures import plot_measurements, png
from ..report.rows import SampleRows, sample_rows
from ..report.text import WIDEST, printable, wrapped


# ---- Calibration ----
# `CalibrationCallback`: calibration at each evaluation of any `Trainer`, beside the user's own metrics.


TRACKERS = (TensorBoardCallback, TrackioCallback, WandbCallback)
DPI = 110


class RowsBeside:
    """
    Our metrics beside a user's `compute_metrics` and `preprocess_logits_for_metrics`: each of its two methods takes
    the place of one of these, and calls it with what it was called with before. Where both have a metric of one name,
    the user's is kept.

    Args:
        trainer ([`~transformers.Trainer`]): With the user's functions, if any.
        keeps_logits (`bool`, *optional*, defaults to `True`): Whether `Trainer` goes on to gather the logits; if not,
            no process ever holds all of them.
    """

    def __init__(self, trainer: Trainer, keeps_logits: bool = True) -> None:
        self.measured: SampleRows | None = None  # of the last evaluation
        self._users_metrics, self._users_preprocessing = trainer.compute_metrics, trainer.preprocess_logits_for_metrics
        self._accelerator, self._keeps_logits = trainer.accelerator, keeps_logits
        self._rows: list[Tensor] = []
        self._labels = 0

    def observe(self, logits: Any, labels: Any) -> Any:
        """Keep six numbers of each sample, on its device, and hand the logits on."""
        if isinstance(labels, Tensor) and labels.ndim == 1 and not labels.is_floating_point():
            scores = logits[0] if isinstance(logits, tuple | list) else logits  # further outputs, as hidden states
            # All processes are here at once, and samples that fill up the last batch are left out.
            self._rows.append(self._accelerator.gather_for_metrics(sample_rows(scores, labels)))
        if not self._keeps_logits:
            return labels
        return logits if self._users_preprocessing is None else self._users_preprocessing(logits, labels)

    def metrics(self, prediction: EvalPrediction, **batch: bool) -> dict[str, float]:
        """Called once or, with `batch_eval_metrics`, for each batch, and with `compute_result=True` for the last."""
        given = {} if self._users_metrics is None else self._users_metrics(prediction, **batch)
        labels = prediction.label_ids
        # A list has the labels of each batch, with `eval_do_concat_batches=False`.
        self._labels += sum(map(len, labels)) if isinstance(labels, list) else len(labels)
        if not batch.get("compute_result", True):
            return given
        given = given or {}
        if not self._rows:
            return given
        # Only the last rows: an evaluation that failed may have left some.
        rows = torch.cat(self._rows)[-self._labels :].cpu().numpy()
        self._rows, self._labels = [], 0
        self.measured = SampleRows.from_array(rows)
        prefixes = ("", "eval_", "test_")  # Trainer adds the prefix to names that lack it
        own = summarize(self.measured).items()
        return {name: value for name, value in own if not any(f"{p}{name}" in given for p in prefixes)} | given


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
        self._beside = RowsBeside(trainer)
        trainer.compute_metrics, trainer.preprocess_logits_for_metrics = self._beside.metrics, self._beside.observe

    def on_evaluate(self, args: Any, state: TrainerState, *_: Any, metrics: Mapping[str, Any], **__: Any) -> None:
        rows, self._beside.measured = self._beside.measured, None
        trackers = [part for part in self._trainer.callback_handler.callbacks if isinstance(part, TRACKERS)]
        if rows is None or not (self.figures and trackers and state.is_world_process_zero):
            return
        prefix = min((name for name in metrics if name.endswith("_runtime")), key=len)
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


# ---- Screen ----
# Where a run writes what a person reads: lines and, below them, at most one bar. A log file gets the lines only.


SECONDS_BETWEEN_DRAWINGS = 0.1
# In a log file, long work shows that it goes on.
SECONDS_BETWEEN_SIGNS_OF_LIFE = 300.0


def duration(since: float) -> timedelta:
    """From a moment of [`time.monotonic`] until now, in whole seconds: printed as 0:00:07."""
    return timedelta(seconds=round(time.monotonic() - since))


class Screen:
    """
    Lines and one bar, on a terminal or in a log file.

    Args:
        enabled (`bool`, *optional*, defaults to `True`): `False` writes nothing, as `--quiet` and all processes of a
            run but the main one do.
        bars (`bool`, *optional*, defaults to `True`): Whether to draw a bar, where there is a terminal.
        file (`TextIO`, *optional*): Defaults to `sys.stdout`.
    """

    def __init__(self, *, enabled: bool = True, bars: bool = True, file: TextIO | None = None) -> None:
        self.enabled = enabled
        self._console = Console(file=file, markup=False, highlight=False, emoji=False)
        self.is_terminal = self._console.file.isatty() and not self._console.is_dumb_terminal
        self.draws = enabled and bars and self.is_terminal
        self._bar: Bar | None = None
        if self.draws:
            atexit.register(self.close)  # an error in a script must not leave the terminal without a cursor

    @property
    def width(self) -> int:
        """Columns to write in: those of the terminal, at most 120."""
        return min(self._console.width, WIDEST)

    def line(self, text: str = "", *, style: str = "", indent: int = 0, wrap: bool = True) -> None:
        """
        Write a line, above the bar if there is one.

        Args:
            text (`str`): Without a newline.
            style (`str`, *optional*): Of rich, such as `bold`; log files have none.
            indent (`int`, *optional*, defaults to 0): By how many columns the rest of a long line is moved in.
            wrap (`bool`, *optional*, defaults to `True`): Break a long line between words, on a terminal. Commands and
                paths are copied, and stay in one piece.
        """
        if not self.enabled:
            return
        parts = [printable(text)]
        if wrap and self.is_terminal:
            parts = wrapped(parts[0], self.width, indent) or parts
        for part in parts:
            self._console.print(Text(part, style=style), soft_wrap=True)

    def bar(self, label: str, total: int | None = None, done: int = 0) -> "Bar":
        """A bar for `total` things, of which `done` were counted before; without a total only the label is shown."""
        self.close()
        self._bar = Bar(self._console, label, total, done, disable=not self.draws)
        return self._bar

    @contextmanager
    def phase(self, label: str, total: int | None = None) -> Iterator["Bar"]:
        """Inside, work goes on that `label` names: a line in a log at once; on a terminal a bar, and then a line."""
        if not self.draws:
            self.line(label)
        start = time.monotonic()
        with closing(self.bar(label, total)) as bar:
            yield bar
        if self.draws:
            self.line(f"{label}  {duration(start)}")

    def close(self) -> None:
        """Remove the bar, which hides the cursor."""
        if self._bar is not None:
            self._bar.close()


class Bar:
    """What is done of how much: a task of rich's, with the methods of a tqdm bar that this package calls."""

    def __init__(
        self, console: Console, label: str, total: int | None, done: int = 0, *, disable: bool = False
    ) -> None:
        columns: list[str | ProgressColumn] = [TextColumn("{task.description}", markup=False), "..."]
        if total is not None:
            count, note = "{task.completed:,}/{task.total:,}", TextColumn("{task.fields[note]}", markup=False)
            columns[1:] = [BarColumn(None), count, note, TimeRemainingColumn(compact=True), "left"]
        # No thread draws it: the workers of data loaders are forked, and would inherit its lock.
        self._progress = Progress(
            *columns,
            console=console,
            auto_refresh=False,
            speed_estimate_period=3600,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),
            disable=disable,
            expand=total is not None,
        )
        self._task = self._progress.add_task(label, total=total, completed=done, note="")
        self._drawn = time.monotonic()
        self._progress.start()

    def update(self, count: int = 1) -> None:
        self._progress.advance(self._task, count)
        self._draw()

    def set_description_str(self, text: str) -> None:
        self._progress.update(self._task, description=text)
        self._draw()

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        widest = len(self._progress.tasks[0].fields["note"])  # so far: the bar does not jump
        self._progress.update(self._task, note=text.rjust(widest))
        if refresh:
            self._draw()

    def _draw(self) -> None:
        """At most ten times a second."""
        if time.monotonic() - self._drawn > SECONDS_BETWEEN_DRAWINGS:
            self._drawn = time.monotonic()
            self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


# ---- Terminal ----
# `TerminalCallback`: training in a terminal as one bar and one line an epoch.


# What a line shows of an evaluation, where it was measured: the end of the key, and the form of its value.
SHOWN = {"accuracy": "accuracy {:6.2%}", "ece": "ECE {:6.2%}", "nll": "NLL {:.4f}", "loss": "validation loss {:.4f}"}
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
    for name, form in SHOWN.items():
        for key, value in metrics.items():
            if parts := re.fullmatch(rf"eval_(?:(.+)_)?{name}", key):
                found.append(" ".join(filter(None, [parts[1], form.format(value)])))
    return found


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
        self._begin_line(0)

    def add_to(self, trainer: Trainer) -> None:
        """Add this callback to `trainer`, and remove the one that shows its progress now."""
        for callback in (DEFAULT_PROGRESS_CALLBACK, PrinterCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(self)
        trainer.introduces_itself = False  # the header of the command has said it
        if not trainer.is_world_process_zero():
            self.screen = Screen(enabled=False)

    # ---- The line of an epoch, or of the steps up to an evaluation ----

    def _begin_line(self, step: int) -> None:
        self._first_step, self._start = step, time.monotonic()
        self._sign_of_life = self._start
        self._is_due = self._is_saved = False
        self._scores: list[str] = []

    def _show_line(self, args: TrainingArguments, state: TrainerState) -> None:
        """Write the line, if it is due. When the next step begins, it is known whether it was saved."""
        if not self._is_due:
            return
        total, step = 0.0, self._first_step
        for entry in state.log_history:  # each has the mean loss of the steps since the last one
            if "loss" in entry and entry["step"] > step:
                total, step = total + entry["loss"] * (entry["step"] - step), entry["step"]
        parts = [epoch_text(args, state)]
        if step > self._first_step and math.isfinite(total):
            parts.append(f"loss {total / (step - self._first_step):.4f}")
        parts += [*self._scores, *(["saved"] if self._is_saved else [])]
        self.screen.line("   ".join([*parts, str(duration(self._start))]))
        self._begin_line(state.global_step)

    # ---- Training ----

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        self._training = self.screen.bar(epoch_text(args, state, begun=True), state.max_steps, state.global_step)
        self._begin_line(state.global_step)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        self._show_line(args, state)
        self._training.set_description_str(epoch_text(args, state, begun=True))

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._training.update()

    def on_epoch_end(self, args: Any, state: Any, control: TrainerControl, **__: Any) -> None:
        control.should_log = True  # in all processes, which log together
        self._is_due = True

    def on_log(self, args: Any, state: TrainerState, *_: Any, logs: Mapping[str, Any], **__: Any) -> None:
        if self._training is None or "loss" not in logs:
            return
        loss = f"loss {logs['loss']:.4f}"
        self._training.set_postfix_str(loss)
        if time.monotonic() - self._sign_of_life > SECONDS_BETWEEN_SIGNS_OF_LIFE and not self._is_due:
            self._sign_of_life = time.monotonic()
            if not self.screen.is_terminal:
                self.screen.line(f"step {state.global_step:,}/{state.max_steps:,}   {loss}")

    def on_save(self, *_: Any, **__: Any) -> None:
        self._is_saved = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        self._show_line(args, state)
        self._training.close()
        self._training = None

    # ---- Evaluation ----

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: Any, eval_dataloader: Any = None, **__: Any
    ) -> None:
        if self._training is not None:
            self._training.set_description_str(f"{epoch_text(args, state)}, validating")
            return
        if self._other is None:
            total = len(eval_dataloader) if has_length(eval_dataloader) else None
            self._other = self.screen.bar("evaluating", total)
        self._other.update()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, *_: Any, metrics: Mapping[str, Any], **__: Any
    ) -> None:
        found = scores_in(metrics)
        if self._training is not None:
            self._scores += found[:IN_TRAINING]
            self._is_due = True
        else:
            self.on_predict()
            self.screen.line("   ".join(["evaluated", *found]))

    def on_predict(self, *_: Any, **__: Any) -> None:
        if self._other is not None:
            self._other.close()
            self._other = None
