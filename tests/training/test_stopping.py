"""A run that a signal stops, or that is killed: it continues from what it saved to the same weights."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import Augmented, Images, build, logged, same_weights, trainer
from training.launching import ENVIRONMENT, HERE, launch, results
from transformers import TrainerCallback

from macs_hf import MaCSTrainer
from macs_hf.training.checkpoints import checkpoints, last_complete_checkpoint
from macs_hf.training.signals import TrainingStopped, lost_processes_named


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
    ("number", "step", "event", "saved"),
    [
        (signal.SIGINT, 4, "on_step_begin", 5),
        (signal.SIGTERM, 2, "on_step_begin", 3),  # the last step of an epoch
        (signal.SIGTERM, 3, "on_evaluate", 4),
        (signal.SIGTERM, 7, "on_step_begin", 8),  # the last step of all
        (signal.SIGTERM, 8, "on_evaluate", 8),
    ],
)
def test_stopped_by_a_signal_and_started_again_equals_never_stopped(
    number: signal.Signals,
    step: int,
    event: str,
    saved: int,
    whole: MaCSTrainer,
    tmp_path: Path,
) -> None:
    run = start(tmp_path / "run", Send(step, number, event=event), **BEST)
    stopped = stop(run)
    assert (stopped.code, run.state.global_step) == (128 + number, saved)
    assert stopped.checkpoint == last_complete_checkpoint(tmp_path / "run")
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
def test_workers_of_loaders_survive_what_their_run_does(number: signal.Signals, method: str, tmp_path: Path) -> None:
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


def test_a_second_ctrl_c_ends_at_once_but_not_a_repeated_sigterm(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, Send(1, signal.SIGINT, signal.SIGINT)).train()
    assert checkpoints(tmp_path) == [] and signal.getsignal(signal.SIGINT) is before
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
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="needs the main thread"):
        pool.submit(start(tmp_path).train).result()


# ---- Whole processes ----


WORKER = HERE / "launched_worker.py"


def work(folder: Path, processes: int, check: bool = True, **settings: Any) -> subprocess.CompletedProcess:
    return launch(WORKER, folder, json.dumps(settings), processes=processes, check=check)


@pytest.mark.slow
def test_a_signal_to_one_of_two_processes_stops_both_after_the_same_step(tmp_path: Path) -> None:
    # Three steps an epoch. BatchNorm and an average: each process has statistics of its own, saved are the first's.
    settings = {"per_device_train_batch_size": 4, "save_steps": 100, "max_steps": 8, "ema_decay": 0.7}
    work(tmp_path / "whole", 2, **settings)
    # Process 1 is sent the signal in step 4.
    stopped = work(tmp_path / "run", 2, check=False, send=[1, 3, signal.SIGTERM], **settings)
    (checkpoint,) = checkpoints(tmp_path / "run")
    assert checkpoint == last_complete_checkpoint(tmp_path / "run") == tmp_path / "run" / "checkpoint-4"
    assert stopped.stderr.count("Stopped by SIGTERM after step 4. ") == 1
    assert stopped.returncode != 0 and "exitcode  : 143" in stopped.stderr
    assert not list((tmp_path / "run").glob("rank*.json"))
    alone = work(shutil.copytree(tmp_path / "run", tmp_path / "alone"), 1, **settings)
    assert results(tmp_path / "alone")[0]["step"] == 8
    assert alone.stderr.count("not exactly as if it had not stopped: processes: 2, now 1") == 1
    work(tmp_path / "run", 2, **settings)
    assert results(tmp_path / "run") == results(tmp_path / "whole")


GLOO = RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer")
NCCL = torch.distributed.DistBackendError("NCCL error in: unhandled system error")
OTHER = RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x16 and 32x4)")


@pytest.mark.parametrize(
    ("error", "processes", "expected"), [(NCCL, 2, True), (GLOO, 2, True), (GLOO, 1, False), (OTHER, 2, False)]
)
def test_errors_of_a_transport_are_known(error: RuntimeError, processes: int, expected: bool, tmp_path: Path) -> None:
    args = SimpleNamespace(world_size=processes, process_index=0, output_dir=str(tmp_path))
    with pytest.raises(ConnectionError if expected else RuntimeError), lost_processes_named(args):
        raise error


@pytest.mark.slow
def test_a_process_whose_partner_died_ends_in_a_sentence_that_names_the_newest_checkpoint(tmp_path: Path) -> None:
    """Without a launcher, which would end it too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = {"send": [1, 4, signal.SIGKILL], "save_steps": 2, "max_steps": 60, "per_device_train_batch_size": 4}
    shared = ENVIRONMENT | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared["ACCELERATE_USE_CPU"] = "true"
    first, second = (
        subprocess.Popen(
            [sys.executable, str(WORKER), str(tmp_path), json.dumps(settings)],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    errors = first.communicate(timeout=300)[1], second.communicate(timeout=300)[1]
    assert second.returncode == -signal.SIGKILL and first.returncode == 1, errors
    (sentence,) = [line for line in errors[0].splitlines() if "ConnectionError: " in line]
    assert sentence.endswith(f"continues from {tmp_path / 'checkpoint-4'}.")
    assert "gloo" not in errors[0].lower()


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "kills"), [(1, 8), (2, 4)])
def test_killed_again_and_again_at_any_moment_equals_never_stopped(processes: int, kills: int, tmp_path: Path) -> None:
    settings = {"per_device_train_batch_size": 8 // processes, "save_steps": 1, "save_total_limit": 2}
    settings |= {"max_steps": 60, "ema_decay": 0.7}
    work(tmp_path / "whole", processes, **settings)
    killed = 0
    for seed in range(kills):
        done = work(tmp_path / "run", processes, check=False, kill_seed=seed, **settings)
        killed += done.returncode == (-signal.SIGKILL if processes == 1 else 1)
    assert killed >= kills // 2, done.stderr[-3000:]
    work(tmp_path / "run", processes, **settings)
    assert results(tmp_path / "run") == results(tmp_path / "whole")  # of the first process, which saves
