"""An audit: a model and a dataset by name -> report, rows, and pictures of the mistakes it was surest of."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..calibration import fold_temperature, store_guarantees
from ..data.images import ImageDataset, on_read
from ..data.sources import source_of
from ..evaluation.corruption_benchmark import default_design
from ..evaluation.evaluate import (
    ModelAndData,
    class_names,
    default_corruptions,
    evaluate_checkpoint,
    load_model_and_data,
    tqdm_bar,
)
from ..models.loading import load_pretrained, model_id
from ..models.timm_layout import save_classifier
from ..publishing.card import write_card
from ..rendering.html import report_article, write_report
from ..rendering.pictures import confident_mistakes, png, report_pictures
from ..report.report import EvaluationReport
from ..report.rows import CORRUPTIONS, SEVERITIES, SampleRows
from ..report.run_folder import public_words
from ..report.text import percent, section, text
from .jobs import Job, picture
from .uploads import unpack


MARGIN_SAMPLES, MARGIN_PASSES = 256, 11  # of `evaluate_checkpoint` and `analyze_margins`
MISTAKES = 12
THUMBNAIL = 160  # pixels


@dataclass(frozen=True)
class AuditRequest:
    """
    What a visitor asked for.

    Args:
        model (`str`): Hub id, timm name or folder.
        dataset (`str`): Benchmark name, Hub id or folder; ignored if there is an `archive`.
        archive (`str`, *optional*): Path of an uploaded zip of class folders.
        split, calibration_split, config, image_column, label_column, revision (`str`, *optional*): As on the command
            line.
        image_size (`int`, *optional*): Height and width of what the model gets, if not what its config says.
        images (`int`, *optional*): At most this many test images.
        corrupted_images (`int`, *optional*): Under corruption, at most this many; all, if not given, and none if 0.
        calibrate (`bool`): Whether to fit a temperature.
    """

    model: str
    dataset: str = ""
    archive: str | None = None
    split: str | None = None
    calibration_split: str | None = None
    config: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    revision: str | None = None
    image_size: int | None = None
    images: int | None = None
    corrupted_images: int | None = 0
    calibrate: bool = True

    @property
    def words(self) -> list[str]:
        """The same audit on the command line."""
        options = {
            "dataset": self.dataset,
            "dataset_config": self.config,
            "split": self.split,
            "calibration_split": self.calibration_split if self.calibrate else None,
            "image_column": self.image_column,
            "label_column": self.label_column,
            "model_revision": self.revision,
            "image_size": self.image_size,
            "max_samples": self.images,
            "corruptions": "auto" if self.corrupted_images != 0 else None,
            "corruption_samples": self.corrupted_images or None,
        }
        words = ["macs-hf", "calibrate" if self.calibrate else "evaluate", self.model]
        for name, value in options.items():
            words += [f"--{name}", str(value)] if value is not None else []
        return words

    @property
    def command(self) -> str | None:
        """For the report, without folders of the machine; the command line has no zips."""
        return None if self.archive is not None else shlex.join(public_words(self.words))


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
        job ([`Job`]): Counts the images that have been through the network, and ends the audit if it was cancelled.
    """
    on_read.set(job.step)
    dataset = request.dataset
    if request.archive is not None:
        job.step(stage="Unpacking the zip")
        dataset = unpack(request.archive, folder, calibrate=request.calibrate, step=job.step)
    job.step(stage="Loading images and model")
    source = source_of(
        dataset,
        request.config,
        request.image_column,
        request.label_column,
        validation_split=request.calibration_split,
        test_split=request.split,
    )
    loaded = load_model_and_data(
        request.model,
        source,
        calibrate=request.calibrate,
        revision=request.revision,
        image_size=request.image_size,
        max_samples=request.images,
        progress=partial(tqdm_bar, disable=True),
    )
    corrupting = request.corrupted_images != 0
    params = default_corruptions(loaded.measured.processor) if corrupting else None
    job.step(stage="Measuring", total=_images_to_pass(loaded, request.corrupted_images if params else 0))
    model = loaded.measured.model

    def count(_: Any, given: tuple, named: dict[str, Any]) -> None:
        job.step(len(named["pixel_values"] if "pixel_values" in named else given[0]))

    model.register_forward_pre_hook(count, with_kwargs=True)
    metadata = loaded.metadata
    if request.archive is not None:
        metadata = metadata | {"dataset": Path(request.archive).stem}
    report, rows = evaluate_checkpoint(
        loaded.measured,
        loaded.test,
        loaded.calibration,
        corruptions=params,
        corruption_samples=request.corrupted_images or None,
        command=request.command,
        **metadata,
    )
    job.step(stage="Drawing")
    labels = class_names(model, model.config.num_labels)
    return Audit(request, report, rows, gallery(loaded.test, rows[-1], labels), tuple(job.notes))


def save_model(audit: Audit, folder: Path, repo_id: str) -> None:
    """
    The audited model with its temperature folded in, its report, pictures and card: what `macs-hf calibrate` saves.

    Args:
        audit ([`Audit`]): With a temperature.
        folder (`Path`): Where to.
        repo_id (`str`): Where it goes on the Hub, or a name.
    """
    report = audit.report
    model, processor = load_pretrained(audit.request.model, report.model_revision, audit.request.image_size)
    fold_temperature(model, report.temperature.value, torch.rand(2, 3, *report.image_size))
    store_guarantees(model.config, report.guarantees)
    save_classifier(model, processor, folder)
    write_report(report, audit.rows, folder)
    write_card(folder, repo_id, report, base_model=model_id(audit.request.model))


def _images_to_pass(loaded: ModelAndData, corrupted: int | None) -> int:
    tested = len(loaded.test)
    count = tested + min(MARGIN_SAMPLES, tested) * MARGIN_PASSES
    count += len(loaded.calibration) if loaded.calibration is not None else 0
    corrupted = tested if corrupted is None else min(tested, corrupted)
    corruptions = 1 if default_design(corrupted) == "spread" else len(CORRUPTIONS)
    return count + corrupted * corruptions * len(SEVERITIES)


# ---- The report on the page ----


# Of classes and groups the page has tables.
SHOWN = ("reliability.png", "risk_coverage.png", "confusion.png", "corruptions.png", "severity.png")
DPI = 110


def report_page(report: EvaluationReport, mistakes: str = "", notes: Sequence[str] = ()) -> str:
    """
    Everything that a report has; what it lacks is left out.

    Args:
        report ([`EvaluationReport`]): What was measured.
        mistakes (`str`, *optional*): From [`gallery`].
        notes (`Sequence[str]`, *optional*): What a reader should know about how it was measured.
    """
    images = {name: png(figure, DPI) for name, figure in report_pictures(report) if name in SHOWN}
    return report_article(report, images, notes=notes, mistakes=mistakes)


def gallery(dataset: ImageDataset, rows: SampleRows, labels: Sequence[str]) -> str:
    """The images whose wrong answers the model was surest of: what they show, and what it took them for."""
    cards = ""
    for index in confident_mistakes(rows, MISTAKES).tolist():
        image = dataset.image(index)
        image.thumbnail((THUMBNAIL, THUMBNAIL))
        label, taken_for = (labels[int(column[index])] for column in (rows.label, rows.prediction))
        cards += f"<figure>{picture(image, f'an image of {label}', 'thumbnail')}<figcaption>{text(label)}<br>taken "
        cards += f"for {text(taken_for)}<br>{percent(float(rows.confidence[index]))} sure</figcaption></figure>"
    if not cards:
        return ""
    return section("Mistakes it was sure of", f'<div class="gallery">{cards}</div>', "The surest first.")
