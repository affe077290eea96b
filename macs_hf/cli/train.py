"""`macs-hf train`: train an image classifier, calibrate it, measure it, and push it.

`accelerate launch -m macs_hf.cli.train` starts it on several GPUs; `macs-hf train --help` lists its arguments.
"""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, set_seed
from transformers.utils import logging

from ..calibration import store_guarantees
from ..data.images import ImageDataset
from ..data.preparing import OodImages, held_out, image_dataset, load_data, smaller_training_set
from ..data.sources import DatasetSource, ImageSplits
from ..data.streaming import check_streaming, limit_retries, training_stream
from ..data.transforms import TrainTransform
from ..evaluation.evaluate import default_corruptions, evaluate_checkpoint, was_trained_on
from ..exceptions import ArgumentError
from ..hub import limit_waiting
from ..models.loading import FROM_SCRATCH, load_classifier
from ..models.timm_layout import WEIGHT_FILES
from ..objective import objective_of
from ..publishing.access import open_repo
from ..publishing.card import REPORT_FILES
from ..report.report import EvaluationReport
from ..report.rows import SampleRows
from ..report.run_folder import (
    GALLERY,
    atomic_folder,
    locked_folder,
    path_fingerprint,
    public_name,
    public_words,
)
from ..training.arguments import MaCSTrainingArguments, check_ends_calibrated, recorded_arguments, recorded_processes
from ..training.callbacks import Screen, TerminalCallback
from ..training.checkpoints import (
    OBJECTIVE,
    checkpoint_line,
    claim_output_dir,
    identity_of,
    last_complete_checkpoint,
)
from ..training.trainer import MaCSTrainer
from .measure import chosen_source, ood_images, write_results
from .output import (
    after_saving,
    header_of_training,
    model_of,
    screen_of,
    show_files,
    show_header,
    show_next,
    show_summary,
)
from .process import checked_output_dir, ends_on_signals, folder_name, keep_freed_memory, plain_errors
from .train_arguments import (
    PROGRAM,
    ScriptArguments,
    argument_names,
    check_disk,
    help_asked_for,
    parse,
)


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    with plain_errors(PROGRAM, argument_names()):
        if (text := help_asked_for(argv)) is not None:
            print(text)
            return 0
        script, args = parse(argv)
        start(script, args)
        with (
            locked_folder(args.output_dir, hold=args.process_index == 0),
            ends_on_signals(PROGRAM, lambda: checkpoint_line(args.output_dir)),
            screen_of(script.quiet, script.verbose, bars=not args.disable_tqdm) as screen,
        ):
            source, splits = load_images(script, args)
            model, processor = load_model(script, args, splits)
            data = prepare_images(source, splits, processor, script, args)
            trainer, checkpoint = build_trainer(model, processor, data, script, args, screen)
            train(trainer, checkpoint)
            report, rows = measure(trainer, data, script, command_of(argv, args.world_size))
            save(trainer, report, rows, data, script, screen)
            publish(trainer, report, script, screen)
    return 0


def command_of(argv: Sequence[str], processes: int) -> str:
    """What to type to make the same run from its start, with as many processes: without a checkpoint to go on from."""
    words, kept = iter(argv), ["macs-hf", "train"]
    if processes > 1:
        kept = ["accelerate", "launch", "--num_processes", str(processes), "-m", "macs_hf.cli.train"]
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag.replace("-", "_") != "__resume_from_checkpoint":
            kept.append(word)
        elif not equals:
            next(words)  # its value
    return shlex.join(public_words(kept))


# Settings that do not change what is learned.
AFTER_TRAINING = (
    *("corruptions", "corruption_samples", "corruption_design", "license", "skip_bad_images"),
    *("max_eval_samples", "max_calibration_samples", "cache_bytes"),
    *("group_column", "ood_dataset", "ood_split", "gallery", "publish_gallery", "quiet", "verbose"),
    *("force_temperature", "allow_inexact_resume"),
)
# What has to be the same with --allow_inexact_resume.
SAME_RUN = (
    *OBJECTIVE,
    *("dataset", "dataset_config", "dataset_place", "train_split", "image_column", "label_column"),
    *("model", "model_revision", "model_place", "image_size"),
)


class RunData(NamedTuple):
    """Images for the network of a run, and where they are from."""

    source: DatasetSource
    train: Any  # an `ImageDataset`, or a stream
    validation: ImageDataset
    test: ImageDataset
    ood: OodImages | None


def start(script: ScriptArguments, args: MaCSTrainingArguments) -> None:
    """Settle what does not depend on data or model. What can be wrong is found out before anything is written."""
    check_ends_calibrated(args)
    limit_waiting()
    if args.device.type == "cpu":
        keep_freed_memory()
    args.output_dir = str(checked_output_dir(args.output_dir, script.model, script.dataset))
    if script.verbose:
        logging.set_verbosity(args.get_process_log_level())
    if args.process_index > 0:
        logging.get_logger("macs_hf").setLevel(logging.ERROR)  # one process speaks for all


def load_images(script: ScriptArguments, args: MaCSTrainingArguments) -> tuple[DatasetSource, ImageSplits]:
    """The splits of the dataset; before them the repository to push to, since what follows is long work."""
    if script.streaming:
        check_streaming(args.max_steps, script.data_fraction, script.max_train_samples)
        limit_retries()
        args.accelerator_config.dispatch_batches = False  # each process reads its own shards
    if args.push_to_hub and args.process_index == 0:
        open_repo(args)
    source = chosen_source(script)
    with args.main_process_first(desc="loading the dataset"):
        splits = load_data(
            source,
            streaming=script.streaming,
            skip_bad_images=script.skip_bad_images,
            max_eval_samples=script.max_eval_samples,
            max_calibration_samples=script.max_calibration_samples,
        )
    splits = smaller_training_set(splits, script.data_fraction, script.max_train_samples, args.seed)
    return source, splits


def load_model(
    script: ScriptArguments, args: MaCSTrainingArguments, splits: ImageSplits
) -> tuple[PreTrainedModel, Any]:
    """The model and its image processor; a fresh head, or a whole network, is drawn from the seed."""
    if script.model in FROM_SCRATCH:
        torch.set_num_threads(1)  # their tensors are so small that more threads only wait for one another
    set_seed(args.seed)
    model, processor = load_classifier(script.model, splits.label_names, script.model_revision, script.image_size)
    # Inputs follow the weights.
    return model.to(memory_format=torch.channels_last) if script.channels_last else model, processor


def prepare_images(
    source: DatasetSource,
    splits: ImageSplits,
    processor: Any,
    script: ScriptArguments,
    args: MaCSTrainingArguments,
) -> RunData:
    """What the network sees of the splits."""
    augment = TrainTransform(processor, source.horizontal_flip, augmix=objective_of(args).lambda_jsd > 0)
    if script.streaming:
        training = training_stream(splits, augment, args, script.shuffle_buffer)
    else:
        training = image_dataset(splits, "train", augment, script.cache_bytes)
    validation, test = (held_out(splits, role, processor, script.cache_bytes) for role in ("validation", "test"))
    ood = ood_images(script, source, splits.label_names, processor)
    if not script.streaming:
        training.check_images(at_most=2000)  # to find copies in the other splits
    if was_trained_on(validation, training):
        message = "The images that are to fit the temperature are all in the training set. Name a split of others with"
        raise ArgumentError("calibration_split", message)
    return RunData(source, training, validation, test, ood)


def build_trainer(
    model: PreTrainedModel,
    processor: Any,
    data: RunData,
    script: ScriptArguments,
    args: MaCSTrainingArguments,
    screen: Screen,
) -> tuple[MaCSTrainer, str | None]:
    """The trainer, in a folder of its own, and the checkpoint to continue from."""
    facts = _facts(script, args.method)
    # Two local folders of one name are two datasets, and fewer images give another temperature and other results. A
    # checkpoint does not know of either: it may go on at another place, or be measured on other images.
    places = {
        f"{name}_place": path_fingerprint(getattr(script, name), args.output_dir) for name in ("dataset", "model")
    }
    held_out_images = {name: getattr(script, name) for name in ("max_eval_samples", "max_calibration_samples")}
    identity = identity_of(args, data.train, facts | places | held_out_images)
    same = SAME_RUN if script.allow_inexact_resume else None
    with args.main_process_first(desc="looking into the output folder"):
        checkpoint = claim_output_dir(args.output_dir, identity, args.resume_from_checkpoint, same)
        check_disk(args, model)
    trainer = MaCSTrainer(
        model=model,
        args=args,
        train_dataset=data.train,
        eval_dataset=data.validation,
        processing_class=processor,
        run_facts=facts,
    )
    trainer.resumes_only_same = same
    if not script.verbose:
        TerminalCallback(screen).add_to(trainer)
    show_header(screen, "train", header_of_training(trainer, data.test, script, args))
    return trainer, checkpoint


def train(trainer: MaCSTrainer, checkpoint: str | None) -> None:
    """Train, and keep what came out."""
    result = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    if not _has_last_step(trainer):
        trainer.save_model(_internal_call=True)  # before anything else can go wrong, and without pushing yet


def _has_last_step(trainer: MaCSTrainer) -> bool:
    """Whether a checkpoint holds what training ended with: the same command then measures it, whatever happens now."""
    checkpoint = last_complete_checkpoint(trainer.args.output_dir)
    exact = checkpoint is not None and not trainer.args.save_only_model
    return exact and checkpoint.name.endswith(f"-{trainer.state.global_step}")


def measure(
    trainer: MaCSTrainer, data: RunData, script: ScriptArguments, command: str
) -> tuple[EvaluationReport, list[SampleRows]]:
    """The report of the trained model, with a temperature that test never saw, and a row for each test image."""
    args, source = trainer.args, data.source
    params = {"auto": default_corruptions(trainer.processing_class), "none": None}
    return evaluate_checkpoint(
        trainer,
        data.test,
        calibration=trainer.eval_dataset,
        corruptions=params.get(script.corruptions, script.corruptions),
        corruption_samples=script.corruption_samples,
        corruption_design=script.corruption_design,
        ood=data.ood,
        force_temperature=script.force_temperature,
        model=public_name(script.model),
        model_revision=script.model_revision,
        dataset=public_name(source.path),
        dataset_config=source.config,
        split=source.test_split,
        training_arguments=recorded_arguments(script) | recorded_arguments(args) | recorded_processes(args),
        command=command,
        seeds={"seed": args.seed},
    )


def save(
    trainer: MaCSTrainer,
    report: EvaluationReport,
    rows: list[SampleRows],
    data: RunData,
    script: ScriptArguments,
    screen: Screen,
) -> None:
    """Fold the temperature into the head, and write model, report, pages and card: all of them, or nothing."""
    folder = trainer.args.output_dir
    trainer.fold_temperature(report.temperature.value, trainer.eval_dataset)
    store_guarantees(trainer.model.config, report.guarantees)
    is_first = trainer.is_world_process_zero()
    replaced = (*WEIGHT_FILES, *REPORT_FILES, GALLERY)
    with atomic_folder(folder, replaces=replaced) if is_first else nullcontext(folder) as draft:
        # By all processes: each may have a part of the model. One of them writes it, or one on each node if asked for.
        trainer.save_model(str(draft), _internal_call=True)
        if is_first:
            written = write_results(report, rows, data.test, trainer.model, script, draft, screen)
            trainer.create_model_card(**_card(report, script), draft=draft)
    if is_first:
        show_summary(screen, str(report))
        show_files(screen, model_of(report), folder, [path.name for path in written])


def publish(trainer: MaCSTrainer, report: EvaluationReport, script: ScriptArguments, screen: Screen) -> None:
    """Push what was saved, if asked for, and say what to type next."""
    pushes = trainer.args.push_to_hub
    commit = trainer.push_to_hub(**_card(report, script), saved=True) if pushes else None
    if commit is not None:
        screen.line(f"Pushed: {commit.repo_url}", wrap=False)
    show_next(screen, after_saving(report, trainer.args.output_dir, pushed=pushes))


def _card(report: EvaluationReport, script: ScriptArguments) -> dict[str, Any]:
    return {"license": script.license, "report": report, "gallery": script.publish_gallery}


def _facts(script: ScriptArguments, method: str) -> dict[str, Any]:
    """What makes a run the same run when it is started again, beside the recipe; folders without their paths."""
    facts = {name: value for name, value in dataclasses.asdict(script).items() if name not in AFTER_TRAINING}
    return facts | {name: folder_name(facts[name]) for name in ("dataset", "model")} | {"method": method}


if __name__ == "__main__":
    sys.exit(main())
