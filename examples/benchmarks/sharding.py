"""Step time and memory of FSDP2 over data parallel training (DDP) of the same model, printed as JSON.

    python examples/benchmarks/sharding.py --output sharding.json

Two processes on the CPU train with `MaCSTrainer` over gloo: with the whole model in each (DDP), or with the settings
of examples/accelerate/fsdp2.yaml. Runs of both kinds take turns, in processes of their own, and ratios are medians
over rounds.

- `wall`, `cpu`: seconds of a step, waiting for the other process included or not. On a busy machine, only `cpu` says
  something about the code.
- `held`: bytes that a process keeps from step to step, exactly: weights, gradients and optimizer state.
- `start`, `peak`: the most resident memory over that before the model was built, as Linux counts it: while training is
  set up, when each process still has the whole model, and in the steps that count, with activations, gathered weights
  and buffers of the reduction. In a run of its own, in which all larger tensors go back to the system when they are
  freed: glibc would keep most of them, and so hide what is needed. That costs time.
"""

import argparse
import ctypes
import json
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.commands.config.config_args import load_config_from_file
from side_by_side import publish, resident_kilobytes
from torch import Tensor, multiprocessing
from torch.distributed.tensor import DTensor
from torch.utils.data import Dataset
from transformers import (
    PreTrainedModel,
    PrinterCallback,
    ResNetConfig,
    ResNetForImageClassification,
    TrainerCallback,
    ViTConfig,
    ViTForImageClassification,
)


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import fsdp_on_cpu  # noqa: E402, F401  (makes accelerate run FSDP on CPUs)

from macs_hf import METHODS, MaCSTrainer, MaCSTrainingArguments  # noqa: E402


M_MMAP_THRESHOLD = -3  # of malloc.h
PROCESSES, SIZE, NUM_LABELS = 2, 64, 100
KINDS = ("ddp", "fsdp2")
TIMES, BYTES = ("wall", "cpu"), ("held", "start", "peak")


def vit_small() -> PreTrainedModel:
    sizes = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "intermediate_size": 1536}
    return ViTForImageClassification(ViTConfig(image_size=SIZE, patch_size=16, num_labels=NUM_LABELS, **sizes))


def resnet50() -> PreTrainedModel:
    return ResNetForImageClassification(ResNetConfig(num_labels=NUM_LABELS))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {"ViT-S/16": vit_small, "ResNet-50": resnet50}


class Noise(Dataset):
    def __init__(self, size: int) -> None:
        self.images = torch.randn(size, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.images[index], "labels": torch.tensor(index % NUM_LABELS)}


class Meter(TrainerCallback):
    """Seconds of each step, bytes of the gradients, and the peak of memory before the steps that count."""

    def __init__(self, warmup: int) -> None:
        self.warmup, self.wall, self.cpu, self.gradients, self.peak = warmup, [], [], 0, 0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        if len(self.wall) == self.warmup:
            self.peak = resident("VmHWM")
            forget_peak()
        self.start = (time.perf_counter(), time.process_time())

    def on_pre_optimizer_step(self, *args: Any, model: PreTrainedModel, **kwargs: Any) -> None:
        self.gradients = sum(local_bytes(p.grad) for p in model.parameters() if p.grad is not None)

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.wall.append(time.perf_counter() - self.start[0])
        self.cpu.append(time.process_time() - self.start[1])


def local_bytes(tensor: Tensor) -> int:
    return tensor.to_local().nbytes if isinstance(tensor, DTensor) else tensor.nbytes


def resident(key: str) -> int:
    """Bytes of resident memory of this process: now (`VmRSS`), or the most since the peak was reset (`VmHWM`)."""
    return 1024 * resident_kilobytes(key)


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def work(
    rank: int, kind: str, name: str, port: int, folder: str, options: argparse.Namespace, memory: bool = False
) -> None:
    """What each process does: train, and write what it measured."""
    if memory:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**17)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": PROCESSES, "LOCAL_WORLD_SIZE": PROCESSES}
    os.environ |= {key: str(value) for key, value in places.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if kind == "fsdp2":
        settings = load_config_from_file(str(ROOT / "examples" / "accelerate" / "fsdp2.yaml")).fsdp_config
        os.environ |= {key.upper(): str(value) for key, value in settings.items()}
        os.environ["ACCELERATE_USE_FSDP"] = "true"
    steps = options.warmup + options.steps
    args = MaCSTrainingArguments(
        folder,
        **METHODS["macs"],
        max_steps=steps,
        per_device_train_batch_size=options.batch_size,
        ddp_find_unused_parameters=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
    )
    meter, images = Meter(options.warmup), Noise(PROCESSES * options.batch_size * steps)
    torch.manual_seed(0)
    forget_peak()
    before = resident("VmRSS")
    trainer = MaCSTrainer(model=MODELS[name](), args=args, train_dataset=images, callbacks=[meter])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    peak = resident("VmHWM") - before
    state = [value for values in trainer.optimizer.state.values() for value in values.values()]
    tensors = [*trainer.model.parameters(), *trainer.model.buffers(), *(v for v in state if isinstance(v, Tensor))]
    found = {
        "wall": statistics.median(meter.wall[options.warmup :]),
        "cpu": statistics.median(meter.cpu[options.warmup :]),
        "held": meter.gradients + sum(local_bytes(tensor) for tensor in tensors),
        "start": meter.peak - before,
        "peak": peak,
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


def run(kind: str, name: str, options: argparse.Namespace, memory: bool = False) -> dict[str, float]:
    """The mean over processes of what was measured."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        places = (kind, name, port, folder, options, memory)
        multiprocessing.start_processes(work, args=places, nprocs=PROCESSES, start_method="fork")
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(PROCESSES)]
    return {key: statistics.mean(part[key] for part in found) for key in (*TIMES, *BYTES)}


def benchmark(name: str, options: argparse.Namespace) -> dict[str, Any]:
    rounds = [{kind: run(kind, name, options) for kind in KINDS} for _ in range(options.rounds)]
    ratios = {key: [part["fsdp2"][key] / part["ddp"][key] for part in rounds] for key in TIMES}
    middle = {kind: {key: statistics.median(part[kind][key] for part in rounds) for key in TIMES} for kind in KINDS}
    memory = {kind: run(kind, name, options, memory=True) for kind in KINDS}
    return {
        "parameters": sum(parameter.numel() for parameter in MODELS[name]().parameters()),
        "step_seconds": {kind: {key: round(found[key], 3) for key in TIMES} for kind, found in middle.items()},
        "megabytes": {kind: {key: round(found[key] / 1e6, 1) for key in BYTES} for kind, found in memory.items()},
        "fsdp2_over_ddp": {key: round(statistics.median(values), 3) for key, values in ratios.items()}
        | {key: round(memory["fsdp2"][key] / memory["ddp"][key], 3) for key in BYTES},
        "range": {key: [round(min(values), 3), round(max(values), 3)] for key, values in ratios.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batch_size", type=int, default=4, help="images of each process (default: 4)")
    parser.add_argument("--steps", type=int, default=4, help="steps that count (default: 4)")
    parser.add_argument("--warmup", type=int, default=2, help="steps before those (default: 2)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (default: 3)")
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    settings = {key: value for key, value in vars(options).items() if key not in ("models", "output")}
    report = {
        "setting": f"{PROCESSES} CPU processes of one thread over gloo, method macs, images of {SIZE} pixels, AdamW",
        "settings": settings,
        "models": {name: benchmark(name, options) for name in options.models},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    publish(report, options.output)


if __name__ == "__main__":
    main()
