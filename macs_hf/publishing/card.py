"""One `EvaluationReport` -> one model card: metadata for the Hub, and a text that claims only what was measured."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData, constants
from huggingface_hub.utils import httpx
from pydantic.dataclasses import dataclass
from transformers.utils import logging

from ..hub import TIMEOUT_SECONDS, hub_api, is_hub_id
from ..rendering.markdown import code, notes_markdown, rendered, section_markdown
from ..report.report import STRICT, TEMPERATURE_FIELD, EvaluationReport, read_json, to_plain
from ..report.rows import STANDARD_15
from ..report.run_folder import (
    GALLERY,
    PAGE_FILE,
    PICTURES,
    REPORT_FILE,
    ROWS_FILE,
    redact,
    write_text_atomically,
)
from ..report.sections import METRICS, headline, level, sections, short_name


TEMPLATE = Path(__file__).parent / "templates" / "model_card.md"
TASK = "image-classification"
# How transformers' callback for Trackio marks a model: the Hub shows that Space beside the model.
TRACKIO_TAG = re.compile(r"trackio:(https://huggingface\.co/spaces/[\w.-]+/[\w.-]+)")
# Arguments that are of no interest to a reader of the card.
HIDDEN_ARGUMENTS = re.compile(
    r"(push_to_hub|hub_|license|report_to|log_|logging_|disable_tqdm|use_cpu|dataloader_|accelerator_config|debug|do_"
    r"|activation_checkpointing|gradient_checkpointing).*"
)
PAPER = "https://arxiv.org/abs/2603.05812"  # whose page on the Hub then lists the model
UNFOLDED_PICTURES = ("reliability.png", "severity.png")
GUARANTEES = ("Coverage guarantees", "Prediction sets", "Answering only when sure")
NOTHING_GUARANTEED = "Nothing: no images were held out for it."
# Parts of a report that may be missing, as the card names what was not measured.
OPTIONAL_PARTS = {
    "corruptions": "corrupted images",
    "ood": "images of none of its classes",
    "groups": "groups of images, such as those of one camera",
}
TAGS = ("image-classification", "vision", "calibration", "robustness", "macs")


def model_card(report: EvaluationReport | None, settings: CardSettings) -> ModelCard:
    """
    The card of a checkpoint.

    Args:
        report ([`EvaluationReport`], *optional*): What was measured; without it the card says that nothing was.
        settings ([`CardSettings`]): Everything else.
    """
    results = _results(report, settings.datasets) if report is not None else []
    timm_tags = ("timm", "transformers") if settings.timm else ()
    data = ModelCardData(
        language=settings.language,
        license=settings.license,
        library_name="timm" if settings.timm else None if settings.module else "transformers",
        pipeline_tag=TASK,
        base_model=settings.base_model,
        # The Hub takes these for what a model was trained on.
        datasets=(list(settings.datasets) or None) if report is None or report.training_arguments else None,
        tags=list(dict.fromkeys([*TAGS, *timm_tags, *settings.tags])),
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=settings.name,
        eval_results=results or None,
    )
    trackers = (TRACKIO_TAG.fullmatch(tag) for tag in settings.tags)
    card = rendered(
        TEMPLATE,
        metadata=data.to_yaml(),
        settings=settings,
        report=report,
        where=settings.repo_id or settings.folder or settings.name,
        training_curves=next((found[1] for found in trackers if found), None),
        **(_variables(report, settings) if report is not None else {}),
    )
    return ModelCard(redact(card))


def _variables(report: EvaluationReport, settings: CardSettings) -> dict[str, Any]:
    """What the template says of a report: what everybody should read first, and all else folded below."""
    first, *others = sections(report)
    at_once = {
        name: alt for part in (first, *others) for name, alt in part.pictures.items() if name in UNFOLDED_PICTURES
    }
    folded = (
        part._replace(pictures={name: alt for name, alt in part.pictures.items() if name not in UNFOLDED_PICTURES})
        for part in others
    )
    guarantees = report.guarantees
    sets = None if guarantees is None else guarantees.shown_set
    answers = () if guarantees is None else guarantees.abstentions
    return {
        "origin_of_training": _training(report, settings.datasets),
        "headline": headline(report),
        "first_section": section_markdown(first._replace(notes=(), pictures=at_once), settings.pictures),
        "guaranteed": [part.finding for part in others if part.title in GUARANTEES] or [NOTHING_GUARANTEED],
        "not_measured": ", ".join(what for name, what in OPTIONAL_PARTS.items() if getattr(report, name) is None),
        "notes": notes_markdown(first),
        "other_sections": [section_markdown(part, settings.pictures, "###") for part in folded],
        "set_level": None if sets is None else sets.coverage,
        "set_share": None if sets is None else level(sets.coverage),
        "answer_level": next((part.accuracy for part in answers if part.threshold is not None), None),
        "arguments": [
            (name, value) for name, value in report.training_arguments.items() if not HIDDEN_ARGUMENTS.fullmatch(name)
        ],
        "versions": ", ".join(f"{package} {version}" for package, version in report.versions.items()),
    }


def _training(report: EvaluationReport, datasets: Sequence[str]) -> str:
    """A baseline is not called by our name, nor a model that was only calibrated."""
    dataset = code(short_name(report.dataset))
    if report.dataset in datasets:
        dataset = f"[{report.dataset}](https://huggingface.co/datasets/{report.dataset})"
    arguments, method = report.training_arguments, f"[Margin and Consistency Supervision]({PAPER})"
    if not arguments:
        return f"measured on {dataset} by `macs_hf`"
    if arguments.get("lambda_margin") == 0 and arguments.get("lambda_consistency") == 0:
        return f"trained on {dataset} by `macs_hf` as a baseline, without {method}"
    return f"trained on {dataset} with {method} by `macs_hf`"


def _results(report: EvaluationReport, datasets: Sequence[str]) -> list[EvalResult]:
    """The numbers of the model as it is published, as plain floats."""
    metrics, bins = report.published.metrics, {"n_bins": len(report.before.bins.count)}
    found = [(name, METRICS[name].title, metrics[name].value) for name in ("accuracy", "ece", "nll")]
    arguments: dict[str, dict[str, Any]] = {"ece": bins}
    table = report.corruptions
    if table is not None and (value := table.mean(STANDARD_15)) is not None:
        label = f"Accuracy under corruption (mean of 15, {table.params} parameters)"
        found.append(("corruption_accuracy", label, value))
        arguments["corruption_accuracy"] = {"params": table.params, "mean": "mean15"}
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
            metric_args=arguments.get(kind),
        )
        for kind, label, value in found
    ]


# ---- Settings ----
# As data beside the card, so that it can be rendered again.


SETTINGS_FILE = "card.json"


@dataclass(frozen=True, config=STRICT)
class CardSettings:
    """
    Args:
        name (`str`): Title, and name in the `model-index`.
        repo_id (`str`, *optional*): Where the model is on the Hub; the snippets otherwise load `folder`.
        license (`str`, *optional*, defaults to `"unknown"`): One of the Hub's
            [licence names](https://huggingface.co/docs/hub/repositories-licenses).
        base_model (`str`, *optional*): Hub id of the model whose weights training started from.
        datasets (`tuple[str, ...]`, *optional*): Hub ids of the data it was trained on.
        timm (`bool`, *optional*, defaults to `False`): Whether timm can load the checkpoint.
        module (`bool`, *optional*, defaults to `False`): Whether it has no config, so that neither can.
        tags (`tuple[str, ...]`, *optional*): Added to the usual ones.
        language (`str`, *optional*): For classes named in one language.
        pictures (`tuple[str, ...]`, *optional*): File names beside the card, of those in `report.run_folder.PICTURES`.
        gallery (`bool`, *optional*, defaults to `False`): Whether the card also shows `mistakes.png`, which has test
            images in it, and a push includes it.
        temperature (`float`, *optional*): Folded into the model, as its config says; stated if there is no report.
        folder (`str`, *optional*): Where the model is on this disk, relative to the current folder; `name` if that is
            not known, or not to be told.
    """

    name: str
    repo_id: str | None = None
    license: str = "unknown"
    base_model: str | None = None
    datasets: tuple[str, ...] = ()
    timm: bool = False
    module: bool = False
    tags: tuple[str, ...] = ()
    language: str | None = None
    pictures: tuple[str, ...] = ()
    gallery: bool = False
    temperature: float | None = None
    folder: str | None = None

    def save(self, folder: str | PathLike[str]) -> Path:
        path = Path(folder) / SETTINGS_FILE
        write_text_atomically(path, redact(json.dumps(to_plain(self), indent=2)) + "\n")
        return path

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> CardSettings | None:
        """The settings in a run's folder; `None` if it has none."""
        path = Path(folder) / SETTINGS_FILE
        if not path.is_file():
            return None
        try:
            return read_json(cls, path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} cannot be used: {error}. Correct it, or delete it and README.md.") from error


# ---- The folder ----


logger = logging.get_logger(__name__)

REPORT_FILES = (REPORT_FILE, ROWS_FILE, PAGE_FILE, *PICTURES)
CARD_FILE = "README.md"
# The card's settings are published too: whoever downloads the repository can render its card again.
CARD_FILES = (CARD_FILE, SETTINGS_FILE)
# Settings that stay as an earlier card has them.
EARLIER = ("license", "base_model", "tags", "language", "gallery", "module")


def saved_report(folder: str | Path) -> EvaluationReport | None:
    """The report in a run's folder, without its rows; `None` if it has none."""
    path = Path(folder) / REPORT_FILE
    return EvaluationReport.load(path) if path.is_file() else None


def write_card(
    folder: str | Path,
    repo_id: str,
    report: EvaluationReport | None = None,
    *,
    earlier: str | Path | None = None,
    **changes: Any,
) -> ModelCard:
    """
    Write `README.md` into a run's folder, and its settings beside it as `card.json`.

    Args:
        folder (`str` or `Path`): Where the model was saved.
        repo_id (`str`): Where it goes on the Hub. Without an owner it is only a name: the card then says how to load
            the folder.
        report ([`EvaluationReport`], *optional*): What was measured of this model; without it the card says that
            nothing was.
        earlier (`str` or `Path`, *optional*): The folder whose `card.json` has what was set before, and where the
            files of `folder` will be; by default `folder`.
        changes: Fields of [`CardSettings`]. What is not given, or `None`, stays as that `card.json` has it.

    Raises:
        `ValueError`: If the report is about a temperature or guarantees that the saved model does not have.
    """
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").is_file() else {}
    if report is not None:
        _check_folded(folder, report, config)
    elif (folder / REPORT_FILE).is_file():
        logger.warning(f"The card says nothing of {folder / REPORT_FILE}: pass report= if it is about this model.")
    found = {"name": repo_id.rpartition("/")[2], "timm": "pretrained_cfg" in config}
    found["temperature"] = config.get(TEMPERATURE_FIELD)
    if report is not None:
        found["datasets"] = (report.dataset,) if is_hub_id(report.dataset) else ()
        found["pictures"] = tuple(name for name in PICTURES if (folder / name).is_file())
    before = CardSettings.load(earlier or folder)
    kept = {} if before is None else {name: getattr(before, name) for name in EARLIER}
    given = {name: value for name, value in changes.items() if value is not None}
    given |= {name: tuple(given[name]) for name in ("tags", "datasets") if name in given}
    settings = CardSettings(**found | kept | given)
    base_model = settings.base_model if settings.base_model and is_hub_id(settings.base_model) else None
    is_at_hub = "/" in repo_id
    settings = replace(
        settings,
        repo_id=repo_id if is_at_hub else None,
        folder=None if is_at_hub else _public_path(Path(earlier or folder)),
        base_model=base_model,
        license=license_of(base_model, config) if settings.license == "unknown" else settings.license,
        gallery=settings.gallery and (folder / GALLERY).is_file(),
    )
    card = model_card(report, settings)
    write_text_atomically(folder / CARD_FILE, card.content)
    settings.save(folder)
    return card


def _public_path(folder: Path) -> str | None:
    """The path as it was given; `None` if it leads out of the current folder, since it then says where that is."""
    return None if folder.is_absolute() or ".." in folder.parts else folder.as_posix()


def needs_card(folder: Path, repo_id: str) -> bool:
    """Whether there is no card, or one of ours that loads the model from another place; others are left alone."""
    if not (folder / CARD_FILE).is_file():
        return True
    settings = CardSettings.load(folder)
    return settings is not None and settings.repo_id != repo_id


def _check_folded(folder: Path, report: EvaluationReport, config: dict[str, Any]) -> None:
    needed = {TEMPERATURE_FIELD: "fold the temperature (trainer.fold_temperature)"} if report.has_temperature else {}
    if report.guarantees is not None and report.guarantees.prediction_sets:
        needed["prediction_set_thresholds"] = "store the guarantees (macs_hf.calibration.store_guarantees)"
    for field, advice in needed.items():
        if config and field not in config:
            raise ValueError(
                f"The report is about a model with {field}, but the one saved in {str(folder)!r} has none in its "
                f"config: {advice} and save it first, or leave the report out."
            )


def license_of(base_model: str | None, config: dict[str, Any]) -> str:
    """A fine-tuned model keeps the licence of its base: that of the Hub, or what timm wrote into the config."""
    licence = (config.get("pretrained_cfg") or {}).get("license")
    if base_model is not None and not constants.HF_HUB_OFFLINE:
        with contextlib.suppress(httpx.HTTPError):
            card = hub_api().model_info(base_model, timeout=TIMEOUT_SECONDS).card_data
            licence = (card.license if card is not None else None) or licence
    return licence if isinstance(licence, str) else "unknown"
