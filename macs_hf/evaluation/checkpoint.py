"""One trained model and its held-out data -> one `EvaluationReport`, with its rows and pictures on disk."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset
from transformers.trainer_utils import has_length
from transformers.utils import logging

from ..calibration.guarantees import MIN_HELD_OUT, calibrate_logits
from ..calibration.temperature import TemperatureFit, temperature_helped
from ..data.images import input_size
from ..data.leakage import find_leakage
from ..data.unknowns import UnknownImages
from ..metrics import measure, risk_coverage
from ..objective.supervision import logits_of
from ..plots.pictures import report_pictures
from ..plots.style import png
from ..publishing.report_page import write_report_page
from ..report.corruption_table import CORRUPTIONS, SEVERITIES, CorruptionTable
from ..report.evaluation import EvaluationReport, Temperature
from ..report.margins import MarginAnalysis
from ..report.rows import SampleRows
from ..report.run import GALLERY, PICTURES, save_run
from ..sharding import gathered_weights
from ..training.full_precision import full_precision
from ..training.terminal import phase, view_of
from ..training.trainer import MaCSTrainer
from .byte_images import ByteImages
from .corruption_benchmark import evaluate_corruptions, forward_of
from .corruption_design import subset
from .groups import group_tables
from .guarantee_counts import GuaranteeCounts
from .margins import analyze_margins, spectral_complexity
from .metadata import default_metadata, group_column_of, origin_of, renamed_classes_of, split_of
from .predictions import predict_test
from .unknowns import measure_unknowns, unknown_scores


logger = logging.get_logger(__name__)

PACKAGES = ("macs-hf", "torch", "torchvision", "transformers", "accelerate", "datasets", "timm")
SMALLEST_CORRUPTED = 32
# Fields of the report that are measured, so that a caller cannot state them.
MEASURED = {"n", "before", "after", "temperature", "corruptions", "margins", "versions", "guarantees", "risk_coverage"}
MEASURED |= {"image_size", "classes", "confusion", "groups", "unknowns", "leakage", "renamed_classes"}


def evaluate_checkpoint(
    trainer: MaCSTrainer,
    test: Dataset,
    calibration: Dataset | None = None,
    *,
    corruptions: str | None = None,
    corruption_samples: int | None = None,
    corruption_design: str = "auto",
    margin_samples: int = 256,
    unknowns: UnknownImages | None = None,
    **metadata: Any,
) -> tuple[EvaluationReport, list[SampleRows]]:
    """
    Measure the trainer's model on `test`, before and after a temperature fitted on `calibration`. The model itself is
    not changed.

    Args:
        trainer ([`MaCSTrainer`]): Holds the model and runs it, on as many processes as there are.
        test, calibration (`Dataset`): Of `pixel_values` and `labels`. Without `calibration` no temperature is fitted;
            from 400 samples on, half of them fit it, and the others make guarantees.
        corruptions (`str`, *optional*): Parameter set of the corruption benchmark, `auto`, `cifar` or `imagenet`.
        corruption_samples (`int`, *optional*): A fixed subset of `test` for it; all, if not given.
        corruption_design (`str`, *optional*, defaults to `"auto"`): See [`CorruptionBenchmark`].
        margin_samples (`int`, *optional*, defaults to 256): A fixed subset of `test` for margins and sensitivity.
        unknowns ([`UnknownImages`], *optional*): Images of none of the model's classes, to see how it reacts to them.
        metadata: The other fields of the report. `model`, `dataset` and `split` are taken from the model's config and
            from `test` if they are not given.

    Returns:
        The report, and the rows of the test samples: of the model and, with `calibration`, of the model with its
        temperature.
    """
    stated = {field.name for field in dataclasses.fields(EvaluationReport)} - MEASURED
    if unknown := sorted(metadata.keys() - stated):
        raise TypeError(f"evaluate_checkpoint has no argument {unknown[0]!r}; fields to state are {sorted(stated)}.")
    metadata = default_metadata(trainer, test) | metadata
    temperature = guarantees = guarantee_counts = fit = None
    if calibration is not None:
        with phase(trainer, f"fitting {_fitted_on(calibration)} on {_count(calibration)}"):
            logits, labels = trainer.predict_logits(calibration)
        # Promises from samples that also chose the checkpoint are approximate.
        fit, guarantees = calibrate_logits(logits, labels, exact=not trainer.args.load_best_model_at_end)
    scores = None if unknowns is None else unknown_scores(None if fit is None else fit.temperature)
    with phase(trainer, f"testing on {_count(test)}"):
        rows, guarantees, names, known_scores, covered = predict_test(trainer, test, guarantees, scores)
    if calibration is not None:
        temperature = _temperature(fit, split_of(calibration), rows)
        guarantee_counts = GuaranteeCounts(guarantees) if guarantees.prediction_sets else None
    rows = [dataclasses.replace(part, **origin_of(test)) for part in rows]
    with phase(trainer, "computing intervals"):
        before, *after = [measure(part) for part in rows]
    table = _corruptions(
        trainer,
        test,
        rows,
        temperature,
        guarantee_counts,
        params=corruptions,
        samples=corruption_samples,
        design=corruption_design,
    )
    if table is not None and guarantee_counts is not None:
        guarantees = guarantee_counts.totals(table, trainer.accelerator)
    report = EvaluationReport(
        n=len(rows[0]),
        before=before,
        after=after[0] if after else None,
        temperature=temperature,
        corruptions=table,
        margins=_margins(trainer, test, margin_samples),
        guarantees=guarantees,
        risk_coverage=risk_coverage(rows[-1]) if len(rows[0]) > 1 else None,
        image_size=trainer.inputs.evaluated,
        leakage=find_leakage({"train": trainer.train_dataset, "validation": calibration, "test": test}),
        renamed_classes=renamed_classes_of(trainer, test),
        unknowns=None if unknowns is None else measure_unknowns(trainer, unknowns, known_scores, test, guarantees),
        **group_tables(rows[-1], names, group_column_of(test), covered, guarantees),
        versions={package: version(package) for package in PACKAGES},
        **metadata,
    )
    return report, rows


def write_report(
    report: EvaluationReport, rows: Sequence[SampleRows], folder: str | Path, *, compact: bool = False
) -> list[Path]:
    """
    Write `evaluation.json`, `samples.parquet`, `report.html` and the pictures to `folder`, in place of those of an
    earlier report.

    Args:
        report, rows: As [`evaluate_checkpoint`] returns them.
        folder (`str` or `Path`): The run's folder.
        compact (`bool`, *optional*, defaults to `False`): Store each score to about 3 %, in less space.

    Returns:
        `list[Path]`: What was written.
    """
    folder = Path(folder)
    written = save_run(report, rows, folder, compact=compact)
    for picture in (*PICTURES, GALLERY):
        (folder / picture).unlink(missing_ok=True)
    images = {name: png(figure) for name, figure in report_pictures(report)}
    for name, content in images.items():
        (folder / name).write_bytes(content)
    page = write_report_page(report, images, folder)
    return [*written, page, *(folder / name for name in images)]


def default_corruptions(processor: Any) -> str | None:
    """The parameter set that fits a model's input size: `cifar` up to 64 pixels, `imagenet` above; none below 32."""
    size = min(input_size(processor))
    if size < SMALLEST_CORRUPTED:
        logger.warning(f"No corruption benchmark: the network takes {size} pixels, fewer than {SMALLEST_CORRUPTED}.")
        return None
    return "cifar" if size <= 64 else "imagenet"


def _fitted_on(dataset: Dataset) -> str:
    """What these images are for: enough of them also make promises."""
    enough = has_length(dataset) and len(dataset) >= MIN_HELD_OUT
    return "the temperature and promises" if enough else "the temperature"


def _count(dataset: Dataset) -> str:
    return f"{len(dataset):,} images" if has_length(dataset) else "images"


def _temperature(fit: TemperatureFit, split: str | None, rows: Sequence[SampleRows]) -> Temperature:
    return Temperature(
        fit.temperature,
        fit.reason,
        split,
        fit.num_samples,
        fit.standard_error,
        fit.confidence_shift,
        fit.nll_before,
        fit.nll_after,
        nll_gain=temperature_helped(*rows) if len(rows[0]) > 1 else None,
    )


def _corruptions(
    trainer: MaCSTrainer,
    test: Dataset,
    rows: Sequence[SampleRows],
    temperature: Temperature | None,
    guarantee_counts: GuaranteeCounts | None,
    **benchmark: Any,
) -> CorruptionTable | None:
    if benchmark["params"] is None:
        return None
    if trainer.pixel_stats is None:
        raise ValueError(
            "Corruptions act on pixels, but how images are normalised is not known: give the trainer the image "
            "processor (processing_class) or pixel_stats=PixelStats(mean, std)."
        )
    tested = min(len(test), benchmark["samples"] or len(test))
    label = f"{len(CORRUPTIONS)} corruptions x {len(SEVERITIES)} on {tested:,} images"
    view = view_of(trainer)
    with full_precision(trainer), gathered_weights(trainer.model):  # processes have unequal numbers of batches
        return evaluate_corruptions(
            forward_of(trainer.model, trainer.pixel_stats),
            ByteImages(test, ("pixel_values", "labels"), trainer.pixel_stats),
            temperature=temperature.value if temperature else None,
            clean_rows=rows,
            guarantee_counts=guarantee_counts,
            batch_size=trainer.args.eval_batch_size,
            accelerator=trainer.accelerator,
            progress=not trainer.args.disable_tqdm if view is None else partial(view.counted_phase, label),
            **benchmark,
        )


def _margins(trainer: MaCSTrainer, test: Dataset, samples: int) -> MarginAnalysis:
    model = trainer.model.eval()
    part = Subset(test, subset(len(test), samples, seed=0))  # the first ones may all be of one class
    loader = DataLoader(part, batch_size=trainer.args.eval_batch_size, collate_fn=trainer.data_collator)

    @torch.inference_mode()
    def forward(images: torch.Tensor) -> torch.Tensor:
        return logits_of(model(pixel_values=images)).float()

    batches = ((batch["pixel_values"].to(trainer.args.device), batch["labels"]) for batch in loader)
    label = f"margins of {len(part):,} images"
    with full_precision(trainer), gathered_weights(model), phase(trainer, label):
        found = analyze_margins(forward, batches)
        return dataclasses.replace(found, spectral_complexity_log10=spectral_complexity(model))
