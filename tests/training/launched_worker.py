"""Run by test_processes.py and test_stopping.py, in one process or several: trains, continues from what it finds, is
stopped or killed on the way, and each process that comes to its end writes what it logged and drew."""

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from tiny import Augmented, Drawn, Images, Spy, arguments, build, end_process, logged
from transformers import TrainerCallback

from macs_hf import MaCSTrainer
from macs_hf.training import checkpoint_to_continue


class SendTo(TrainerCallback):
    """Sends a signal to the process of one rank while it is in a step."""

    def __init__(self, rank: int, step: int, number: int) -> None:
        self.rank, self.step, self.number = rank, step, number

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.process_index == self.rank and state.global_step == self.step:
            os.kill(os.getpid(), self.number)


class KillAtRandom(TrainerCallback):
    """Kills a process at some moment of its training: in a step, in an evaluation, or while it saves."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.process_index == self.random.randrange(args.world_size):
            threading.Thread(target=self.kill, daemon=True).start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(0.05)  # to be killed in

    def kill(self) -> None:
        time.sleep(self.random.uniform(0.1, 1.5))
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, settings: dict[str, Any]) -> None:
    callbacks: list[TrainerCallback] = []
    if send := settings.pop("send", None):
        callbacks.append(SendTo(*send))
    if (seed := settings.pop("kill_seed", None)) is not None:
        callbacks.append(KillAtRandom(seed))
    spies = settings.pop("spies", False)
    checkpoint = settings.pop("resume", None) or checkpoint_to_continue(folder)
    options = {"save_strategy": "steps", "eval_strategy": "epoch", "stop_on_signals": True}
    run = (Spy if spies else MaCSTrainer)(
        model=build("resnet"),
        args=arguments(folder, **options | settings),
        train_dataset=Drawn(24) if spies else Augmented(),
        eval_dataset=Images(10, seed=1),
        callbacks=callbacks,
    )
    run.train(resume_from_checkpoint=checkpoint)
    tensors = run.model.state_dict().values()
    weights = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()
    found = {"step": run.state.global_step, "weights": weights}
    if spies:
        evaluation, prediction = run.evaluate(), run.predict(Images(13, seed=2))
        found |= {
            "losses": {key: logged(run, key) for key in ("loss", "consistency_loss", "eval_loss")},
            "seeds": run.seeds,
            "drawn": run.drawn,
            "evaluation": {name: evaluation[f"eval_{name}"] for name in ("loss", "nll")},
            "predictions": prediction.predictions.tolist(),
            "temperature": run.calibrate(Images(101, seed=3)).value,
        }
    end_process(folder, found)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
