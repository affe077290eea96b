"""The work of `macs-hf export`: load the model and the images by name, export, and print what was found."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from ..data.preparing import aligned_images, load_data
from ..disk.public_names import path_fingerprint, public_name
from ..disk.run_folder import claim_folder, locked_folder
from ..disk.terminal_text import printable
from ..exporting.card import temperature_sentence
from ..exporting.export import check_request, export_model
from ..exporting.report import ExportReport
from ..hub.connection import is_local
from ..models.loading import load_pretrained, model_id
from ..publishing.card_settings import CardSettings
from ..publishing.folder import license_of
from ..report.interval import interval_text
from .dataset_options import chosen_source
from .folders import check_output_dir


def export(options: Namespace, command: str) -> None:
    """Export the model of the options of `macs-hf export`."""
    folder = Path(options.output_dir)
    check_output_dir(folder, options.model, options.dataset or "")
    check_request(folder, int8=options.int8, has_images=options.dataset is not None)
    with locked_folder(folder):
        claim_folder(folder, _identity(options, folder))
        _export(options, folder, command)


def _identity(options: Namespace, folder: Path) -> dict[str, Any]:
    """What makes an export the same when it is made again, perhaps with an int8 file, or measured on other images."""
    model = {"model": public_name(options.model), "model_place": path_fingerprint(options.model, folder)}
    return {"command": "export"} | model | {name: getattr(options, name) for name in ("model_revision", "image_size")}


def _export(options: Namespace, folder: Path, command: str) -> None:
    wanted = () if options.dataset is None else ("validation", "test") if options.int8 else ("test",)
    source = splits = None
    if wanted:
        source = chosen_source(options)
        splits = load_data(
            source, wanted, skip_bad_images=options.skip_bad_images, max_eval_samples=options.max_samples
        )
    model, processor = load_pretrained(options.model, options.model_revision, options.image_size)
    images = aligned_images(splits, wanted, model.config, processor)
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
        **metadata,
    )
    print(printable(summary(report)))
    written = [folder / name for name in (*report.files, "config.json", "preprocessor_config.json")]
    print("\nwritten:", *written, folder / "export.json", folder / "README.md", sep="\n  ")


def summary(report: ExportReport) -> str:
    """The report in a few lines."""
    agreement = report.agreement
    lines = [
        f"{report.model} as ONNX: largest difference of a logit {agreement.largest_difference:.1e} on {agreement.n} "
        f"{agreement.images} (largest logit {agreement.largest_logit:.1f})"
    ]
    if report.float32 is not None:
        lines += ["", f"on {report.dataset}, {report.split} (n = {report.n})"]
        columns = {"float32": report.float32} | ({"int8": report.int8.published} if report.int8 is not None else {})
        lines.append(" " * 12 + "".join(f"{title:>28}" for title in columns))
        for name in ("accuracy", "ece", "nll"):
            cells = [interval_text(part.metrics[name]) for part in columns.values()]
            lines.append(f"{name:<12}" + "".join(f"{cell:>28}" for cell in cells))
    if report.int8 is not None:
        lines += ["", temperature_sentence(report)]
        for part in report.int8.sets:
            lines.append(
                f"sets of {100 * part.coverage:g} % ({part.method}): float32 {100 * part.float32.value:.2f} %, "
                f"int8 {100 * part.int8.value:.2f} %, {part.difference.verdict}"
            )
    return "\n".join(lines)


def _license(name: str) -> str:
    if not is_local(name):
        return license_of(model_id(name), {})
    settings = CardSettings.load(name) if Path(name).is_dir() else None
    return "unknown" if settings is None else settings.license
