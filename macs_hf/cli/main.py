"""`macs-hf evaluate|calibrate MODEL --dataset D`: audit or mend any Hub or local image classifier, without training.

`macs-hf compare A B` holds two runs on the same test images against each other, image by image.
`macs-hf push FOLDER REPO` pushes what a run left on disk, with its report and card.

macs-hf evaluate google/vit-base-patch16-224 --dataset user/photos --split test --corruptions imagenet
macs-hf calibrate user/model --dataset user/photos --calibration_split validation --split test --push_to_hub user/new
"""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from transformers import TrainingArguments

from ..data.columns import align_labels
from ..data.images import EvalTransform, ImageDataset, drop_unreadable
from ..data.sources import source_of
from ..data.splits import load_splits
from ..evaluation.checkpoint import evaluate_checkpoint, write_report
from ..evaluation.comparison import comparison_table
from ..models.loading import load_pretrained, model_id
from ..publishing.access import check_push_access
from ..publishing.folder import write_card
from ..publishing.push import push_folder
from ..report.run import load_run
from ..training.trainer import MaCSTrainer
from .errors import plain_errors
from .summary import summary_table


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(argv)
    with plain_errors("macs-hf"):
        if options.action == "push":
            commit = push_folder(options.folder, options.repo, private=options.private, revision=options.revision)
            print("pushed:", commit.repo_url)
        elif options.action == "compare":
            print(comparison_table(load_run(options.a), load_run(options.b)))
        else:
            _run(options, command=shlex.join(["macs-hf", *argv]))
    return 0


def _run(options: argparse.Namespace, command: str) -> None:
    calibrating = options.action == "calibrate"
    repo_id = options.push_to_hub if calibrating else None
    if repo_id:
        repo_id = check_push_access(repo_id, private=options.private)
    source = source_of(
        options.dataset,
        options.dataset_config,
        options.image_column,
        options.label_column,
        validation_split=options.calibration_split if calibrating else None,
        test_split=options.split,
    )
    if not calibrating and source.test_split == source.train_split:
        source = replace(source, train_split="")  # measuring on the training split is asked for; nothing is carved
    splits = load_splits(source, need_train=False)
    if calibrating and splits.validation is None:
        raise ValueError(f"Dataset {source.path!r} has no split to calibrate on. Name one with --calibration_split.")
    model, processor = load_pretrained(options.model, options.model_revision)

    def prepared(name: str) -> ImageDataset:
        dataset = align_labels(getattr(splits, name), splits.label_column, splits.label_names, model.config)
        if options.skip_bad_images:
            dataset = drop_unreadable(dataset, splits.image_column, name)
        origin = splits.validation_name if name == "validation" else name
        return ImageDataset(dataset, splits.image_column, splits.label_column, EvalTransform(processor), origin)

    test = prepared("test")
    calibration = prepared("validation") if calibrating else None

    run = Path(options.model).name
    output_dir = Path(options.output_dir or Path("runs", f"{run}-{options.action}"))
    if output_dir.resolve() == Path(options.model).resolve():
        raise ValueError(f"--output_dir {output_dir} is the model's own folder, whose report would be overwritten.")
    args = TrainingArguments(
        str(output_dir), per_device_eval_batch_size=options.batch_size, report_to="none", use_cpu=options.cpu
    )
    trainer = MaCSTrainer(model=model, args=args, processing_class=processor)
    report, rows = evaluate_checkpoint(
        trainer,
        test,
        calibration,
        corruptions=options.corruptions,
        corruption_samples=options.corruption_samples,
        model=model_id(options.model),
        model_revision=getattr(model.config, "_commit_hash", None) or options.model_revision,
        dataset=source.path,
        dataset_config=source.config,
        split=source.test_split,
        command=command,
    )
    if calibrating:
        trainer.fold_temperature(report.temperature.value, test)
        trainer.save_model()
    if trainer.is_world_process_zero():
        written = write_report(report, rows, output_dir)
        print(summary_table(report))
        print("\nwritten:", *written, *([output_dir / "model.safetensors"] if calibrating else []), sep="\n  ")
        if repo_id:
            write_card(output_dir, repo_id, report, base_model=model_id(options.model))
            print("pushed:", push_folder(output_dir, repo_id, private=options.private).repo_url)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    helps = {
        "evaluate": "measure accuracy, calibration, margins and, if asked, accuracy under corruption",
        "calibrate": "fit a temperature on held-out data, fold it into the head and save the model",
    }
    for action, text in helps.items():
        command = actions.add_parser(action, help=text, description=text)
        command.add_argument("model", help="Hub id, timm name or local folder")
        command.add_argument("--dataset", required=True, help="benchmark name, Hub id or local folder")
        command.add_argument("--dataset_config", help="configuration of a Hub dataset")
        command.add_argument("--split", help="split to measure on (default: test)")
        command.add_argument("--image_column", help="found if there is only one image column")
        command.add_argument("--label_column", help="found if there is only one class label")
        command.add_argument("--model_revision", help="branch, tag or commit of the model")
        command.add_argument("--corruptions", choices=("cifar", "imagenet"), help="parameter set of the benchmark")
        command.add_argument("--corruption_samples", type=int, help="fixed subset for it (default: all)")
        command.add_argument("--skip_bad_images", action="store_true", help="leave out images that cannot be read")
        command.add_argument("--batch_size", type=int, default=64)
        command.add_argument("--cpu", action="store_true", help="leave accelerators alone")
        command.add_argument("--output_dir", help="where report and pictures go (default: runs/MODEL-ACTION)")
        if action == "calibrate":
            command.add_argument(
                "--calibration_split", help="held-out split (default: validation, or carved from train)"
            )
            command.add_argument("--push_to_hub", metavar="REPO", help="push the calibrated model there, with a card")
            command.add_argument("--private", action="store_true", default=None, help="make that repository private")
    text = "compare two runs on the same test images: differences with paired 95 % intervals"
    command = actions.add_parser("compare", help=text, description=text)
    command.add_argument("a", help="folder of a run, or the evaluation.json in it")
    command.add_argument("b", help="another one")
    text = "push the model, report, pictures and card of a run's folder, in one commit"
    command = actions.add_parser("push", help=text, description=text)
    command.add_argument("folder", help="where the model was saved")
    command.add_argument("repo", help="user/name; made if it is not there")
    command.add_argument("--private", action="store_true", default=None, help="make it private")
    command.add_argument("--revision", help="branch; made if it is not there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
