"""A run's folder: the card that is written into it, and the files of it that are published."""

import contextlib
import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, constants
from huggingface_hub.utils import httpx
from transformers.utils import logging

from ..disk.atomic_writes import write_text_atomically
from ..hub.connection import TIMEOUT_SECONDS, hub_api, is_hub_id
from ..report.config_fields import TEMPERATURE_FIELD
from ..report.evaluation import EvaluationReport
from ..report.run import GALLERY, PAGE_FILE, PICTURES, REPORT_FILE, ROWS_FILE
from ..report.serialization import from_plain
from .card import model_card
from .card_settings import SETTINGS_FILE, CardSettings


logger = logging.get_logger(__name__)

# What a classifier is loaded from. `*` is the name of a file, never a folder.
MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "*config.json")
REPORT_FILES = (REPORT_FILE, ROWS_FILE, PAGE_FILE, *PICTURES)
LARGEST_PAGE = 10**6  # bytes of a page that is still pushed; pictures of many classes make it large
CARD_FILE = "README.md"
# The card's settings are published too: whoever downloads the repository can render its card again.
CARD_FILES = (CARD_FILE, SETTINGS_FILE)
# Settings that stay as an earlier card has them.
EARLIER = ("license", "base_model", "tags", "language", "gallery")


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
    settings = {"name": repo_id.rpartition("/")[2], "timm": "pretrained_cfg" in config}
    settings["temperature"] = from_plain(
        float | None, config.get(TEMPERATURE_FIELD), f"{TEMPERATURE_FIELD} in config.json"
    )
    if (before := CardSettings.load(earlier or folder)) is not None:
        settings |= {name: getattr(before, name) for name in EARLIER}
    if report is not None:
        settings["datasets"] = (report.dataset,) if is_hub_id(report.dataset) else ()
        settings["pictures"] = tuple(name for name in PICTURES if (folder / name).is_file())
    settings |= {name: value for name, value in changes.items() if value is not None}
    settings["gallery"] = settings.get("gallery", False) and (folder / GALLERY).is_file()
    settings |= {name: tuple(settings[name]) for name in ("tags", "datasets") if name in settings}
    if settings.get("base_model") is not None and not is_hub_id(settings["base_model"]):
        settings["base_model"] = None
    if settings.get("license", "unknown") == "unknown":
        settings["license"] = license_of(settings.get("base_model"), config)
    place = {"repo_id": repo_id} if "/" in repo_id else {"folder": _public_path(Path(earlier or folder))}
    whole = CardSettings(**settings, **place)
    card = model_card(report, whole)
    write_text_atomically(folder / CARD_FILE, card.content)
    whole.save(folder)
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


def files_to_push(folder: str | Path, with_report: bool = True) -> dict[str, Path]:
    """
    What belongs to a published model, by its path in the repository. A `report.html` of more than 1 MB stays local.

    Raises:
        `ValueError`: If one of these files is a link to a file outside of the folder, which may be anybody's.
    """
    wanted = (*MODEL_FILES, *CARD_FILES, *(REPORT_FILES if with_report else ()))
    settings = CardSettings.load(folder)
    if with_report and settings is not None and settings.gallery:
        wanted = (*wanted, GALLERY)
    paths = [path for path in sorted(Path(folder).iterdir()) if path.is_file()]
    files = {path.name: path for path in paths if any(fnmatch(path.name, pattern) for pattern in wanted)}
    if PAGE_FILE in files and files[PAGE_FILE].stat().st_size > LARGEST_PAGE:
        del files[PAGE_FILE]
    for name, path in files.items():
        if not path.resolve().is_relative_to(Path(folder).resolve()):
            raise ValueError(
                f"{name} in {str(folder)!r} is a link to a file outside of the folder, which is not pushed. Put a "
                "copy of the file in its place, or remove the link."
            )
    return files


def _check_folded(folder: Path, report: EvaluationReport, config: dict[str, Any]) -> None:
    if report.has_temperature and config and TEMPERATURE_FIELD not in config:
        raise ValueError(
            f"The report is about a model calibrated with temperature {report.temperature.value:.4f}, but the model "
            f"saved in {str(folder)!r} is not. Call trainer.fold_temperature(report.temperature.value, validation) "
            "and save it first, or leave the report out."
        )
    promised = report.guarantees is not None and report.guarantees.prediction_sets
    if promised and config and "prediction_set_thresholds" not in config:
        raise ValueError(
            f"The report is about a model with guarantees, but the model saved in {str(folder)!r} has no thresholds. "
            "Call store_guarantees(trainer.model.config, report.guarantees) after folding the temperature, and save "
            "it, or leave the report out."
        )


def license_of(base_model: str | None, config: dict[str, Any]) -> str:
    """A fine-tuned model keeps the licence of its base: that of the Hub, or what timm wrote into the config."""
    licence = (config.get("pretrained_cfg") or {}).get("license")
    if base_model is not None and not constants.HF_HUB_OFFLINE:
        with contextlib.suppress(httpx.HTTPError):
            card = hub_api().model_info(base_model, timeout=TIMEOUT_SECONDS).card_data
            licence = (card.license if card is not None else None) or licence
    return licence if isinstance(licence, str) else "unknown"
