"""From a run's folder to a Hub repository: calibrated weights, processor, report, pictures and card in one commit.

A commit is made whole or not at all. What is pushed is listed in `folder.py`, so that pickles (`training_args.bin`,
which may hold a token, or optimizer states) are not; only `last-checkpoint/`, to resume from, has the trainer's own.
"""

import os
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, snapshot_download
from transformers.utils import logging

from ..hub.connection import hub_api, hub_needed
from ..hub.failure_reasons import reason_of
from ..report.run import GALLERY
from .access import check_push_access, forget_access
from .folder import CARD_FILE, MODEL_FILES, REPORT_FILES, files_to_push, needs_card, saved_report, write_card


logger = logging.get_logger(__name__)

# A weight file of an earlier push could be loaded in place of the new ones, an earlier report be taken for the new
# one's, and `training_args.bin` may hold a token.
STALE_FILES = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*", "training_args.bin", *REPORT_FILES)
STALE_FILES += (GALLERY,)
# Reports once were called after their run: `<run>.json` beside `<run>.samples.npz`.
OLD_ROWS = ".samples.npz"
OLD_REPORT_ENDINGS = (OLD_ROWS, ".json", ".reliability.png", ".corruptions.png", ".severity.png")
LAST_CHECKPOINT = "last-checkpoint"
NEVER_PUSHED = "training_args.bin"


# Folders of what is being pushed from a run that goes on.
STAGED = "_push-"


class PushError(OSError):
    """A push that failed; the message says why, where everything is, and how to push again."""


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str = "Push a model",
    token: str | None = None,
    blocking: bool = True,
    with_report: bool = True,
) -> "CommitInfo | Future[CommitInfo]":
    """
    Push the model, report, pictures and card of a run's folder in one commit.

    A card is written if there is none, or if `card.json` says that it was made for another repository.

    Args:
        folder (`str` or `Path`): Where the model was saved.
        repo_id (`str`): Where it goes.
        private, revision, token: See [`check_push_access`].
        commit_message (`str`, *optional*): Of the commit.
        blocking (`bool`, *optional*, defaults to `True`): Wait for the end, or return a `Future`.
        with_report (`bool`, *optional*, defaults to `True`): Whether the report in the folder is about this model.

    Raises:
        [`PushError`]: If it fails. Everything is in `folder` then, and pushing again goes on where it can.
    """
    folder = Path(folder)
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"There is no saved model (*.safetensors) in {str(folder)!r}.")
    files_to_push(folder)  # refuses what leads out of the folder, before anyone is asked
    api = hub_api(token)

    def push() -> CommitInfo:
        try:
            target = check_push_access(repo_id, private=private, revision=revision, token=token)
            if needs_card(folder, target):
                write_card(folder, target, saved_report(folder) if with_report else None)
            return _commit(api, target, files_to_push(folder, with_report), commit_message, revision)
        except Exception as error:  # anything: what matters is that the user learns how to go on
            forget_access()
            raise PushError(_how_to_push_again(error, folder, repo_id, private, revision)) from error

    return push() if blocking else api.run_as_future(push)


def push_checkpoint(
    checkpoint: str | Path,
    repo_id: str,
    *,
    commit_message: str,
    revision: str | None = None,
    path_in_repo: str | None = None,
    tags: Sequence[str] = (),
    after: "Future[CommitInfo] | None" = None,
) -> "Future[CommitInfo]":
    """
    Push a checkpoint of a run that is still training, in the background: the model, not calibrated, with a card that
    says so; and everything that resuming needs to `path_in_repo`, if given.

    `tags` are added to the card's. With `after`, the push of an earlier checkpoint, it begins when that has ended, so
    that the newest is the last commit. Pickles go to `last-checkpoint/` only, and never `training_args.bin`.
    """
    checkpoint = Path(checkpoint)
    # Linked, since the trainer may delete an old checkpoint while it is still being pushed.
    staged = Path(tempfile.mkdtemp(prefix=STAGED, dir=checkpoint.parent))
    files = [path for path in checkpoint.iterdir() if path.is_file() and not path.is_symlink()]
    names = [path.name for path in files if path.name != NEVER_PUSHED]
    for name in names:
        _link(checkpoint / name, staged / name)
    files = {name: staged / name for name in names if any(fnmatch(name, pattern) for pattern in MODEL_FILES)}
    write_card(staged, repo_id, tags=("training-in-progress", *tags))
    files[CARD_FILE] = staged / CARD_FILE
    if path_in_repo is not None:
        resumable = names if path_in_repo == LAST_CHECKPOINT else list(files)
        files |= {f"{path_in_repo}/{name}": staged / name for name in resumable if name != CARD_FILE}

    api = hub_api()

    def push() -> CommitInfo:
        if after is not None:
            wait([after])
        try:
            return _commit(api, repo_id, files, commit_message, revision)
        except Exception as error:
            # Nothing waits for the future; training continues, and the next checkpoint or the end pushes again.
            logger.warning(f"Pushing {checkpoint} to {repo_id} failed: {reason_of(error)}. It is on disk.")
            raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    return api.run_as_future(push)


def download_checkpoint(repo_id: str, revision: str | None = None) -> str:
    """The folder of the checkpoint that `hub_strategy="checkpoint"` pushed, to resume from."""
    with hub_needed(f"Checkpoint {repo_id!r}", repo_id, revision=revision):
        folder = Path(snapshot_download(repo_id, revision=revision, allow_patterns=f"{LAST_CHECKPOINT}/*"))
    if not (folder / LAST_CHECKPOINT / "trainer_state.json").is_file():
        raise FileNotFoundError(
            f"{repo_id!r} has no {LAST_CHECKPOINT}/ to resume from. Runs with hub_strategy='checkpoint' push one; "
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
    with warnings.catch_warnings():
        # The rows are meant to be there: they are what a comparison of models reads.
        warnings.filterwarnings("ignore", message="It seems that you are about to commit a data file")
        return api.create_commit(repo_id, operations, commit_message=message or "Push a model", revision=revision)


def _stale(there: Sequence[str], files: Mapping[str, Path]) -> list[str]:
    """Files at the top of a repository that an earlier push left and that would be taken for today's."""
    old_runs = [name.removesuffix(OLD_ROWS) for name in there if name.endswith(OLD_ROWS)]
    old_reports = {f"{run}{ending}" for run in old_runs for ending in OLD_REPORT_ENDINGS}
    return [
        name
        for name in there
        if "/" not in name
        and name not in files
        and (name in old_reports or any(fnmatch(name, pattern) for pattern in STALE_FILES))
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


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
