"""A run that a signal stops: it saves after the step it is in, and continues from there to the same weights."""

import multiprocessing
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tiny import Augmented, Images, build, logged, same_weights, trainer
from transformers import TrainerCallback

from macs_hf import MaCSTrainer
from macs_hf.training.checkpoints import checkpoints, last_complete_checkpoint
from macs_hf.training.signals import TrainingStopped


class Send(TrainerCallback):
    """Sends signals to this process, or to the workers of its loader, at one event of one step."""

    def __init__(self, step: int, *numbers: int, event: str = "on_step_begin", to_workers: bool = False) -> None:
        self.step, self.numbers, self.to_workers = step, numbers, to_workers
        setattr(self, event, self.send)

    def send(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.step = -1
            workers = [process.pid for process in multiprocessing.active_children()]
            assert workers or not self.to_workers
            for number in self.numbers:
                if self.to_workers:  # by another process, since that of the loader may end its workers
                    subprocess.run(["kill", f"-{number:d}", *map(str, workers)], check=True)
                else:
                    os.kill(os.getpid(), number)


def start(folder: Path, *callbacks: TrainerCallback, name: str = "swin", **overrides: Any) -> MaCSTrainer:
    """Eight steps of three per epoch, drop-path on, evaluated and saved at the end of each epoch."""
    options = {"max_steps": 8, "save_strategy": "epoch", "eval_strategy": "epoch", "stop_on_signals": True}
    return trainer(
        folder,
        build(name, **{"drop_path": 0.3} if name == "swin" else {}),
        Augmented(),
        eval_dataset=Images(8, seed=1),
        callbacks=list(callbacks),
        **options | overrides,
    )


def stop(run: MaCSTrainer) -> TrainingStopped:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(TrainingStopped) as stopped:
        run.train()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    return stopped.value


BEST = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "save_total_limit": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> MaCSTrainer:
    """A run that nothing stops."""
    run = start(tmp_path_factory.mktemp("whole"), **BEST)
    run.train()
    return run


@pytest.mark.parametrize(
    ("number", "code", "step", "event", "saved"),
    [
        (signal.SIGTERM, 143, 3, "on_step_begin", 4),
        (signal.SIGINT, 130, 4, "on_step_begin", 5),
        (signal.SIGTERM, 143, 2, "on_step_begin", 3),  # the last step of an epoch
        (signal.SIGTERM, 143, 3, "on_evaluate", 4),
        (signal.SIGTERM, 143, 7, "on_step_begin", 8),  # the last step of all
        (signal.SIGTERM, 143, 8, "on_evaluate", 8),
    ],
)
def test_stopped_by_a_signal_and_started_again_equals_never_stopped(
    number: signal.Signals,
    code: int,
    step: int,
    event: str,
    saved: int,
    whole: MaCSTrainer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = start(tmp_path / "run", Send(step, number, event=event), **BEST)
    stopped = stop(run)
    assert (stopped.code, run.state.global_step) == (code, saved)
    assert stopped.checkpoint == last_complete_checkpoint(tmp_path / "run")
    assert f"Stopped by {number.name} after step {saved}. The same run, started again, continues from" in caplog.text
    assert str(stopped.checkpoint) in caplog.text
    if event != "on_evaluate" or step < 8:  # after the last evaluation there is nothing more to save
        assert stopped.checkpoint == tmp_path / "run" / f"checkpoint-{saved}"
    again = start(tmp_path / "run", **BEST)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 8
    assert same_weights(whole.model, again.model)
    assert logged(again, "eval_loss") == logged(whole, "eval_loss")
    assert again.state.best_metric == whole.state.best_metric


@pytest.mark.parametrize(
    "options",
    [
        {"save_strategy": "no"},
        {"save_only_model": True, "ema_decay": 0.7},
        {"save_strategy": "best", "metric_for_best_model": "loss", "eval_strategy": "steps", "eval_steps": 4},
    ],
    ids=lambda options: next(iter(options)),
)
def test_all_that_going_on_needs_is_saved_however_a_run_saves(options: dict[str, Any], tmp_path: Path) -> None:
    whole = start(tmp_path / "whole", name="resnet", **options)
    whole.train()
    stopped = stop(start(tmp_path / "run", Send(3, signal.SIGTERM), name="resnet", **options))
    # With "best" the evaluation after step 4 decides whether to save, so the stop is one step later.
    saved = 5 if options.get("save_strategy") == "best" else 4
    assert stopped.checkpoint == tmp_path / "run" / f"checkpoint-{saved}"
    again = start(tmp_path / "run", name="resnet", **options)
    again.train(resume_from_checkpoint=str(stopped.checkpoint))
    assert same_weights(whole.model, again.model)


@pytest.mark.parametrize(
    ("number", "method"),
    [
        (signal.SIGTERM, "fork"),
        # Forked workers have the handler of their run.
        pytest.param(signal.SIGINT, "spawn", marks=pytest.mark.slow),
    ],
)
def test_workers_of_loaders_survive_what_their_run_has_to_survive(
    number: signal.Signals, method: str, tmp_path: Path
) -> None:
    """A terminal sends Ctrl-C, and a launcher SIGTERM, to the workers too, while their batches are still needed."""
    # Twelve batches an epoch, of which the workers have made at most seven when they are sent the signal.
    callbacks = Send(2, number, to_workers=True), Send(9, number)
    options = {"dataloader_num_workers": 2, "dataloader_multiprocessing_context": method}
    options |= {"per_device_train_batch_size": 2, "max_steps": 24}
    stopped = stop(start(tmp_path, *callbacks, **options))
    assert stopped.checkpoint == tmp_path / "checkpoint-10"
    # The process that they work for ends them, when it ends itself at the latest.
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    for worker in workers:
        worker.terminate()
        worker.join(timeout=60)
        assert worker.exitcode == 0


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, Send(1, signal.SIGINT, signal.SIGINT)).train()
    assert checkpoints(tmp_path) == [] and signal.getsignal(signal.SIGINT) is before


def test_a_repeated_sigterm_does_not(tmp_path: Path) -> None:
    stopped = stop(start(tmp_path, Send(1, signal.SIGTERM, signal.SIGTERM)))
    assert stopped.checkpoint == tmp_path / "checkpoint-2"


def test_trackers_are_closed(tmp_path: Path) -> None:
    ended = []

    class Tracker(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            ended.append(state.log_history[-1]["step"])

    run = start(tmp_path, Send(1, signal.SIGTERM), Tracker(), logging_steps=100)
    stop(run)
    assert ended == [2]  # what was not logged yet is logged too
    assert not any(type(callback).__name__ == "SignalStop" for callback in run.callback_handler.callbacks)


def test_signals_are_left_alone_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, Send(1, signal.SIGINT), stop_on_signals=False).train()
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:  # as `nohup` and shells do for what runs in the background
        start(tmp_path, Send(1, signal.SIGINT)).train()
    finally:
        signal.signal(signal.SIGINT, ignored)


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"enable_jit_checkpoint=True and stop_on_signals=True both handle SIGTERM"):
        start(tmp_path, enable_jit_checkpoint=True)
    errors: list[Exception] = []

    def train() -> None:
        try:
            start(tmp_path).train()
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert "stop_on_signals=True needs the main thread" in str(errors[0])
