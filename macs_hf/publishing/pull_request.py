"""A calibrated head as a pull request to somebody else's repository, with the report in its text.

The commit changes as little as it can: the weights, and the temperature in `config.json`. The card of the repository
and everything else stay with their owners.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, constants, hf_hub_download

from ..hub.connection import hub_api, is_local, require_repo
from ..hub.failure_reasons import reason_of
from ..report.config_fields import TEMPERATURE_FIELD, THRESHOLD_FIELDS
from ..report.evaluation import EvaluationReport
from ..report.interval import interval_text
from ..report.short_names import short_name
from .access import writing_user
from .card_sections import sections
from .markdown import block, code, text
from .push import PushError


WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def check_pull_request_access(repo_id: str) -> None:
    """
    Make sure, before the work, that a pull request can be opened: the repository can be read, and who opens it is
    known. Whether its owners take pull requests only shows when it is opened.

    Raises:
        `ValueError`, `PermissionError` or `ConnectionError`: With the reason.
    """
    if is_local(repo_id):
        raise ValueError(
            f"create_pr=True: {repo_id!r} is a local folder. Name the repository that the pull request goes to with "
            "hub_model_id=..."
        )
    if constants.HF_HUB_OFFLINE:
        raise ConnectionError(f"No pull request can be opened at {repo_id!r} while HF_HUB_OFFLINE=1. Unset it.")
    require_repo(f"Repository {repo_id!r}", repo_id)
    writing_user(hub_api(), f"No pull request can be opened at {repo_id!r}")


def pull_request_refusal(report: EvaluationReport) -> str | None:
    """Why a pull request would be of no use; `None` if the images show that the temperature is needed and helps."""
    temperature = report.temperature
    if temperature.reason is not None:
        return temperature.reason
    error, gain = temperature.standard_error or 0.0, temperature.nll_gain
    if abs(temperature.value - 1) <= 1.96 * error:
        return f"the temperature, {temperature.value:.4f} ± {error:.4f}, may as well be 1"
    if not temperature.helped:
        return f"on the test images the temperature lowers the NLL by {interval_text(gain)}, which may be chance"
    return None


def open_pull_request(folder: str | Path, repo_id: str, report: EvaluationReport) -> CommitInfo:
    """
    Open a pull request with the calibrated model of a folder.

    Args:
        folder (`str` or `Path`): Where the calibrated model was saved.
        repo_id (`str`): Whose model it is.
        report ([`EvaluationReport`]): What was measured, before and after.

    Returns:
        [`~huggingface_hub.CommitInfo`]: Its `pr_url` is where to go.

    Raises:
        [`PushError`]: If it fails; the calibrated model is in `folder` then.
    """
    folder, api = Path(folder), hub_api()
    try:
        there = api.list_repo_files(repo_id)
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(WEIGHTS, folder / WEIGHTS),
            CommitOperationAdd(CONFIG, _config(folder, repo_id).encode()),
        ]
        operations += [CommitOperationDelete(name) for name in there if _is_shard(name)]
        return api.create_commit(
            repo_id,
            operations,
            commit_message=f"Calibrate the head: a temperature of {report.temperature.value:.4f}",
            commit_description=description(report, [name for name in there if name.startswith("pytorch_model")]),
            create_pr=True,
        )
    except Exception as error:  # anything: what matters is that the user learns how to go on
        raise PushError(
            f"The pull request to {repo_id!r} failed: {reason_of(error)}. The calibrated model is in {str(folder)!r}; "
            f"`macs-hf push {folder} USER/NAME` pushes it to a repository of your own."
        ) from error


def description(report: EvaluationReport, other_weights: Sequence[str] = ()) -> str:
    """The text of the pull request."""
    shown = sections(report, [report.dataset])
    temperature = report.temperature
    # Only the owners know whether their model was trained on them.
    fitted = f"{temperature.n:,} other images" if temperature.n is not None else "other images"
    rows = [f"| {label} | {' | '.join(cells)} |" for label, cells in shown["rows"]]
    lines = [
        f"This divides weight and bias of the classifier head by a temperature of {temperature.value:.4f}. No "
        "prediction changes; softmax of the logits then gives calibrated probabilities, without any extra code.",
        "",
        f"Measured on the {report.n:,} images of the split {code(report.split)} of "
        f"{code(short_name(report.dataset))}; the temperature was fitted on {fitted}"
        + (f" of {text(temperature.calibration_split)}" if temperature.calibration_split else "")
        + ", which should not be among those that the model was trained on. In brackets: 95 % intervals over the test "
        "images.",
        "",
        "| | before | with this change |",
        "|:--|--:|--:|",
        *rows,
    ]
    if other_weights:
        lines += [
            "",
            f"Only `{WEIGHTS}` is changed; {', '.join(map(code, other_weights))} would still be uncalibrated.",
        ]
    if report.command is not None:
        lines += ["", "Made by", "", block(report.command, "bash")]
    return "\n".join(lines) + "\n"


def _config(folder: Path, repo_id: str) -> str:
    """The repository's own config with what calibration adds, so that the change is a few lines."""
    config = json.loads(Path(hf_hub_download(repo_id, CONFIG)).read_text(encoding="utf-8"))
    saved = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    for name in (TEMPERATURE_FIELD, *THRESHOLD_FIELDS):
        config.pop(name, None)
        if name in saved:
            config[name] = saved[name]
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _is_shard(name: str) -> bool:
    """A part of the weights in several files, which the whole file replaces."""
    return (name.startswith("model-") and name.endswith(".safetensors")) or name == f"{WEIGHTS}.index.json"
