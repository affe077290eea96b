"""Measure a classifier that was trained elsewhere, and calibrate it: the work of `evaluate` and `calibrate`."""

import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

from ..calibration import store_guarantees
from ..data.images import ImageDataset
from ..disk.atomic_writes import atomic_folder
from ..disk.public_names import path_fingerprint, public_name
from ..disk.run_folder import claim_folder, locked_folder
from ..evaluation.checkpoint import evaluate_checkpoint, write_report
from ..evaluation.model_and_data import load_model_and_data, save_calibrated
from ..models.loading import model_id
from ..models.saving import WEIGHT_FILES
from ..publishing.access import check_push_access
from ..publishing.folder import REPORT_FILES
from ..publishing.pull_request import check_pull_request_access, open_pull_request, pull_request_refusal
from ..publishing.push import push_folder
from ..report.config_fields import TEMPERATURE_FIELD
from ..report.evaluation import EvaluationReport
from ..report.rows import SampleRows
from ..report.run import GALLERY
from ..training.screen import Screen
from ..training.terminal import TerminalCallback
from ..training.trainer import MaCSTrainer
from .checks import check_gallery
from .dataset_options import chosen_source
from .folders import check_output_dir, folder_name, is_main_process, run_name
from .header import header_of_measuring, show_header
from .library_output import bars_of_datasets
from .optional_steps import gallery, unknown_images
from .results import model_of, show_files, show_next, show_results


class Measured(NamedTuple):
    """A model, and what was measured about it."""

    trainer: MaCSTrainer
    test: ImageDataset
    report: EvaluationReport
    rows: list[SampleRows]


def evaluate(options: Namespace, command: str, screen: Screen) -> None:
    """Measure the model of the options of `macs-hf evaluate`, and write the results."""
    _check_corruptions(options)
    folder = _folder(options, "evaluate")
    with locked_folder(folder, hold=is_main_process()):
        measured = _measure(options, "evaluate", folder, command, screen)
        if not measured.trainer.is_world_process_zero():
            return
        with atomic_folder(folder, replaces=(*REPORT_FILES, GALLERY)) as draft:
            written = _write(measured, options, draft, screen)
        show_results(screen, measured.report)
        show_files(screen, "report is", folder, [path.name for path in written])
        words = [options.model, "--dataset", options.dataset]
        following = {"see it in the browser": shlex.join(["macs-hf", "app", *words])}
        # A temperature is for the size at which it was fitted.
        if options.image_size is not None or not hasattr(measured.trainer.model.config, TEMPERATURE_FIELD):
            words += [] if options.image_size is None else ["--image_size", str(options.image_size)]
            following = {"give it a temperature": shlex.join(["macs-hf", "calibrate", *words])} | following
        show_next(screen, following)


def calibrate(options: Namespace, command: str, screen: Screen) -> None:
    """Measure the model of the options of `macs-hf calibrate` with a temperature, fold it in, and save it all."""
    repo_id, folder = options.push_to_hub, _folder(options, "calibrate")
    proposed_to = None
    _check_corruptions(options)
    check_gallery(options.gallery, options.publish_gallery)
    if options.private and not (repo_id or options.create_pr):
        raise ValueError("private=True, but nothing would be pushed. Name a repository with push_to_hub=...")
    if options.create_pr:
        proposed_to, repo_id = _proposal_target(options), None
    elif repo_id:
        repo_id = check_push_access(repo_id, private=options.private)  # before the long work
    with locked_folder(folder, hold=is_main_process()):
        measured = _measure(options, "calibrate", folder, command, screen)
        trainer, report = measured.trainer, measured.report
        trainer.fold_temperature(report.temperature.value, measured.test)
        store_guarantees(trainer.model.config, report.guarantees)
        if not trainer.is_world_process_zero():
            return
        with atomic_folder(folder, replaces=(*WEIGHT_FILES, *REPORT_FILES, GALLERY)) as draft:
            written = _write(measured, options, draft, screen)
            card = {"base_model": options.model, "gallery": options.publish_gallery, "earlier": folder}
            name = repo_id or run_name(folder)
            written += save_calibrated(trainer.model, trainer.processing_class, draft, report, name, **card)
        show_results(screen, report)
        show_files(screen, model_of(report), folder, [path.name for path in written])
        if repo_id:
            url = push_folder(folder, repo_id, private=options.private).repo_url
            screen.line(f"Pushed: {url}", wrap=False)
        if proposed_to and (objection := pull_request_refusal(report)):
            screen.line(f"No pull request: {objection}")
        elif proposed_to:
            screen.line(f"Pull request: {open_pull_request(folder, proposed_to, report).pr_url}", wrap=False)
        push = {} if repo_id or proposed_to else {"push it to the Hub": f"macs-hf push {folder} USER/NAME"}
        show_next(screen, {"see it in the browser": f"macs-hf app {folder}"} | push)


def _check_corruptions(options: Namespace) -> None:
    """Refuse options that would do nothing."""
    for name, default in (("corruption_samples", None), ("corruption_design", "auto")):
        if options.corruptions is None and getattr(options, name) != default:
            raise ValueError(f"{name}=..., but nothing would be corrupted. Add corruptions=auto.")


def _proposal_target(options: Namespace) -> str:
    """The repository that a pull request goes to; access is checked before the work."""
    if options.model_revision is not None:
        raise ValueError("create_pr=True offers the change to the main branch: leave model_revision=... out.")
    if options.private:
        raise ValueError("create_pr=True opens a pull request in an existing repository: leave private=True out.")
    repo_id = options.push_to_hub or model_id(options.model)
    check_pull_request_access(repo_id)
    return repo_id


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
        identity |= {name: public_name(given), f"{name}_place": path_fingerprint(given, folder)}
    return identity


def _measure(options: Namespace, action: str, folder: Path, command: str, screen: Screen) -> Measured:
    calibrating = action == "calibrate"
    source = chosen_source(options)
    with bars_of_datasets(screen.draws):
        loaded = load_model_and_data(
            options.model,
            source,
            folder,
            calibrate=calibrating,
            revision=options.model_revision,
            image_size=options.image_size,
            skip_bad_images=options.skip_bad_images,
            max_samples=options.max_samples,
            cache_bytes=options.cache_bytes,
            per_device_eval_batch_size=options.batch_size,
            use_cpu=options.cpu,
        )
    trainer = loaded.trainer
    if not options.verbose:
        TerminalCallback(screen).add_to(trainer)
    classes = list(trainer.model.config.id2label.values())
    unknowns = unknown_images(options, source, classes, trainer.processing_class)
    with trainer.args.main_process_first(desc="looking into the output folder"):
        claim_folder(folder, _identity(options, action, folder))
    show_header(screen, action, header_of_measuring(loaded, options.model, options.dataset, folder))
    report, rows = evaluate_checkpoint(
        trainer,
        loaded.test,
        loaded.calibration,
        corruptions=options.corruptions,
        corruption_samples=options.corruption_samples,
        corruption_design=options.corruption_design,
        unknowns=unknowns,
        command=command,
        **loaded.metadata,
    )
    return Measured(trainer, loaded.test, report, rows)


def _write(measured: Measured, options: Namespace, folder: Path, screen: Screen) -> list[Path]:
    with screen.phase("drawing the pictures"):
        written = write_report(measured.report, measured.rows, folder)
    return written + gallery(options, measured.test, measured.rows[-1], measured.trainer.model, folder)
