"""Measure a classifier that was trained elsewhere, and calibrate it: the work of `evaluate` and `calibrate`."""

from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from transformers import TrainingArguments

from ..calibration import store_guarantees
from ..data.columns import align_labels
from ..data.images import ImageDataset
from ..data.preparing import held_out, load_data
from ..data.sources import source_of
from ..evaluation.checkpoint import evaluate_checkpoint, write_report
from ..models.loading import load_pretrained, model_id
from ..models.saving import save_classifier
from ..publishing.access import check_push_access
from ..publishing.folder import write_card
from ..publishing.push import push_folder
from ..report.evaluation import EvaluationReport
from ..report.rows import SampleRows
from ..training.trainer import MaCSTrainer
from .checks import check_gallery
from .folders import folder_name, run_name
from .on_request import gallery, unknown_images
from .summary import kind_of_model, summary_table


class Measured(NamedTuple):
    """A model, what was measured about it, and where the results go."""

    trainer: MaCSTrainer
    test: ImageDataset
    report: EvaluationReport
    rows: list[SampleRows]
    folder: Path


def evaluate(options: Namespace, command: str) -> None:
    """Measure the model of the options of `macs-hf evaluate`, and write the results."""
    measured = _measure(options, "evaluate", command)
    if measured.trainer.is_world_process_zero():
        print(summary_table(measured.report))
        print("\nwritten:", *_write(measured, options), sep="\n  ")


def calibrate(options: Namespace, command: str) -> None:
    """Measure the model of the options of `macs-hf calibrate` with a temperature, fold it in, and save it all."""
    repo_id = options.push_to_hub
    check_gallery(options.gallery, options.publish_gallery)
    if repo_id:
        repo_id = check_push_access(repo_id, private=options.private)  # whoever may not push learns it now
    measured = _measure(options, "calibrate", command)
    trainer, folder = measured.trainer, measured.folder
    trainer.fold_temperature(measured.report.temperature.value, measured.test)
    store_guarantees(trainer.model.config, measured.report.guarantees)
    if not trainer.is_world_process_zero():
        return
    save_classifier(trainer.model, trainer.processing_class, folder)
    written = _write(measured, options)
    card = {"base_model": model_id(options.model), "gallery": options.publish_gallery}
    write_card(folder, repo_id or run_name(folder), measured.report, **card)
    print(summary_table(measured.report))
    written = [*written, folder / "README.md", folder / "model.safetensors"]
    print(f"\nThe {kind_of_model(measured.report)} is in {folder}:", *written, sep="\n  ")
    if repo_id:
        print("pushed:", push_folder(folder, repo_id, private=options.private).repo_url)


def _measure(options: Namespace, action: str, command: str) -> Measured:
    calibrating = action == "calibrate"
    folder = Path(options.output_dir or Path("runs", f"{folder_name(options.model)}-{action}"))
    if folder.resolve() == Path(options.model).resolve():
        raise ValueError(f"output_dir={str(folder)!r} is the model's own folder. Choose another.")
    source = source_of(
        options.dataset,
        options.dataset_config,
        options.image_column,
        options.label_column,
        validation_split=options.calibration_split if calibrating else None,
        test_split=options.split,
        group_column=options.group_column,
    )
    wanted = ("validation", "test") if calibrating else ("test",)
    splits = load_data(source, wanted, skip_bad_images=options.skip_bad_images)
    model, processor = load_pretrained(options.model, options.model_revision, options.image_size)
    for role in wanted:
        aligned = align_labels(getattr(splits, role), splits.label_column, splits.label_names, model.config)
        splits = splits._replace(**{role: aligned})
    datasets = {role: held_out(splits, role, processor, options.cache_bytes) for role in wanted}
    unknowns = unknown_images(options, source, list(model.config.id2label.values()), processor)

    args = TrainingArguments(
        str(folder), per_device_eval_batch_size=options.batch_size, report_to="none", use_cpu=options.cpu
    )
    trainer = MaCSTrainer(model=model, args=args, processing_class=processor)
    report, rows = evaluate_checkpoint(
        trainer,
        datasets["test"],
        datasets.get("validation"),
        corruptions=options.corruptions,
        corruption_samples=options.corruption_samples,
        corruption_design=options.corruption_design,
        unknowns=unknowns,
        model=model_id(options.model),
        model_revision=getattr(model.config, "_commit_hash", None) or options.model_revision,
        dataset=source.path,
        dataset_config=source.config,
        split=source.test_split,
        command=command,
    )
    return Measured(trainer, datasets["test"], report, rows, folder)


def _write(measured: Measured, options: Namespace) -> list[Path]:
    written = write_report(measured.report, measured.rows, measured.folder)
    return written + gallery(options, measured.test, measured.rows[-1], measured.trainer.model, measured.folder)
