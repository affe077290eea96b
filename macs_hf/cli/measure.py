"""`macs-hf evaluate`, `calibrate` and `verify`: measure a classifier that was trained elsewhere; and what `train` and
`export` share with them.
"""

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..calibration import fold_temperature, store_guarantees
from ..data.images import ImageDataset
from ..data.preparing import OodImages, load_ood
from ..data.sources import DATASETS, DatasetSource, source_of
from ..evaluation.evaluate import MeasuredModel, evaluate_checkpoint, load_model_and_data
from ..evaluation.verify import verify_model
from ..exceptions import ArgumentError
from ..hub import check_place
from ..models.loading import model_id
from ..models.timm_layout import WEIGHT_FILES, save_classifier
from ..publishing.access import check_push_access
from ..publishing.card import REPORT_FILES, write_card
from ..publishing.push import check_pull_request_access, open_pull_request, pull_request_refusal, push_folder
from ..rendering.html import write_report
from ..rendering.pictures import write_gallery
from ..report.report import TEMPERATURE_FIELD, EvaluationReport, add_checksums
from ..report.rows import SampleRows
from ..report.run_folder import GALLERY, atomic_folder, claim_folder, locked_folder, path_fingerprint, public_name
from ..report.sections import interval_text
from ..report.text import printable
from ..training.callbacks import Screen
from .output import after_saving, header_of_measuring, model_of, show_files, show_header, show_next, show_summary
from .process import checked_output_dir, folder_name, is_main_process
from .train_arguments import check_gallery


# ---- Evaluate and calibrate ----


class Measured(NamedTuple):
    """A model, and what was measured about it."""

    measured: MeasuredModel
    test: ImageDataset
    report: EvaluationReport
    rows: list[SampleRows]


def evaluate(options: Namespace, command: str, screen: Screen) -> None:
    """`macs-hf evaluate`: measure a model, and write the results."""
    folder = _folder(options, "evaluate")
    with locked_folder(folder, hold=is_main_process()):
        found = _measure(options, "evaluate", folder, command, screen)
        if not is_main_process():
            return
        with atomic_folder(folder, replaces=(*REPORT_FILES, GALLERY)) as draft:
            written = write_results(found.report, found.rows, found.test, found.measured.model, options, draft, screen)
        show_summary(screen, str(found.report))
        show_files(screen, "report is", folder, [path.name for path in written])
        show_next(screen, _after_evaluating(options, found))


def _after_evaluating(options: Namespace, found: Measured) -> dict[str, str]:
    """What to type next, for the same model, images and size."""
    words, same = [options.model, "--dataset", options.dataset], []
    for name in ("dataset_config", "image_column", "label_column", "model_revision"):  # which the page has fields for
        same += [f"--{name}", value] if (value := getattr(options, name)) is not None else []
    better = found.report.better_size
    if better is not None:
        again = ["macs-hf", "evaluate", *words, *same, "--image_size", str(better.size)]
        return {"measure it at that size": shlex.join(again)}
    words += [] if options.image_size is None else ["--image_size", str(options.image_size)]
    browse = {"see it in the browser": shlex.join(["macs-hf", "app", *words])}
    # A temperature is for the size at which it was fitted, and no help to a model that knows nothing.
    has_one = options.image_size is None and hasattr(found.measured.model.config, TEMPERATURE_FIELD)
    if has_one or found.report.above_chance is False:
        return browse
    return {"give it a temperature": shlex.join(["macs-hf", "calibrate", *words, *same])} | browse


def calibrate(options: Namespace, command: str, screen: Screen) -> None:
    """`macs-hf calibrate`: measure a model with a temperature, fold it in, save it all, and publish it if asked."""
    check_gallery(options.gallery, options.publish_gallery)
    if options.private and not (options.push_to_hub or options.create_pr):
        raise ArgumentError("push_to_hub", "--private is given, but nothing would be pushed. Name a repository with")
    folder = _folder(options, "calibrate")
    repo_id = proposed_to = None  # access is checked before the long work
    if options.create_pr:
        proposed_to = _proposal_target(options)
    elif options.push_to_hub:
        repo_id = check_push_access(options.push_to_hub, private=options.private)
    with locked_folder(folder, hold=is_main_process()):
        found = _measure(options, "calibrate", folder, command, screen)
        model, report = found.measured.model, found.report
        if not is_main_process():
            return
        checked = torch.stack([found.test[place]["pixel_values"] for place in range(min(4, len(found.test)))])
        fold_temperature(model, report.temperature.value, checked)
        store_guarantees(model.config, report.guarantees)
        with atomic_folder(folder, replaces=(*WEIGHT_FILES, *REPORT_FILES, GALLERY)) as draft:
            save_classifier(model, found.measured.processor, draft)
            written = write_results(report, found.rows, found.test, model, options, draft, screen)
            add_checksums(draft, is_folded=True)
            card = {"base_model": model_id(options.model), "gallery": options.publish_gallery, "earlier": folder}
            write_card(draft, repo_id or folder.resolve().name, report, **card)
        show_summary(screen, str(report))
        show_files(screen, model_of(report), folder, [path.name for path in written])
        if repo_id:
            url = push_folder(folder, repo_id, private=options.private).repo_url
            screen.line(f"Pushed: {url}", wrap=False)
        if proposed_to and (objection := pull_request_refusal(report)):
            screen.line(f"No pull request: {objection}")
        elif proposed_to:
            screen.line(f"Pull request: {open_pull_request(folder, proposed_to, report).pr_url}", wrap=False)
        show_next(screen, after_saving(report, folder, pushed=bool(repo_id or proposed_to)))


def _proposal_target(options: Namespace) -> str:
    """The repository that a pull request goes to."""
    if options.model_revision is not None:
        raise ArgumentError("create_pr", "offers the change to the main branch: leave --model_revision out.", True)
    if options.private:
        raise ArgumentError("create_pr", "opens a pull request in an existing repository: leave --private out.", True)
    repo_id = options.push_to_hub or model_id(options.model)
    check_pull_request_access(repo_id)
    return repo_id


def _folder(options: Namespace, action: str) -> Path:
    """Where the results go."""
    size = [] if options.image_size is None else [f"{options.image_size}px"]
    names = (folder_name(options.model), folder_name(options.dataset), *size, action)
    folder = options.output_dir or Path("runs", "-".join(names))
    return checked_output_dir(folder, options.model, options.dataset)


def _measure(options: Namespace, action: str, folder: Path, command: str, screen: Screen) -> Measured:
    for name, default in (("corruption_samples", None), ("corruption_design", "auto")):
        if options.corruptions is None and getattr(options, name) != default:
            raise ArgumentError("corruptions", f"--{name} is given, but nothing would be corrupted. Add")
    source = chosen_source(options)
    loaded = load_model_and_data(
        options.model,
        source,
        calibrate=action == "calibrate",
        revision=options.model_revision,
        image_size=options.image_size,
        skip_bad_images=options.skip_bad_images,
        max_samples=options.max_samples,
        cache_bytes=options.cache_bytes,
        batch_size=options.batch_size,
        use_cpu=options.cpu,
        progress=None if options.verbose else screen.phase,
    )
    measured = loaded.measured
    ood = ood_images(options, source, list(measured.config.id2label.values()), measured.processor)
    with measured.accelerator.main_process_first():
        claim_folder(folder, _identity(options, action, folder))
    show_header(screen, action, header_of_measuring(loaded, options.model, options.dataset, folder))
    report, rows = evaluate_checkpoint(
        measured,
        loaded.test,
        loaded.calibration,
        corruptions=options.corruptions,
        corruption_samples=options.corruption_samples,
        corruption_design=options.corruption_design,
        ood=ood,
        force_temperature=action == "calibrate" and options.force_temperature,
        command=command,
        **loaded.metadata,
    )
    return Measured(measured, loaded.test, report, rows)


def _identity(options: Namespace, action: str, folder: Path) -> dict[str, Any]:
    """What makes a measurement the same when it is made again."""
    names = ("model_revision", "image_size", "dataset_config", "image_column", "label_column", "split")
    names += ("calibration_split",) if action == "calibrate" else ()
    identity = {"command": action} | {name: getattr(options, name) for name in names}
    for name in ("model", "dataset"):
        given = getattr(options, name)
        identity |= {name: public_name(given), f"{name}_place": path_fingerprint(given, folder)}
    return identity


# ---- Verify ----


PUBLISHED = 26  # columns, for an interval of negative numbers


def verify(options: Namespace, command: str, screen: Screen) -> int:
    """`macs-hf verify`: measure a published model again, and compare with the numbers that it came with."""
    found = verify_model(
        options.model,
        revision=options.model_revision,
        dataset=options.dataset,
        corruptions=not options.skip_corruptions,
        batch_size=options.batch_size,
        use_cpu=options.cpu,
        progress=screen.phase,
        config=options.dataset_config,
        test_split=options.split,
        image_column=options.image_column,
        label_column=options.label_column,
    )
    report, data = found.report, options.dataset or found.report.dataset
    print(printable(f"\n{options.model} on {data}, {report.split} (n = {report.n})\n"))
    width = max(len(number.name) for number in found.numbers)
    print(f"{'':<{width}}  {'published':>{PUBLISHED}}  {'now':>7}")
    for number in found.numbers:
        stated = interval_text(number.published)
        outcome = ("same" if number.same else "within") if number.holds else "OUTSIDE"
        print(f"{number.name:<{width}}  {stated:>{PUBLISHED}}  {number.now:>7.4f}  {outcome}")
    right = sum(number.holds for number in found.numbers)
    same = sum(number.holds and number.same for number in found.numbers)
    print(f"\n{right} of {len(found.numbers)} numbers come out within their intervals, {same} as published")
    return 0 if found.holds else 1


# ---- Data and results ----
# What `train`, `evaluate` and `calibrate` have in common.


def ood_images(options: Any, source: DatasetSource, class_names: Sequence[str], processor: Any) -> OodImages | None:
    """The images of `ood_dataset`, read now, so that mistakes are found before the long work."""
    if options.ood_dataset is None:
        if options.ood_split is not None:
            raise ArgumentError("ood_dataset", f"{options.ood_split!r} is the split of a dataset. Name it with")
        return None
    check_place("ood_dataset", options.ood_dataset, DATASETS)
    return load_ood(
        source_of(options.ood_dataset),
        options.ood_split,
        source,
        class_names,
        processor,
        skip_bad_images=options.skip_bad_images,
        cache_bytes=options.cache_bytes,
    )


def write_results(
    report: EvaluationReport,
    rows: Sequence[SampleRows],
    test: ImageDataset,
    model: Any,
    options: Any,
    folder: Path,
    screen: Screen,
) -> list[Path]:
    """Write report, rows, pictures and, if it was asked for and there are mistakes, a gallery; gives their paths."""
    with screen.phase("drawing the pictures"):
        written = write_report(report, rows, folder)
    if options.gallery is None:
        return written
    names = tuple(model.config.id2label[number] for number in range(model.config.num_labels))
    path = write_gallery(test, rows[-1], names, folder, options.gallery)
    return written if path is None else [*written, path]


def chosen_source(options: Any) -> DatasetSource:
    """
    Args:
        options (`Namespace` or dataclass): Of a command. Not every command has `calibration_split`, `train_split`,
            `horizontal_flip` and `group_column`.
    """
    given = vars(options)
    return source_of(
        options.dataset,
        options.dataset_config,
        options.image_column,
        options.label_column,
        validation_split=given.get("calibration_split"),
        test_split=options.split,
        **{name: given.get(name) for name in ("train_split", "horizontal_flip", "group_column")},
    )
