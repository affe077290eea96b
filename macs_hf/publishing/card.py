"""One `EvaluationReport` -> one model card: metadata for the Hub, and a text that claims only what was measured."""

import re
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..disk.secrets import redact
from ..plots.alt_texts import alt_texts
from ..report.corruption_table import STANDARD_15
from ..report.evaluation import EvaluationReport
from ..report.run import GALLERY, GALLERY_CAPTION, PICTURES
from ..report.short_names import short_name
from .card_findings import findings
from .card_sections import sections
from .card_settings import CardSettings
from .markdown import rendered


TEMPLATE, FINDINGS = (Path(__file__).parent / "templates" / name for name in ("model_card.md", "findings.md"))
TASK = "image-classification"
# How transformers' callback for Trackio marks a model: the Hub shows that Space beside the model.
TRACKIO_TAG = re.compile(r"trackio:(https://huggingface\.co/spaces/[\w.-]+/[\w.-]+)")
TAGS = ("image-classification", "vision", "calibration", "robustness", "macs")


def model_card(report: EvaluationReport | None, settings: CardSettings) -> ModelCard:
    """
    The card of a checkpoint.

    Args:
        report ([`EvaluationReport`], *optional*): What was measured; without it the card says that nothing was.
        settings ([`CardSettings`]): Everything else.
    """
    if unknown := [picture for picture in settings.pictures if picture not in PICTURES]:
        raise ValueError(f"pictures: {unknown[0]!r} is not a picture of a run; there are {', '.join(PICTURES)}.")
    results = _results(report, settings.datasets) if report is not None else []
    timm_tags = ("timm", "transformers") if settings.timm else ()
    data = ModelCardData(
        language=settings.language,
        license=settings.license,
        library_name="timm" if settings.timm else "transformers",
        pipeline_tag=TASK,
        base_model=settings.base_model,
        # The Hub takes these for what a model was trained on.
        datasets=(list(settings.datasets) or None) if report is None or report.training_arguments else None,
        tags=list(dict.fromkeys([*TAGS, *timm_tags, *settings.tags])),
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=settings.name,
        eval_results=results or None,
    )
    found, described = "", {}
    if report is not None:
        described = alt_texts(report)
        found = rendered(FINDINGS, **findings(report)).strip()
    card = rendered(
        TEMPLATE,
        metadata=data.to_yaml(),
        settings=settings,
        report=report,
        findings=found,
        where=settings.repo_id or settings.folder or settings.name,
        training_curves=next((found[1] for tag in settings.tags if (found := TRACKIO_TAG.fullmatch(tag))), None),
        pictures=[(file, described.get(file, PICTURES[file])) for file in settings.pictures]
        + ([(GALLERY, GALLERY_CAPTION)] if settings.gallery else []),
        **(sections(report, settings.datasets) if report is not None else {"corruptions": None, "promises": None}),
    )
    return ModelCard(redact(card))


def _results(report: EvaluationReport, datasets: Sequence[str]) -> list[EvalResult]:
    """The numbers of the model as it is published, as plain floats."""
    metrics = report.published.metrics
    n_bins = len(report.before.bins.count)
    found = [
        ("accuracy", "Accuracy", metrics["accuracy"].value, None),
        ("ece", f"Expected calibration error ({n_bins} bins)", metrics["ece"].value, {"n_bins": n_bins}),
        ("nll", "Negative log-likelihood", metrics["nll"].value, None),
    ]
    table = report.corruptions
    if table is not None and (value := table.mean(STANDARD_15)) is not None:
        label = f"Accuracy under corruption (mean of 15, {table.params} parameters)"
        found.append(("corruption_accuracy", label, value, {"params": table.params, "mean": "mean15"}))
    return [
        EvalResult(
            task_type=TASK,
            dataset_type=report.dataset if report.dataset in datasets else short_name(report.dataset),
            dataset_name=short_name(report.dataset),
            dataset_config=report.dataset_config,
            dataset_split=report.split,
            dataset_revision=report.dataset_revision,
            metric_type=kind,
            metric_name=label,
            metric_value=round(float(value), 6),
            metric_args=arguments,
        )
        for kind, label, value, arguments in found
    ]
