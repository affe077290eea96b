"""From a run's folder to a Hub repository: calibrated weights, processor, report, pictures and card in one commit.

A commit is made whole or not at all. What is pushed is listed here, so that pickles (`training_args.bin`, which may
keep a token, or optimizer states) stay at home; only `last-checkpoint/`, to resume from, has the trainer's own.
"""

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    ModelCard,
    constants,
    snapshot_download,
)
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import logging

from ..hub.reach import TIMEOUT_SECONDS, hub_api, is_local, require_repo
from ..hub.reasons import reason_of
from ..models.loading import FROM_SCRATCH
from ..report.evaluation import EvaluationReport
from .access import check_push_access
from .card import card_settings, model_card, pictures_in


logger = logging.get_logger(__name__)

# What a classifier is loaded from. `*` is the name of a file, never a folder.
MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "*config.json")
# A weight file of an earlier push could be loaded in place of the new ones; `training_args.bin` may hold a token.
STALE_FILES = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*", "training_args.bin")
SAMPLES = ".samples.npz"
LAST_CHECKPOINT = "last-checkpoint"
NEVER_PUSHED = "training_args.bin"


class PushError(OSError):
    """A push that failed; the message tells why, where everything is, and how to push again."""


# ---- The card ----


def find_report(folder: str | Path) -> tuple[EvaluationReport, str] | None:
    """The newest report in a run's folder, with the run's name; `None` if it has none."""
    samples = sorted(Path(folder).glob(f"*{SAMPLES}"), key=lambda path: path.stat().st_mtime)
    for path in reversed(samples):
        run = path.name.removesuffix(SAMPLES)
        if (Path(folder) / f"{run}.json").is_file():
            return EvaluationReport.load(Path(folder) / f"{run}.json"), run
    return None


def write_card(folder: str | Path, repo_id: str, **settings: Any) -> ModelCard:
    """
    Write `README.md` into a run's folder: from its report, `settings` ([`model_card`]), and the card that was there.
    A `repo_id` without an owner is only a name: the card then tells how to load the folder.

    Raises:
        `ValueError`: If the report speaks of a temperature that the saved model does not have.
    """
    folder = Path(folder)
    found = find_report(folder)
    report, run = found or (None, None)
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").is_file() else {}
    fitted = report is not None and report.temperature is not None and report.temperature.reason is None
    if fitted and config and "calibration_temperature" not in config:
        raise ValueError(
            f"{run}.json in {str(folder)!r} reports a model calibrated with temperature "
            f"{report.temperature.value:.4f}, but the saved model is not. Call "
            "trainer.fold_temperature(report.temperature.value, validation) first, or remove the report."
        )
    known = {"name": repo_id.rpartition("/")[2], "timm": "pretrained_cfg" in config}
    if report is not None:
        known["datasets"] = (report.dataset,) if _is_hub_id(report.dataset) else ()
    if (folder / "README.md").is_file():
        earlier = card_settings(ModelCard.load(folder / "README.md"))
        known = {name: earlier[name] for name in ("license", "base_model", "tags", "language")} | known
    settings = known | {name: value for name, value in settings.items() if value is not None}
    if settings.get("base_model") is not None and not _is_hub_id(settings["base_model"]):
        settings["base_model"] = None
    if settings.get("license") in (None, "unknown"):
        settings["license"] = _license_of(settings.get("base_model"))
    pictures = pictures_in(folder, run) if run is not None else ()
    card = model_card(report, repo_id=repo_id if "/" in repo_id else None, **settings | {"pictures": pictures})
    card.save(folder / "README.md")
    return card


# ---- Pushing ----


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str = "Push a calibrated model",
    token: str | None = None,
    blocking: bool = True,
) -> "CommitInfo | Future[CommitInfo]":
    """
    Push the model, report, pictures and card of a run's folder in one commit; a missing card is written.

    Args:
        folder (`str` or `Path`): Where the model was saved.
        repo_id (`str`): Where it goes.
        private, revision, token: See [`check_push_access`].
        commit_message (`str`, *optional*): Of the commit.
        blocking (`bool`, *optional*, defaults to `True`): Wait for the end, or return a `Future`.

    Raises:
        [`PushError`]: If it fails. Everything is in `folder` then, and pushing again goes on where it can.
    """
    folder = Path(folder)
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"There is no saved model (*.safetensors) in {str(folder)!r}.")
    api = hub_api(token)

    def push() -> CommitInfo:
        try:
            target = check_push_access(repo_id, private=private, revision=revision, token=token)
            if _needs_card(folder, target):
                write_card(folder, target)
            return _commit(api, target, files_to_push(folder), commit_message, revision)
        except Exception as error:  # anything: what matters is that the user learns how to go on
            raise PushError(_how_to_push_again(error, folder, repo_id, private, revision)) from error

    return push() if blocking else api.run_as_future(push)


def _needs_card(folder: Path, repo_id: str) -> bool:
    """Whether there is none, or one whose snippets load another repository; a card by hand is left alone."""
    if not (folder / "README.md").is_file():
        return True
    return card_settings(ModelCard.load(folder / "README.md"))["repo_id"] not in (None, repo_id)


def files_to_push(folder: str | Path) -> dict[str, Path]:
    """What belongs to a published model, by its path in the repository."""
    found = find_report(folder)
    wanted = [*MODEL_FILES, "README.md"]
    paths = [path for path in sorted(Path(folder).iterdir()) if path.is_file()]
    files = {path.name: path for path in paths if any(fnmatch(path.name, pattern) for pattern in wanted)}
    if found is not None:
        run = found[1]
        names = (f"{run}.json", f"{run}{SAMPLES}", *pictures_in(folder, run))
        files |= {name: Path(folder) / name for name in names}
    return files


def push_checkpoint(
    checkpoint: str | Path,
    repo_id: str,
    *,
    commit_message: str,
    revision: str | None = None,
    path_in_repo: str | None = None,
) -> "Future[CommitInfo]":
    """
    Push a checkpoint of a run that goes on, in the background: the model as it is, not calibrated, with a card that
    says so; and all that resuming needs to `path_in_repo`, if given.

    Pickles go to `last-checkpoint/` only, and never `training_args.bin`.
    """
    checkpoint = Path(checkpoint)
    # Linked, since the trainer deletes old checkpoints while they may still be on their way.
    staged = Path(tempfile.mkdtemp(prefix="_push-", dir=checkpoint.parent))
    names = [path.name for path in checkpoint.iterdir() if path.is_file() and path.name != NEVER_PUSHED]
    for name in names:
        _link(checkpoint / name, staged / name)
    files = {name: staged / name for name in names if any(fnmatch(name, pattern) for pattern in MODEL_FILES)}
    write_card(staged, repo_id, tags=("training-in-progress",))
    files["README.md"] = staged / "README.md"
    if path_in_repo is not None:
        resumable = names if path_in_repo == LAST_CHECKPOINT else list(files)
        files |= {f"{path_in_repo}/{name}": staged / name for name in resumable if name != "README.md"}

    api = hub_api()

    def push() -> CommitInfo:
        try:
            return _commit(api, repo_id, files, commit_message, revision)
        except Exception as error:
            # Nobody asks the future; training goes on, and the next checkpoint or the end pushes again.
            logger.warning(f"Pushing {checkpoint} to {repo_id} failed: {reason_of(error)}. It is on disk.")
            raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    return api.run_as_future(push)


def download_checkpoint(repo_id: str, revision: str | None = None) -> str:
    """The folder of the checkpoint that `hub_strategy="checkpoint"` pushed, to resume from."""
    require_repo(f"Checkpoint {repo_id!r}", repo_id, revision=revision)
    folder = Path(snapshot_download(repo_id, revision=revision, allow_patterns=f"{LAST_CHECKPOINT}/*"))
    if not (folder / LAST_CHECKPOINT / "trainer_state.json").is_file():
        raise FileNotFoundError(
            f"{repo_id!r} has no {LAST_CHECKPOINT}/ to resume from. Runs with --hub_strategy checkpoint push one; "
            "otherwise give the path of a checkpoint folder."
        )
    return str(folder / LAST_CHECKPOINT)


def _commit(
    api: HfApi, repo_id: str, files: Mapping[str, Path], message: str | None, revision: str | None
) -> CommitInfo:
    there = api.list_repo_files(repo_id, revision=revision)
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(name, path) for name, path in sorted(files.items())
    ]
    operations += [CommitOperationDelete(name) for name in _stale(there, files)]
    return api.create_commit(repo_id, operations, commit_message=message or "Push a model", revision=revision)


def _stale(there: Sequence[str], files: Mapping[str, Path]) -> list[str]:
    """Files at the top of a repository that an earlier push left and that would be taken for today's."""
    return [
        name
        for name in there
        if "/" not in name and name not in files and any(fnmatch(name, pattern) for pattern in STALE_FILES)
    ]


def _how_to_push_again(
    error: Exception, folder: Path, repo_id: str, private: bool | None, revision: str | None
) -> str:
    options = (" --private" if private else "") + (f" --revision {revision}" if revision else "")
    return (
        f"Pushing to {repo_id!r} failed: {reason_of(error)}. Nothing is lost: the model, its report and its card are "
        f"in {str(folder)!r}. To push again:\n  macs-hf push {shlex.quote(str(folder))} {repo_id}{options}\n"
        f"or, in Python,\n  macs_hf.publishing.push_folder({str(folder)!r}, {repo_id!r})"
    )


def _license_of(base_model: str | None) -> str:
    """A fine-tuned model keeps the licence of its base, as far as it is known."""
    if base_model is None or constants.HF_HUB_OFFLINE:
        return "unknown"
    try:
        card = hub_api().model_info(base_model, timeout=TIMEOUT_SECONDS).card_data
    except (HfHubHTTPError, httpx2.HTTPError):
        return "unknown"
    licence = card.license if card is not None else None
    return licence if isinstance(licence, str) else "unknown"


def _is_hub_id(name: str) -> bool:
    """Whether a name means a repository; those that come with this package do not."""
    if not name or name in ("digits", *FROM_SCRATCH) or is_local(name):
        return False
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
