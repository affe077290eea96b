"""
Signals that end a run: it saves a checkpoint after the step it is in, and the same run continues from there. Processes
that die: the others say where to continue.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy
from transformers.training_args import ParallelMode
from transformers.utils import logging

from .arguments import MaCSTrainingArguments
from .checkpoints import checkpoint_line, last_complete_checkpoint


logger = logging.get_logger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stops_on_signals(args: TrainingArguments) -> bool:
    return isinstance(args, MaCSTrainingArguments) and args.stop_on_signals


class TrainingStopped(SystemExit):
    """
    Ends the program, with exit code 143 after SIGTERM and 130 after SIGINT, once its checkpoint is saved.

    Args:
        signal_number (`int`): The signal.
        checkpoint (`Path`, *optional*): From which the same run goes on.
    """

    def __init__(self, signal_number: int, checkpoint: Path | None) -> None:
        super().__init__(128 + signal_number)
        self.checkpoint = checkpoint


class SignalStop(TrainerCallback):
    """
    Saves a checkpoint and ends training when one of the processes has received a signal. All have to save at the same
    step, so they tell each other after each one.
    """

    def __init__(self, process: int = 0) -> None:
        self._process = process
        self.received = 0  # the number of the signal that this process has received
        self.stopping = 0  # that of the one which all processes stop for
        self._previous: dict[int, Any] = {}
        self._group: dist.ProcessGroup | None = None

    # ---- Signals ----

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("stop_on_signals=True needs the main thread, the only one that receives signals.")
        for number in SIGNALS:
            # Ignored by `nohup` and by shells in the background, which mean it; None is a handler of another language.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._previous[number] = signal.signal(number, self._receive)

    def uninstall(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._group is not None:
            dist.destroy_process_group(self._group)  # a hyperparameter search trains many times

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number
        if signal.SIGINT in self._previous:
            # Whoever presses Ctrl-C twice wants the program to end at once; SIGTERM is repeated by launchers.
            signal.signal(signal.SIGINT, self._previous[signal.SIGINT])
        if number == signal.SIGINT and self._process == 0:
            # Not by the logger, which may be writing right now.
            os.write(2, b"\nSaving a checkpoint after this step. Press Ctrl-C again to end at once.\n")

    # ---- Called by the trainer's loop ----

    def on_train_begin(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        if args.parallel_mode == ParallelMode.DISTRIBUTED:
            self._group = dist.new_group(backend="gloo")  # for numbers in main memory, whatever the devices are

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **__: Any) -> None:
        if state.epoch == int(state.epoch) or state.global_step >= state.max_steps:
            return  # the end of the epoch follows, with an evaluation that belongs to this checkpoint
        self._stop_if_asked(args, control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **__: Any) -> None:
        self._stop_if_asked(args, control)

    def on_save(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        if self.stopping:
            if self._group is not None:
                dist.barrier(self._group)  # a launcher ends the others when one process ends
            raise TrainingStopped(self.stopping, last_complete_checkpoint(args.output_dir))

    def agree(self) -> int:
        """The number of the signal that any process has received up to now, the same in all of them; 0 if none."""
        if self._group is None:
            return self.received
        number = torch.tensor(self.received)
        dist.all_reduce(number, dist.ReduceOp.MAX, group=self._group)
        return int(number)

    def _stop_if_asked(self, args: TrainingArguments, control: TrainerControl) -> None:
        number = self.agree()
        # With `save_strategy="best"` an evaluation decides whether to save: then stop after a step without one.
        if number and not (args.save_strategy == SaveStrategy.BEST and control.should_evaluate):
            self.stopping = number
            control.should_log = control.should_save = True


@contextmanager
def stopping_on_signals(trainer: Trainer) -> Iterator[SignalStop]:
    """Inside, where `trainer` trains, signals end the run as [`SignalStop`] does, if `stop_on_signals` asks for it."""
    stop = SignalStop(trainer.args.process_index)
    if not stops_on_signals(trainer.args):
        yield stop
        return
    stop.install()
    trainer.add_callback(stop)
    try:
        yield stop
        signal_number = stop.agree()  # about signals since the last epoch ended
        if signal_number:
            raise TrainingStopped(signal_number, last_complete_checkpoint(trainer.args.output_dir))
    except TrainingStopped as stopped:
        if stop.stopping:  # in the middle: trackers write what they have
            trainer.callback_handler.on_train_end(trainer.args, trainer.state, trainer.control)
        if trainer.is_world_process_zero():
            name = signal.Signals(stopped.code - 128).name
            going_on = checkpoint_line(trainer.args.output_dir)
            logger.warning(f"Stopped by {name} after step {trainer.state.global_step}. {going_on}")
        raise
    finally:
        trainer.remove_callback(stop)
        stop.uninstall()


# ---- Processes that are gone ----


# What torch's transports say when the other end of a connection is gone.
LOST = re.compile("gloo|nccl|connection (was )?(closed|reset|refused)|broken pipe", re.IGNORECASE)


@contextmanager
def lost_processes_named(args: TrainingArguments) -> Iterator[None]:
    """
    Inside, where a process trains together with others, one that is gone ends it with a `ConnectionError` that names
    the checkpoint to go on from, in place of what the transport says.
    """
    try:
        yield
    except RuntimeError as error:
        if args.world_size == 1 or not (isinstance(error, dist.DistError) or LOST.search(str(error))):
            raise
        raise ConnectionError(
            f"Process {args.process_index} of {args.world_size} has lost another one, which was killed or cannot be "
            f"reached. {checkpoint_line(args.output_dir)}"
        ) from None


# ---- Workers of data loaders ----


def shield_workers(loader: DataLoader, args: TrainingArguments) -> DataLoader:
    """
    Let the workers of a loader live on when a signal is sent to all processes of a run, as terminals and launchers do:
    the step that is to be finished may need their batches.
    """
    if stops_on_signals(args) and args.dataloader_num_workers > 0:
        prepared = loader.base_dataloader
        prepared.worker_init_fn = partial(_start_shielded, prepared.worker_init_fn)
    return loader


def _start_shielded(start: Callable[[int], None] | None, worker: int) -> None:
    """A `worker_init_fn`: what the loader had as one, `start`, and then the shield."""
    if start is not None:
        start(worker)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":  # elsewhere there is no way to know who sent a signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_the_loader, daemon=True).start()


def _end_with_the_loader() -> None:
    """SIGTERM from the process that the worker works for is how loaders end their workers."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
