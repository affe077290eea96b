"""What evaluation costs over the bare forward passes, in CPU time on one thread, printed as JSON.

    python examples/benchmarks/evaluation.py --output evaluation.json

- The default metrics: `MaCSTrainer.evaluate` beside the same model over the same batches in memory.
- A report: `evaluate_checkpoint` (temperature, guarantees, rows, intervals, margins; what `macs-hf calibrate` runs) on
  PNG images, beside a loop that reads the same images and runs the network as often; and the same with corruptions.
"""

import tempfile
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
import transformers
from data import image_rows, vit_processor
from harness import arguments, medians, over, publish, take_turns
from torch import nn
from torch.utils.data import DataLoader
from training import build_model
from transformers import PrinterCallback, TrainingArguments

from macs_hf import MaCSTrainer, evaluate_checkpoint
from macs_hf.data import EvalTransform, ImageDataset


Contestants = dict[str, Callable[[], object]]


def trainer_of(name: str, num_labels: int, size: int, args: Namespace, folder: str) -> MaCSTrainer:
    model = build_model(name, size, num_labels).eval()
    settings = TrainingArguments(
        folder, per_device_eval_batch_size=args.batch_size, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = MaCSTrainer(model=model, args=settings, processing_class=vit_processor(size))
    trainer.remove_callback(PrinterCallback)  # only JSON is printed
    return trainer


def forward(trainer: MaCSTrainer, data: Any, batch_size: int) -> int:
    """Read all images and run the network on them; returns the number of batches."""
    loader = DataLoader(data, batch_size=batch_size, collate_fn=trainer.data_collator)
    with torch.inference_mode():
        for batch in loader:
            trainer.model(pixel_values=batch["pixel_values"])
    return len(loader)


def metrics_contestants(name: str, args: Namespace, folder: str) -> Contestants:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(args.samples, 3, args.image_size, args.image_size, generator=generator)
    labels = torch.randint(1000, (args.samples,), generator=generator)
    data = [{"pixel_values": image, "labels": label} for image, label in zip(images, labels, strict=True)]
    trainer = trainer_of(name, 1000, args.image_size, args, folder)
    return {"bare": lambda: forward(trainer, data, args.batch_size), "evaluate": lambda: trainer.evaluate(data)}


def report_contestants(args: Namespace, folder: str, test: int, held_out: int, **options: Any) -> Contestants:
    """`evaluate_checkpoint` beside a loop that reads the same images and runs the network as often."""
    trainer = trainer_of(args.report_model, 10, args.report_size, args, folder)
    counts = {"test": test, "validation": held_out}
    splits = {name: image_rows(count, 32, 32, "PNG", different=count) for name, count in counts.items() if count}
    passes: list[int] = []

    def count(module: nn.Module, inputs: tuple, kwargs: dict[str, torch.Tensor]) -> None:
        passes.append(len(kwargs["pixel_values"] if kwargs else inputs[0]))

    def unread() -> dict[str, ImageDataset]:
        transform = EvalTransform(trainer.processing_class)
        return {name: ImageDataset(rows, "image", "label", transform, name) for name, rows in splits.items()}

    def evaluate() -> None:
        passes.clear()
        data = unread()
        hook = trainer.model.register_forward_pre_hook(count, with_kwargs=True)
        facts = {"model": args.report_model, "dataset": "random", "split": "test"}
        evaluate_checkpoint(trainer, data["test"], data.get("validation"), **options, **facts)
        hook.remove()

    def bare() -> None:
        done = sum(forward(trainer, data, args.batch_size) for data in unread().values())
        batch = torch.rand(args.batch_size, 3, args.report_size, args.report_size)
        with torch.inference_mode():
            for size in passes[done:]:  # of perturbed and of corrupted images
                trainer.model(pixel_values=batch[:size])

    evaluate()  # counts the passes
    return {"bare": bare, "evaluate": evaluate}


def measure(contestants: Contestants, rounds: int) -> dict[str, Any]:
    seconds = take_turns(contestants, rounds)
    return {"seconds": medians(seconds), "ratio": over(seconds, "bare")["evaluate"]}


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--models", nargs="*", default=["resnet18", "mobilenetv3_small_100"])
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--image_size", type=int, default=128)
    parser.add_argument("--report_model", default="tf_efficientnet_lite0")
    parser.add_argument("--report_size", type=int, default=64)
    parser.add_argument("--test_samples", type=int, default=4096)
    parser.add_argument("--held_out_samples", type=int, default=1024)
    parser.add_argument("--corruption_samples", type=int, default=19 * 64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        models = {name: measure(metrics_contestants(name, args, folder), args.rounds) for name in args.models}
        sizes = (args.test_samples, args.held_out_samples)
        report = measure(report_contestants(args, folder, *sizes), args.rounds)
        options = {"corruptions": "auto", "corruption_design": "spread", "margin_samples": 64}
        corrupted = measure(report_contestants(args, folder, args.corruption_samples, 0, **options), args.rounds)
    result = {"settings": {key: value for key, value in vars(args).items() if key != "output"}, "models": models}
    result["worst_ratio"] = max((model["ratio"] for model in models.values()), default=None)
    result |= {"report": {args.report_model: report}, "corruptions": {args.report_model: corrupted}}
    publish(result, args.output, "transformers", "timm")


if __name__ == "__main__":
    main()
