# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["macs-hf>=0.2.0.dev0"]
#
# [tool.hf-jobs]
# flavor = "t4-small"
# timeout = "30m"
# ///
"""Check on a GPU what the tests check on a CPU, and measure what a step costs. Exit code 1 if a check fails.

hf jobs uv run examples/jobs/gpu_smoke_test.py
python examples/jobs/gpu_smoke_test.py --cpu        # the same table for this machine's CPU

Networks are small and untrained, images are noise; nothing is downloaded. `--cpu` runs it without one.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts: sums in one order

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoModelForImageClassification,
    PreTrainedModel,
    PrinterCallback,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

from macs_hf import METHODS, MaCSTrainer, MaCSTrainingArguments, corrupt, fold_temperature
from macs_hf.report.rows import CORRUPTIONS


class Row(NamedTuple):
    """One line of the table: what was found, and at most what it may be; `None` where there is nothing to fail."""

    name: str
    found: float
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        return self.at_most is None or self.found <= self.at_most  # not for NaN


class Noise(Dataset):
    """Images of noise, whose brightness says the class."""

    def __init__(self, size: int = 48) -> None:
        draws = torch.Generator().manual_seed(0)
        self.labels = torch.randint(4, (size,), generator=draws)
        self.images = torch.randn(size, 3, 32, 32, generator=draws) + self.labels[:, None, None, None] / 2

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


class StopAfter(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


def vit() -> PreTrainedModel:
    set_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    return ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=4, **sizes))


def resnet() -> PreTrainedModel:
    set_seed(0)
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(num_labels=4, **sizes))


def arguments(folder: Path, **changes: Any) -> MaCSTrainingArguments:
    usual = {"max_steps": 6, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "logging_steps": 1, "seed": 0}
    quiet = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "dataloader_pin_memory": False}
    return MaCSTrainingArguments(str(folder), **usual | quiet | changes)


def trained(
    model: PreTrainedModel, args: MaCSTrainingArguments, kind: type[Trainer] = MaCSTrainer, **how: Any
) -> Trainer:
    set_seed(0)
    trainer = kind(model=model, args=args, train_dataset=Noise(), callbacks=how.pop("callbacks", None))
    trainer.remove_callback(PrinterCallback)
    trainer.train(**how)
    return trainer


def logged(trainer: Trainer, key: str) -> torch.Tensor:
    return torch.tensor([entry[key] for entry in trainer.state.log_history if key in entry], dtype=torch.float64)


def largest(left: torch.nn.Module, right: torch.nn.Module) -> float:
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


def relative(left: torch.Tensor, right: torch.Tensor) -> float:
    return ((left - right).abs() / right.abs()).max().item()


def invariances(folder: Path, **device: Any) -> Iterator[Row]:
    for name, build in {"ViT": vit, "ResNet": resnet}.items():
        off = arguments(folder, **METHODS["ce"], **device)
        away = largest(trained(build(), off).model, trained(build(), off, Trainer).model)
        yield Row(f"{name}: weights zero, against plain Trainer: largest weight difference", away, 1e-6)

    unperturbed = {"lambda_consistency": 0.0, **device}
    whole = trained(vit(), arguments(folder, **unperturbed))
    parts = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    split = trained(vit(), arguments(folder, **unperturbed | parts))
    for key in ("loss", "grad_norm"):
        away = relative(logged(split, key), logged(whole, key))
        yield Row(f"ViT: 8 images against 2 x 4 accumulated: {key}, relative", away, 1e-4)

    macs = trained(resnet(), arguments(folder, **METHODS["macs"], **device))
    terms = {"cross_entropy_loss": 1, "margin_loss": 0.1, "consistency_loss": 0.5}
    total = sum(weight * logged(macs, term) for term, weight in terms.items())
    yield Row("ResNet: the logged parts add up to the loss, relative", relative(total, logged(macs, "loss")), 1e-4)

    saved = arguments(folder / "resumed", **METHODS["macs"], save_strategy="steps", save_steps=3, **device)
    trained(resnet(), saved, callbacks=[StopAfter(3)])
    resumed = trained(resnet(), saved, resume_from_checkpoint=str(folder / "resumed" / "checkpoint-3"))
    away = largest(resumed.model, macs.model)
    yield Row("ResNet: stopped and resumed, against not stopped: largest weight difference", away, 1e-6)

    predicted = macs.predict_rows(Noise(45))
    yield Row("rows of predictions minus samples", abs(len(predicted) - 45), 0)

    images = Noise(8).images.to(macs.args.device)
    with torch.inference_mode():
        before = macs.model.eval()(pixel_values=images).logits
        fold_temperature(macs.model, 1.7, images)
        after = macs.model(pixel_values=images).logits
        macs.model.save_pretrained(folder / "saved")
        loaded = AutoModelForImageClassification.from_pretrained(folder / "saved").to(images.device).eval()
        again = loaded(pixel_values=images).logits
    away = (after - before / 1.7).abs().max().item()
    yield Row("folding a temperature: largest difference from logits / T", away, 1e-5)
    yield Row("saved and loaded: largest difference of a logit", (again - after).abs().max().item(), 1e-5)

    bf16 = trained(vit(), arguments(folder, **METHODS["macs"], bf16=True, **device))
    full = trained(vit(), arguments(folder, **METHODS["macs"], **device))
    away = relative(logged(bf16, "loss"), logged(full, "loss"))
    yield Row("ViT: loss in bfloat16 against float32, relative", away, 0.05)


def corruptions(device: torch.device) -> Iterator[Row]:
    """Draws depend on no device, so pixels may differ by rounding only."""
    images = torch.randint(256, (16, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    away = 0.0
    for name in CORRUPTIONS:
        here = corrupt(images, name, 3, frost_textures="procedural").int()
        there = corrupt(images.to(device), name, 3, frost_textures="procedural").cpu().int()
        away = max(away, ((here - there).abs() > 1).float().mean().item())
    yield Row("corruptions on the device, share of values that differ by more than 1 of 255", away, 0.01)


def costs(folder: Path, steps: int, **device: Any) -> Iterator[Row]:
    """Time of a step and peak memory over those of cross-entropy, with batches of 128 images of 32 pixels."""
    found = {}
    quarter = METHODS["macs"] | {"consistency_fraction": 0.25}
    common = {"per_device_train_batch_size": 128, "max_steps": steps, "logging_steps": 1000, **device}
    for name, changes in (("ce", METHODS["ce"]), ("macs", METHODS["macs"]), ("macs, a quarter of the views", quarter)):
        args = arguments(folder, **changes, **common)
        set_seed(0)
        trainer = MaCSTrainer(model=resnet(), args=args, train_dataset=Noise(1280))
        trainer.remove_callback(PrinterCallback)
        trainer.train()  # the first steps choose kernels
        on_gpu = args.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        # Of a CPU, what this process used: other programs may be running. A training run ends by reading the loss.
        clock = time.perf_counter if on_gpu else time.process_time
        start = clock()
        trainer.train()
        found[name] = (clock() - start, torch.cuda.max_memory_allocated() if on_gpu else 0)
    yield Row("ce: milliseconds of a step, 128 images", 1000 * found["ce"][0] / steps)
    for name in list(found)[1:]:
        yield Row(f"{name}: time of a step over ce", found[name][0] / found["ce"][0])
        if found["ce"][1]:
            yield Row(f"{name}: peak memory over ce", found[name][1] / found["ce"][1])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="test this machine's CPU")
    parser.add_argument("--steps", type=int, default=50, help="steps that are timed (default: 50)")
    options = parser.parse_args(argv)
    if not options.cpu and not torch.cuda.is_available():
        print("There is no GPU here; --cpu tests the CPU.", file=sys.stderr)
        return 2
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    device = torch.device("cpu" if options.cpu else "cuda")
    name = "CPU" if options.cpu else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}\n\n| | found | at most | |\n|:--|--:|--:|:--|")
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder, how = Path(temporary), {"use_cpu": options.cpu}
        rows = (invariances(folder, **how), corruptions(device), costs(folder, options.steps, **how))
        for row in itertools.chain(*rows):  # each is measured when it is asked for
            limit = "" if row.at_most is None else f"{row.at_most:g}"
            outcome = "" if row.at_most is None else "holds" if row.holds else "FAILS"
            print(f"| {row.name} | {row.found:.3g} | {limit} | {outcome} |", flush=True)
            failed += not row.holds
    print(f"\n{failed} failed" if failed else "\nall hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
