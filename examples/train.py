"""Train an image classifier with Margin and Consistency Supervision, calibrate it, measure it, and push it.

python examples/train.py                                      # embedded data, a small network, no download
python examples/train.py --dataset cifar10 --model resnet50   # Hub ids, short names and local folders
python examples/train.py config.yaml --learning_rate 1e-3     # JSON or YAML, flags win
accelerate launch --num_processes 8 examples/train.py ...     # one process per GPU
python examples/train.py ... --push_to_hub --hub_model_id user/name   # after `hf auth login`
python examples/train.py --streaming --max_steps 100000 ...   # training images that do not fit on disk
"""

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from transformers import HfArgumentParser, set_seed
from transformers.utils import logging

from macs_hf import METHODS, MaCSTrainer, MaCSTrainingArguments, objective_of
from macs_hf.cli.errors import plain_errors
from macs_hf.cli.settings import read_settings
from macs_hf.cli.summary import summary_table
from macs_hf.data.images import EvalTransform, ImageDataset, TrainTransform, drop_unreadable
from macs_hf.data.sources import DatasetSource, source_of
from macs_hf.data.splits import class_balanced_subset, load_splits
from macs_hf.data.streaming import check_streaming, stream_splits, training_stream
from macs_hf.evaluation.checkpoint import (
    command_line,
    default_corruptions,
    evaluate_checkpoint,
    told_arguments,
    write_report,
)
from macs_hf.models.loading import FROM_SCRATCH, load_classifier
from macs_hf.publishing.access import open_repo
from macs_hf.training.checkpoints import claim_output_dir


@dataclass
class ScriptArguments:
    """What to train, on what."""

    dataset: str = field(default="digits", metadata={"help": "Benchmark name, Hub id or local folder."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of a Hub dataset."})
    image_column: str | None = field(default=None, metadata={"help": "Found if there is only one image column."})
    label_column: str | None = field(default=None, metadata={"help": "Found if there is only one class label."})
    train_split: str | None = field(default=None, metadata={"help": "Split to train on."})
    calibration_split: str | None = field(
        default=None, metadata={"help": "Split that fits the temperature; carved from train if there is none."}
    )
    split: str | None = field(default=None, metadata={"help": "Split to test on."})
    model: str = field(default="tiny", metadata={"help": "`tiny`, `small`, a backbone, timm or Hub id, a folder."})
    model_revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of the model."})
    image_size: int | None = field(default=None, metadata={"help": "Pixels: `tiny`, `small` and timm models only."})
    method: str = field(default="macs", metadata={"help": f"Sets the objective: {', '.join(METHODS)}."})
    data_fraction: float = field(default=1.0, metadata={"help": "Class-balanced share of the training set."})
    max_train_samples: int | None = field(default=None, metadata={"help": "At most so many training images."})
    skip_bad_images: bool = field(default=False, metadata={"help": "Leave out images that cannot be read."})
    streaming: bool = field(default=False, metadata={"help": "Read training images as they come; needs max_steps."})
    shuffle_buffer: int = field(default=2000, metadata={"help": "With streaming: images each worker chooses from."})
    max_eval_samples: int | None = field(
        default=None, metadata={"help": "At most so many validation, and so many test images (5,000 with streaming)."}
    )
    horizontal_flip: bool | None = field(default=None, metadata={"help": "Mirror at random; off for digits."})
    corruptions: Literal["auto", "cifar", "imagenet", "none"] = field(
        default="auto", metadata={"help": "Parameters of the corruption benchmark; auto fits the input size."}
    )
    corruption_samples: int | None = field(default=2000, metadata={"help": "Fixed subset of test images for it."})
    license: str | None = field(default=None, metadata={"help": "Of the pushed model; else that of its base."})


# Settings that do not change what is learned, and those of `TrainingArguments` that do: starting again with another
# recipe is another run.
AFTER_TRAINING = ("corruptions", "corruption_samples", "license", "skip_bad_images", "max_eval_samples")
RECIPE = (
    *("seed", "learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "weight_decay", "warmup_steps", "lr_scheduler_type", "optim", "optim_args"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "data_seed", "bf16", "fp16"),
)


def script_defaults(script: ScriptArguments) -> dict:
    """What this script sets differently from `TrainingArguments`; flags and config files win."""
    on_gpu = torch.cuda.is_available()
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported()
    # A stream has no epochs: ten times during training.
    when = {"eval_steps": 0.1, "save_steps": 0.1} if script.streaming else {}
    names = (Path(script.dataset).name, Path(script.model).name, script.method)
    return {
        "output_dir": str(Path("runs", "-".join(names))),
        "num_train_epochs": 20,
        "per_device_train_batch_size": 64,
        "per_device_eval_batch_size": 256,
        # From scratch a large step, for fine-tuning a small one.
        "learning_rate": 5e-3 if script.model in FROM_SCRATCH else 1e-4,
        "weight_decay": 0.05,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "use_cpu": not torch.accelerator.is_available(),  # else processes without a GPU would not find each other
        "bf16": has_bf16,
        "fp16": on_gpu and not has_bf16,
        "logging_steps": 10,
        "eval_strategy": "steps" if script.streaming else "epoch",
        "save_strategy": "steps" if script.streaming else "epoch",
        "save_total_limit": 1,
        "seed": 0,
        "dataloader_pin_memory": on_gpu,
        "log_level": "warning",
        **when,
    }


def parse(argv: list[str]) -> tuple[ScriptArguments, MaCSTrainingArguments]:
    settings = {}
    if argv and argv[0].endswith((".json", ".yaml", ".yml")):
        settings, argv = read_settings(argv[0], ScriptArguments, MaCSTrainingArguments), argv[1:]

    # The method and the dataset decide the defaults of the rest, so they are parsed first.
    first = HfArgumentParser(ScriptArguments, add_help=False, allow_abbrev=False)
    first.set_defaults(**{name: value for name, value in settings.items() if hasattr(ScriptArguments, name)})
    script = first.parse_args_into_dataclasses(argv, return_remaining_strings=True)[0]
    if script.method not in METHODS:
        raise ValueError(f"method={script.method!r} is not one of {', '.join(METHODS)}.")
    for name in ("corruption_samples", "image_size", "max_train_samples", "max_eval_samples"):
        if getattr(script, name) is not None and getattr(script, name) < 1:
            raise ValueError(f"{name}={getattr(script, name)} must be at least 1.")
    if not 0 < script.data_fraction <= 1:
        raise ValueError(f"data_fraction={script.data_fraction} must lie in (0, 1].")
    parser = HfArgumentParser((ScriptArguments, MaCSTrainingArguments), allow_abbrev=False, description=__doc__)
    parser.set_defaults(**script_defaults(script) | METHODS[script.method] | settings)
    return parser.parse_args_into_dataclasses(argv)


def prepare(
    script: ScriptArguments, args: MaCSTrainingArguments
) -> tuple[DatasetSource, MaCSTrainer, ImageDataset, str | None]:
    """The data, the trainer, the test set, and the checkpoint to go on from. What can be wrong is found out here."""
    logging.set_verbosity(args.get_process_log_level())
    if script.streaming:
        check_streaming(args.max_steps, script.data_fraction, script.max_train_samples)
        args.accelerator_config.dispatch_batches = False  # each process reads its own shards
    if args.push_to_hub and args.process_index == 0:
        open_repo(args)  # whoever may not push learns it now

    # ---- Data ----
    source = source_of(
        script.dataset,
        script.dataset_config,
        script.image_column,
        script.label_column,
        train_split=script.train_split,
        validation_split=script.calibration_split,
        test_split=script.split,
        horizontal_flip=script.horizontal_flip,
    )
    with args.main_process_first(desc="loading the dataset"):
        if script.streaming:
            splits = stream_splits(source, script.max_eval_samples or 5000, script.skip_bad_images)
        else:
            splits = load_splits(source)
            for name in ("train", "validation", "test") if script.skip_bad_images else ():
                splits = splits._replace(**{name: drop_unreadable(getattr(splits, name), splits.image_column, name)})
    if script.data_fraction != 1 or script.max_train_samples is not None:
        size = round(len(splits.train) * script.data_fraction)
        size = size if script.max_train_samples is None else min(size, script.max_train_samples)
        subset = class_balanced_subset(splits.train, splits.label_column, size, args.seed)
        splits = splits._replace(train=subset)

    if script.max_eval_samples is not None and not script.streaming:
        for name in ("validation", "test"):
            split = getattr(splits, name)
            size = min(len(split), script.max_eval_samples)
            splits = splits._replace(**{name: class_balanced_subset(split, splits.label_column, size, seed=0)})

    # ---- Model: a fresh head, or a whole network, is drawn from the seed ----
    if script.model in FROM_SCRATCH:
        torch.set_num_threads(1)  # their tensors are so small that more threads only wait for one another
    set_seed(args.seed)
    model, processor = load_classifier(script.model, splits.label_names, script.model_revision, script.image_size)

    def prepared(name: str, transform: TrainTransform | EvalTransform) -> ImageDataset:
        origin = splits.validation_name if name == "validation" else name
        return ImageDataset(getattr(splits, name), splits.image_column, splits.label_column, transform, origin)

    objective = objective_of(args)
    augment = TrainTransform(processor, source.horizontal_flip, augmix=objective.lambda_jsd > 0)
    validation, test = prepared("validation", EvalTransform(processor)), prepared("test", EvalTransform(processor))
    if script.streaming:
        train = training_stream(splits, augment, args, script.shuffle_buffer)
    else:
        train = prepared("train", augment)
    for held_out in (validation, test):
        held_out.check_images()

    # ---- The trainer, in a folder of its own ----
    identity = {name: value for name, value in dataclasses.asdict(script).items() if name not in AFTER_TRAINING}
    identity["training_images"] = None if script.streaming else len(train)
    identity |= dataclasses.asdict(objective) | {name: str(getattr(args, name)) for name in RECIPE}
    with args.main_process_first(desc="looking into the output folder"):
        checkpoint = args.resume_from_checkpoint or claim_output_dir(args.output_dir, identity)
    trainer = MaCSTrainer(
        model=model, args=args, train_dataset=train, eval_dataset=validation, processing_class=processor
    )
    return source, trainer, test, checkpoint


def main(argv: list[str]) -> None:
    with plain_errors("train.py"):
        script, args = parse(argv)
        source, trainer, test, checkpoint = prepare(script, args)
    train, validation = trainer.train_dataset, trainer.eval_dataset

    # ---- Train ----
    if trainer.is_world_process_zero():
        sizes = ("streamed" if script.streaming else len(train), len(validation), len(test))
        print(f"{script.method}: {script.model} on {source.path}, {args.world_size} x {args.device}")
        print("images to train, validate and test on:", *sizes)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    trainer.save_model(_internal_call=True)  # before anything else can go wrong, and without pushing yet
    if not trainer.is_whole_model():
        print(f"Trained in shards, which take no temperature: run `macs-hf calibrate {args.output_dir}`.")
        return

    # ---- Measure, with a temperature that test never saw, and fold it into the head that is saved ----
    params = {"auto": default_corruptions(trainer.processing_class), "none": None}
    report, rows = evaluate_checkpoint(
        trainer,
        test,
        calibration=validation,
        corruptions=params.get(script.corruptions, script.corruptions),
        corruption_samples=script.corruption_samples,
        model=script.model,
        model_revision=script.model_revision,
        dataset=source.path,
        dataset_config=source.config,
        split=source.test_split,
        training_arguments=told_arguments(script) | told_arguments(args),
        command=command_line("python examples/train.py"),
        seeds={"seed": args.seed},
    )
    trainer.fold_temperature(report.temperature.value, validation)
    trainer.save_model(_internal_call=True)
    if trainer.is_world_process_zero():
        written = write_report(report, rows, args.output_dir, run=Path(args.output_dir).name)
        print(
            f"\n{summary_table(report)}\n\nThe calibrated model is in {args.output_dir}, beside", *written, sep="\n  "
        )
    trainer.create_model_card(license=script.license)
    if args.push_to_hub:
        commit = trainer.push_to_hub(license=script.license)
        if commit is not None:
            print(f"\nPushed: {commit.repo_url}")


if __name__ == "__main__":
    main(sys.argv[1:])
