"""Measure a classifier that was trained elsewhere, and calibrate it: the work of `evaluate` and `calibrate`."""

from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

from transformers import TrainingArguments

from ..calibration import store_guarantees
from ..calibration.folding import folded_temperature
from ..data.columns import align_labels
from ..data.images import ImageDataset
from ..data.preparing import held_out, load_data
from ..data.sources import source_of
from ..disk.claim import claim_folder, locked_folder
from ..disk.names import place_of, public_name
from ..disk.whole import written_whole
from ..evaluation.checkpoint import evaluate_checkpoint, write_report
from ..models.loading import load_pretrained, model_id
from ..models.saving import WEIGHT_FILES, save_classifier
from ..publishing.access import check_push_access
from ..publishing.folder import REPORT_FILES, write_card
from ..publishing.push import push_folder
from ..report.evaluation import EvaluationReport
from ..report.rows import SampleRows
from ..report.run import GALLERY
from ..training.trainer import MaCSTrainer
from .checks import check_gallery
from .folders import check_output_dir, folder_name, is_main_process, run_name
from .on_request import gallery, unknown_images
from .summary import kind_of_model, summary_table


class Measured(NamedTuple):
    """A model, and what was measured about it."""

    trainer: MaCSTrainer
    test: ImageDataset
    report: EvaluationReport
    rows: list[SampleRows]


def evaluate(options: Namespace, command: str) -> None:
    """Measure the model of the options of `macs-hf evaluate`, and write the results."""
    folder = _folder(options, "evaluate")
    with locked_folder(folder, hold=is_main_process()):
        measured = _measure(options, "evaluate", folder, command)
        if not measured.trainer.is_world_process_zero():
            return
        with written_whole(folder, replaces=(*REPORT_FILES, GALLERY)) as draft:
            written = _write(measured, options, draft)
        print(summary_table(measured.report))
        print("\nwritten:", *(folder / path.name for path in written), sep="\n  ")


def calibrate(options: Namespace, command: str) -> None:
    """Measure the model of the options of `macs-hf calibrate` with a temperature, fold it in, and save it all."""
    repo_id, folder = options.push_to_hub, _folder(options, "calibrate")
    check_gallery(options.gallery, options.publish_gallery)
    if repo_id:
        repo_id = check_push_access(repo_id, private=options.private)  # whoever may not push learns it now
    with locked_folder(folder, hold=is_main_process()):
        measured = _measure(options, "calibrate", folder, command)
        trainer, report = measured.trainer, measured.report
        trainer.fold_temperature(report.temperature.value, measured.test)
        store_guarantees(trainer.model.config, report.guarantees)
        if not trainer.is_world_process_zero():
            return
        with written_whole(folder, replaces=(*WEIGHT_FILES, *REPORT_FILES, GALLERY)) as draft:
            save_classifier(trainer.model, trainer.processing_class, draft)
            written = _write(measured, options, draft)
            card = {"base_model": model_id(options.model), "gallery": options.publish_gallery}
            write_card(draft, repo_id or run_name(folder), report, earlier=folder, **card)
        print(summary_table(report))
        files = [folder / name for name in (*(path.name for path in written), "README.md", "model.safetensors")]
        print(f"\nThe {kind_of_model(report)} is in {folder}:", *files, sep="\n  ")
        if repo_id:
            print("pushed:", push_folder(folder, repo_id, private=options.private).repo_url)


def _folder(options: Namespace, action: str) -> Path:
    """Where the results go."""
    names = (folder_name(options.model), folder_name(options.dataset), action)
    folder = Path(options.output_dir or Path("runs", "-".join(names)))
    check_output_dir(folder, options.model, options.dataset)
    return folder


def _identity(options: Namespace, action: str, folder: Path) -> dict[str, Any]:
    """What makes a measurement the same when it is made again."""
    names = ("model_revision", "image_size", "dataset_config", "image_column", "label_column", "split")
    names += ("calibration_split",) if action == "calibrate" else ()
    identity = {"command": action} | {name: getattr(options, name) for name in names}
    for name in ("model", "dataset"):
        given = getattr(options, name)
        identity |= {name: public_name(given), f"{name}_place": place_of(given, folder)}
    return identity


def _measure(options: Namespace, action: str, folder: Path, command: str) -> Measured:
    calibrating = action == "calibrate"
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
    folded_temperature(model)  # what its config says of it must be a number
    for role in wanted:
        aligned = align_labels(getattr(splits, role), splits.label_column, splits.label_names, model.config)
        splits = splits._replace(**{role: aligned})
    datasets = {role: held_out(splits, role, processor, options.cache_bytes) for role in wanted}
    unknowns = unknown_images(options, source, list(model.config.id2label.values()), processor)
    claim_folder(folder, _identity(options, action, folder))

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
        model=public_name(model_id(options.model)),
        model_revision=getattr(model.config, "_commit_hash", None) or options.model_revision,
        dataset=public_name(source.path),
        dataset_config=source.config,
        split=source.test_split,
        command=command,
    )
    return Measured(trainer, datasets["test"], report, rows)


def _write(measured: Measured, options: Namespace, folder: Path) -> list[Path]:
    written = write_report(measured.report, measured.rows, folder)
    return written + gallery(options, measured.test, measured.rows[-1], measured.trainer.model, folder)
