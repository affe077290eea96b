"""The work of `macs-hf export`: load the model and the images by name, export, and print what was found."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.preparing import aligned_images, load_data
from ..disk.public_names import path_fingerprint, public_name
from ..disk.run_folder import claim_folder, locked_folder
from ..exporting.card import temperature_sentence
from ..exporting.export import check_request, export_model
from ..exporting.report import ExportReport, SetCoverage
from ..hub.connection import is_local
from ..models.loading import load_pretrained, model_id
from ..publishing.card_settings import CardSettings
from ..publishing.folder import license_of
from ..training.screen import Screen
from .dataset_options import chosen_source
from .folders import check_output_dir
from .header import header_of_exporting, show_header
from .library_output import bars_of_datasets
from .results import show_files, show_summary
from .summary import metric_table


# Options that say which images to measure on.
OF_IMAGES = ("dataset_config", "split", "calibration_split", "image_column", "label_column")
OF_IMAGES += ("max_samples", "skip_bad_images")


def export(options: Namespace, command: str, screen: Screen) -> None:
    """Export the model of the options of `macs-hf export`."""
    folder = Path(options.output_dir)
    _check_images(options)
    check_output_dir(folder, options.model, options.dataset or "")
    check_request(folder, int8=options.int8, has_images=options.dataset is not None)
    with locked_folder(folder):
        claim_folder(folder, _identity(options, folder))
        _export(options, folder, command, screen)


def _check_images(options: Namespace) -> None:
    """Refuse options that would do nothing."""
    for name in OF_IMAGES:
        if getattr(options, name) and options.dataset is None:
            raise ValueError(f"{name}=... does nothing without images to measure on: name them with dataset=...")
    if options.calibration_split is not None and not options.int8:
        raise ValueError("calibration_split=... is for the int8 file: add int8=True, or leave it out.")


def _identity(options: Namespace, folder: Path) -> dict[str, Any]:
    """What makes an export the same when it is made again, perhaps with an int8 file, or measured on other images."""
    model = {"model": public_name(options.model), "model_place": path_fingerprint(options.model, folder)}
    return {"command": "export"} | model | {name: getattr(options, name) for name in ("model_revision", "image_size")}


def _export(options: Namespace, folder: Path, command: str, screen: Screen) -> None:
    wanted = () if options.dataset is None else ("validation", "test") if options.int8 else ("test",)
    source = splits = None
    if wanted:
        source = chosen_source(options)
        with bars_of_datasets(screen.draws):
            splits = load_data(
                source, wanted, skip_bad_images=options.skip_bad_images, max_eval_samples=options.max_samples
            )
    model, processor = load_pretrained(options.model, options.model_revision, options.image_size)
    images = aligned_images(splits, wanted, model.config, processor)
    show_header(screen, "export", header_of_exporting(model, processor, images, options))
    metadata = {
        "command": command,
        "model_revision": getattr(model.config, "_commit_hash", None) or options.model_revision,
    }
    if source is not None:
        metadata |= {"dataset": public_name(source.path), "dataset_config": source.config, "split": source.test_split}
        metadata["held_out_split"] = images["validation"].split if "validation" in images else None
    report = export_model(
        model,
        processor,
        folder,
        int8=options.int8,
        batch_size=options.batch_size,
        name=public_name(model_id(options.model)),
        license=_license(options.model),
        test=images.get("test"),
        held_out=images.get("validation"),
        screen=screen,
        **metadata,
    )
    show_summary(screen, summary(report))
    others = ("config.json", "preprocessor_config.json", "export.json", "README.md")
    show_files(screen, "files are", folder, [*report.files, *others])


def summary(report: ExportReport) -> str:
    """The report in a few lines."""
    agreement = report.agreement
    lines = [f"{report.model} as ONNX", ""]
    if report.float32 is not None:
        lines = [f"{report.model} as ONNX on {report.dataset}, {report.split} (n = {report.n})", ""]
        columns = {"float32": report.float32} | ({"int8": report.int8.published} if report.int8 is not None else {})
        lines += metric_table(columns)
    lines.append(
        f"largest difference between a logit of the float32 file and of PyTorch: {agreement.largest_difference:.1e}, "
        f"on {agreement.n} {agreement.images} (largest logit: {agreement.largest_logit:.1f})"
    )
    if report.int8 is not None:
        lines += [temperature_sentence(report), *_sets(report.int8.sets)]
    return "\n".join(lines)


def _sets(sets: Sequence[SetCoverage]) -> list[str]:
    if not sets:
        return []
    lines = ["", f"{'coverage of sets':<20}{'float32':>9}{'int8':>9}"]
    for part in sets:
        label = f"{100 * part.coverage:g}% promised, {part.method}"
        shares = f"{100 * part.float32.value:>8.2f}%{100 * part.int8.value:>8.2f}%"
        lines.append(f"{label:<20}{shares}  {part.difference.verdict}")
    return lines


def _license(name: str) -> str:
    if not is_local(name):
        return license_of(model_id(name), {})
    settings = CardSettings.load(name) if Path(name).is_dir() else None
    return "unknown" if settings is None else settings.license
