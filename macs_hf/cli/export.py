"""`macs-hf export`: load the model and the images by name, export, and print what was found."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from ..data.preparing import aligned_images, load_data
from ..evaluation.evaluate import split_that_trained
from ..exceptions import ArgumentError
from ..exporting import ExportReport, check_request, export_model, measured_table, temperature_sentence
from ..hub import is_local
from ..models.loading import load_pretrained, model_id
from ..publishing.card import CardSettings, license_of
from ..report.run_folder import claim_folder, locked_folder, path_fingerprint, public_name
from ..report.text import table_lines
from ..training.callbacks import Screen
from .measure import chosen_source
from .output import header_of_exporting, show_files, show_header, show_summary
from .process import checked_output_dir


# Options that say which images to measure on.
OF_IMAGES = ("dataset_config", "split", "calibration_split", "image_column", "label_column")
OF_IMAGES += ("max_samples", "skip_bad_images")


def export(options: Namespace, command: str, screen: Screen) -> None:
    """`macs-hf export`: load the model and the images by name, write the files, and print what was found."""
    for name in OF_IMAGES:
        if getattr(options, name) and options.dataset is None:
            raise ArgumentError("dataset", f"--{name} does nothing without images to measure on: name them with")
    if options.calibration_split is not None and not options.int8:
        raise ArgumentError("int8", "--calibration_split is for the int8 file. Leave it out, or add")
    folder = checked_output_dir(options.output_dir, options.model, options.dataset or "")
    check_request(folder, int8=options.int8, has_images=options.dataset is not None)
    # The same export may be made again with an int8 file, or measured on other images.
    identity = {"command": "export", "model": public_name(options.model)}
    identity |= {"model_place": path_fingerprint(options.model, folder)}
    identity |= {name: getattr(options, name) for name in ("model_revision", "image_size")}
    with locked_folder(folder):
        claim_folder(folder, identity)
        report = _export(options, folder, command, screen)
    show_summary(screen, summary(report))
    others = ("config.json", "preprocessor_config.json", "export.json", "README.md")
    show_files(screen, "files are", folder, [*report.files, *others])


def _export(options: Namespace, folder: Path, command: str, screen: Screen) -> ExportReport:
    wanted = () if options.dataset is None else ("validation", "test") if options.int8 else ("test",)
    source = splits = None
    if wanted:
        source, bad = chosen_source(options), options.skip_bad_images
        unseen = split_that_trained(options.model, source) is None
        splits = load_data(source, wanted, unseen=unseen, skip_bad_images=bad, max_eval_samples=options.max_samples)
    model, processor = load_pretrained(options.model, options.model_revision, options.image_size)
    images = aligned_images(splits, wanted, model.config, processor)
    show_header(screen, "export", header_of_exporting(model, processor, images, options))
    metadata: dict[str, Any] = {
        "command": command,
        "model_revision": getattr(model.config, "_commit_hash", None) or options.model_revision,
    }
    if source is not None:
        metadata |= {"dataset": public_name(source.path), "dataset_config": source.config, "split": source.test_split}
        metadata["held_out_split"] = images["validation"].split if "validation" in images else None
    return export_model(
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


def summary(report: ExportReport) -> str:
    """The report in a few lines."""
    lines = [f"{report.model} as ONNX", ""]
    if report.float32 is not None:
        lines = [f"{report.model} as ONNX on {report.dataset}, {report.split} (n = {report.n})", ""]
        lines += [*table_lines(measured_table(report)), ""]
    if report.above_chance is False:
        lines.insert(0, "Its accuracy is not above chance.")
    lines.append(
        f"largest difference between a logit of the float32 file and of PyTorch: {report.largest_difference:.1e}, "
        f"on {report.checked} {report.checked_on} (largest logit: {report.largest_logit:.1f})"
    )
    if report.int8 is not None:
        lines.append(temperature_sentence(report))
    return "\n".join(lines)


def _license(name: str) -> str:
    if not is_local(name):
        return license_of(model_id(name), {})
    settings = CardSettings.load(name) if Path(name).is_dir() else None
    return "unknown" if settings is None else settings.license
