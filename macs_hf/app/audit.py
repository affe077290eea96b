"""An audit: a model and a dataset by name -> report, rows, and pictures of the mistakes it was surest of."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ..calibration import fold_temperature, store_guarantees
from ..data.images import ImageDataset, on_read
from ..data.sources import source_of
from ..evaluation.evaluate import class_names, default_corruptions, evaluate_checkpoint, load_model_and_data
from ..models.loading import load_pretrained, model_id
from ..models.timm_layout import save_classifier
from ..publishing.card import write_card
from ..rendering.html import report_article, write_report
from ..rendering.pictures import confident_mistakes, png, report_pictures
from ..report.report import EvaluationReport
from ..report.rows import SampleRows
from ..report.run_folder import public_words
from ..report.text import html_percent, html_text, section_markup
from .jobs import Job, picture
from .uploads import unpack


@dataclass(frozen=True)
class AuditRequest:
    """
    What a visitor asked for: the options of `macs-hf calibrate`, or of `evaluate`.

    Args:
        archive (`str`, *optional*): Path of an uploaded zip of class folders, in place of the `dataset`.
        corruption_samples (`int`, *optional*): Under corruption, at most so many images; all, if `None`; none, if 0.
        calibrate (`bool`): Whether to fit a temperature.
    """

    model: str
    dataset: str = ""
    archive: str | None = None
    dataset_config: str | None = None
    split: str | None = None
    calibration_split: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    model_revision: str | None = None
    image_size: int | None = None
    max_samples: int | None = None
    corruption_samples: int | None = 0
    calibrate: bool = True

    @property
    def words(self) -> list[str]:
        """The same audit on the command line, which has no zips."""
        options = asdict(self) | {"corruptions": None if self.corruption_samples == 0 else "auto"}
        options["corruption_samples"] = self.corruption_samples or None
        unused = ("model", "archive", "calibrate") + (() if self.calibrate else ("calibration_split",))
        words = ["macs-hf", "calibrate" if self.calibrate else "evaluate", self.model]
        for name, value in options.items():
            words += [f"--{name}", str(value)] if value is not None and name not in unused else []
        return words


@dataclass(frozen=True, eq=False)
class Audit:
    """
    What was found. The model itself is not kept: whoever needs it again loads it.

    Args:
        request ([`AuditRequest`]): What was asked for.
        report ([`EvaluationReport`]), rows: As [`evaluate_checkpoint`] returns them.
        mistakes (`str`): A section of the page: the wrong answers that it was surest of.
        notes (`tuple[str, ...]`): What the visitor should know about how it was measured.
    """

    request: AuditRequest
    report: EvaluationReport
    rows: list[SampleRows]
    mistakes: str
    notes: tuple[str, ...] = ()


def audit(request: AuditRequest, folder: Path, job: Job) -> Audit:
    """
    Measure a model.

    Args:
        request ([`AuditRequest`]): What to measure.
        folder (`Path`): The visitor's own.
        job ([`Job`]): Is told how far it is, and ends the audit if it was cancelled.
    """
    on_read.set(job.check)
    dataset, stated = request.dataset, {"command": shlex.join(public_words(request.words))}
    if request.archive is not None:
        with job.phase("unpacking the zip"):
            dataset = unpack(request.archive, folder, calibrate=request.calibrate, check=job.check)
        stated = {"dataset": Path(request.archive).stem}
    splits = {"validation_split": request.calibration_split, "test_split": request.split}
    with job.phase("loading images and model"):
        loaded = load_model_and_data(
            request.model,
            source_of(dataset, request.dataset_config, request.image_column, request.label_column, **splits),
            calibrate=request.calibrate,
            revision=request.model_revision,
            image_size=request.image_size,
            max_samples=request.max_samples,
            progress=job.phase,
        )
    measured, corrupted = loaded.measured, request.corruption_samples
    report, rows = evaluate_checkpoint(
        measured,
        loaded.test,
        loaded.calibration,
        corruptions=default_corruptions(measured.processor) if corrupted != 0 else None,
        corruption_samples=corrupted or None,
        **loaded.metadata | stated,
    )
    labels = class_names(measured.model, measured.config.num_labels)
    with job.phase("drawing"):
        return Audit(request, report, rows, gallery(loaded.test, rows[-1], labels), tuple(job.notes))


def save_model(audit: Audit, folder: Path, repo_id: str) -> None:
    """The audited model with its temperature folded in, its report, pictures and card, as `macs-hf calibrate` does."""
    report = audit.report
    model, processor = load_pretrained(audit.request.model, report.model_revision, audit.request.image_size)
    fold_temperature(model, report.temperature.value, torch.rand(2, 3, *report.image_size))
    store_guarantees(model.config, report.guarantees)
    save_classifier(model, processor, folder)
    write_report(report, audit.rows, folder)
    write_card(folder, repo_id, report, base_model=model_id(audit.request.model))


# ---- The report on the page ----


# Of classes and groups the page has tables.
SHOWN = ("reliability.png", "risk_coverage.png", "confusion.png", "corruptions.png", "severity.png")
DPI = 110
MISTAKES = 12
THUMBNAIL = 160  # pixels


def report_page(report: EvaluationReport, mistakes: str = "", notes: Sequence[str] = ()) -> str:
    """Everything that a report has, with the mistakes of an audit and notes on how it was measured."""
    images = {name: png(figure, DPI) for name, figure in report_pictures(report) if name in SHOWN}
    return report_article(report, images, notes=notes, mistakes=mistakes)


def gallery(dataset: ImageDataset, rows: SampleRows, labels: Sequence[str]) -> str:
    """The images whose wrong answers the model was surest of: what they show, and what it took them for."""
    cards = ""
    for index in confident_mistakes(rows, MISTAKES).tolist():
        image = dataset.image(index)
        image.thumbnail((THUMBNAIL, THUMBNAIL))
        label, taken_for = (labels[int(column[index])] for column in (rows.label, rows.prediction))
        said = f"{html_text(label)}<br>taken for {html_text(taken_for)}<br>"
        said += f"{html_percent(float(rows.confidence[index]))} sure"
        drawn = picture(image, f"an image of {label}", "thumbnail")
        cards += f"<figure>{drawn}<figcaption>{said}</figcaption></figure>"
    if not cards:
        return ""
    return section_markup("Mistakes it was sure of", f'<div class="gallery">{cards}</div>', "The surest first.")
