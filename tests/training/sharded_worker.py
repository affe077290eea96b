"""Run by test_sharding.py under `accelerate launch` with a configuration of examples/accelerate: trains, resumes,
calibrates and saves each model, and writes what it saw as JSON."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from tiny import Augmented, Images, arguments, build, end_process

from macs_hf import MaCSTrainer
from macs_hf.sharding import local_parameters, reshard, sharded_modules


MODELS = ("vit", "timm", "resnet")  # the last one has BatchNorm
FOLDED = 1.7


def start(name: str, folder: Path, precision: dict[str, bool]) -> MaCSTrainer:
    steps = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 2}
    # Asked to keep to CPUs, accelerate leaves DeepSpeed out.
    use_cpu = os.environ.get("ACCELERATE_USE_DEEPSPEED") != "true"
    args = arguments(folder, per_device_train_batch_size=4, use_cpu=use_cpu, **steps, **precision)
    return MaCSTrainer(model=build(name), args=args, train_dataset=Augmented(24), eval_dataset=Images(10, seed=1))


def main(output_dir: str, *precision: str) -> None:
    chosen, results = dict.fromkeys(precision, True), {}
    for name in MODELS if not precision else MODELS[:2]:  # BatchNorm is refused in 16 bits
        folder = Path(output_dir, name)
        run = start(name, folder, chosen)
        run.train()
        run.save_model(str(folder / "whole"), _internal_call=True)
        found: dict[str, Any] = {"modules": len(sharded_modules(run.model)), "class": type(run.model).__name__}
        before = torch.tensor(run.predict_logits(Images(13, seed=2))[0])
        found["rounding"] = (torch.tensor(run.predict(Images(13, seed=2)).predictions) - before).abs().max().item()
        reshard(run.model)
        found["shares"] = (
            sum(p.numel() for p in local_parameters(run.model)),
            sum(p.numel() for p in run.model.parameters()),
        )
        try:
            run.fold_temperature(FOLDED, Images(5, seed=4))
            found["temperature"] = FOLDED * run.calibrate(Images(450, seed=3)).value
        except ValueError as error:
            found |= {"temperature": 1.0, "refused": str(error)}
        after = torch.tensor(run.predict_logits(Images(13, seed=2))[0])
        found |= {"before": before.tolist(), "after": after.tolist(), "evaluation": run.evaluate()["eval_nll"]}
        run.save_model(_internal_call=True)
        results[name] = found
        run = start(name, folder, chosen)
        run.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
        run.save_model(str(folder / "resumed"), _internal_call=True)
    end_process(output_dir, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
