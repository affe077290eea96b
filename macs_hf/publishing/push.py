"""From a run's folder to the Hub: a repository in one commit, a pull request to somebody else's, or a Space."""

import json
import os
import re
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    SpaceCardData,
    constants,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.utils import httpx
from transformers.utils import logging

from ..hub import hub_api, hub_needed, is_local, reason_of, require_repo
from ..rendering.markdown import block, code, escaped, table_markdown
from ..report.report import TEMPERATURE_FIELD, THRESHOLD_FIELDS, EvaluationReport, changed_files, load_run
from ..report.run_folder import (
    ADAPTER_FILE,
    GALLERY,
    PAGE_FILE,
    REPORT_FILE,
    ROWS_FILE,
    WEIGHTS_FILE,
    WEIGHTS_INDEX,
    weight_files,
)
from ..report.sections import headline, measured, short_name
from .access import check_push_access, refuse_offline, writing_user
from .card import (
    CARD_FILE,
    CARD_FILES,
    REPORT_FILES,
    CardSettings,
    needs_card,
    saved_report,
    write_card,
)


logger = logging.get_logger(__name__)


class PushError(OSError):
    """A push that failed; the message says why, where everything is, and how to push again."""


# ---- A model ----


# Files of a model that transformers, timm and PEFT write, beside those of weights. Nothing is pushed by a pattern: a
# folder may hold files of the user's own.
MODEL_FILES = ("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json")
MODEL_FILES += ("adapter_config.json",)
# What else Trainer and MaCSTrainer write into a checkpoint, to be resumed from; the last is of one process of several.
CHECKPOINT_FILES = ("optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "trainer_state.json")
CHECKPOINT_FILES += ("checkpoint.json", "raw_weights.pt", "rng_state.pth")
RNG_STATE = re.compile(r"rng_state_\d+\.pth")
LARGEST_PAGE = 10**6  # bytes of a page that is still pushed; pictures of many classes make it large
# A weight file of an earlier push could be loaded in place of the new ones, an earlier report be taken for the new
# one's, and `training_args.bin`, a pickle, may hold a token.
SHARDS = ("model-*-of-*.safetensors", WEIGHTS_INDEX)
STALE_FILES = (*SHARDS, WEIGHTS_FILE, ADAPTER_FILE, "pytorch_model*.bin*", "training_args.bin", *REPORT_FILES, GALLERY)
LAST_CHECKPOINT = "last-checkpoint"
STAGED = "_push-"  # folders of what is being pushed from a run that goes on
IN_TURN = ThreadPoolExecutor(max_workers=1)  # what is pushed in the background, so that the newest is the last commit


def files_to_push(folder: str | Path, with_report: bool = True) -> dict[str, Path]:
    """
    What belongs to a published model, by its path in the repository: files that transformers or this package wrote, by
    their names. A `report.html` of more than 1 MB stays local.

    Raises:
        `ValueError`: If one of these files is a link to a file outside of the folder, which may be anybody's.
    """
    folder = Path(folder)
    settings = CardSettings.load(folder)
    names = [*_model_files(folder), *CARD_FILES]
    if with_report:
        names += [*REPORT_FILES, *([GALLERY] if settings is not None and settings.gallery else [])]
    files = {name: folder / name for name in names if (folder / name).is_file()}
    if PAGE_FILE in files and files[PAGE_FILE].stat().st_size > LARGEST_PAGE:
        del files[PAGE_FILE]
    for name, path in files.items():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{name} in {str(folder)!r} is a link to a file outside of the folder, which is not pushed. Put a "
                "copy of the file in its place, or remove the link."
            )
    return files


def _model_files(folder: Path) -> list[str]:
    weights = weight_files(folder)
    return [*weights, *((WEIGHTS_INDEX,) if WEIGHTS_FILE not in weights else ()), *MODEL_FILES]


def checked_report(folder: Path, *, allow_chance_level: bool = False) -> EvaluationReport | None:
    """
    The report in a run's folder, if it can be published: its rows give its numbers, it is about the weights beside it,
    and the model does better than chance; else a `ValueError` says why not. `None` if there is none.
    """
    if not (folder / REPORT_FILE).is_file():
        return None
    report = saved_report(folder)
    if (folder / ROWS_FILE).is_file() or ROWS_FILE in report.checksums:
        report = load_run(folder).report
    weights = weight_files(folder)
    stated = report.checksums.keys() - {ROWS_FILE}
    if stated and (stated != set(weights) or changed_files(report, folder, weights)):
        raise ValueError(
            f"{REPORT_FILE} in {str(folder)!r} is about other weights than those beside it. Measure the model again, "
            f"or delete {REPORT_FILE} and README.md to push it without a report."
        )
    if report.above_chance is False and not allow_chance_level:
        raise ValueError(f"{chance_sentence(report)} `macs-hf push --allow_chance_level` pushes it all the same.")
    return report


def chance_sentence(report: EvaluationReport) -> str:
    """That the model does no better than always naming one class, and the likely reasons."""
    found = headline(report)
    return f"{found.title}. {found.ability} {found.confidence}"


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
    allow_chance_level: bool = False,
) -> "CommitInfo | Future[CommitInfo]":
    """
    Push the model, report, pictures and card of a run's folder in one commit.

    A card is written if there is none, or if `card.json` says that it was made for another repository. A report is
    pushed only if its rows give its numbers and its checksums are those of the rows and weights beside it: this guards
    against mistakes and careless edits, not against somebody who rewrites all three.

    Args:
        folder (`str` or `Path`): Where the model was saved.
        repo_id (`str`): Where it goes.
        private, revision, token: See [`check_push_access`].
        commit_message (`str`, *optional*): Of the commit.
        blocking (`bool`, *optional*, defaults to `True`): Wait for the end, or return a `Future`.
        with_report (`bool`, *optional*, defaults to `True`): Whether the report in the folder is about this model.
        allow_chance_level (`bool`, *optional*, defaults to `False`): Push a model whose accuracy is not above chance.

    Raises:
        `ValueError`: If there is no model, or its report cannot be published; before the Hub is asked for anything.
        [`PushError`]: If it fails. Everything is in `folder` then, and pushing again goes on where it can.
    """
    folder = Path(folder)
    if not weight_files(folder):
        raise ValueError(f"There is no saved model ({WEIGHTS_FILE}) in {str(folder)!r}.")
    files_to_push(folder)  # refuses what leads out of the folder
    report = checked_report(folder, allow_chance_level=allow_chance_level) if with_report else None
    refuse_offline(repo_id)
    api = hub_api(token)

    def push() -> CommitInfo:
        try:
            target = check_push_access(repo_id, private=private, revision=revision, token=token)
            if needs_card(folder, target):
                write_card(folder, target, report)
            files = files_to_push(folder, with_report)
            return _commit(api, target, files, STALE_FILES, commit_message or "Push a model", revision=revision)
        except Exception as error:  # anything: what matters is that the user learns how to go on
            options = (" --private" if private else "") + (f" --revision {revision}" if revision else "")
            raise PushError(
                f"Pushing to {repo_id!r} failed: {reason_of(error)}. Nothing is lost: all is in {str(folder)!r}. Once "
                f"the reason is gone, this pushes it:\n  macs-hf push {shlex.quote(str(folder))} {repo_id}{options}"
            ) from error

    return push() if blocking else IN_TURN.submit(push)


def _commit(
    api: HfApi,
    repo_id: str,
    files: Mapping[str, Path | bytes],
    stale: Sequence[str],
    message: str,
    *,
    revision: str | None = None,
    repo_type: str | None = None,
    **options: str | bool,
) -> CommitInfo:
    """
    One commit, whole or not at all (`HfApi.upload_folder` makes several where an upload takes long), of `files` by
    their paths in the repository. Others whose path matches a pattern in `stale` are removed.
    """
    there = api.list_repo_files(repo_id, revision=revision, repo_type=repo_type)
    old = (name for name in there if name not in files and any(fnmatch(name, pattern) for pattern in stale))
    operations = [CommitOperationAdd(name, content) for name, content in sorted(files.items())]
    operations += [CommitOperationDelete(name) for name in old]
    with warnings.catch_warnings():
        # The rows are meant to be there: they are what a comparison of models reads.
        warnings.filterwarnings("ignore", message="It seems that you are about to commit a data file")
        options |= {"commit_message": message, "revision": revision, "repo_type": repo_type}
        return api.create_commit(repo_id, operations, **options)


def push_checkpoint(
    checkpoint: str | Path,
    repo_id: str,
    *,
    commit_message: str,
    revision: str | None = None,
    path_in_repo: str | None = None,
    tags: Sequence[str] = (),
) -> "Future[CommitInfo]":
    """
    Push a checkpoint of a run that is still training, in the background: the model, not calibrated, with a card that
    says so; and everything that resuming needs to `path_in_repo`, if given.

    `tags` are added to the card's. Pickles go to `last-checkpoint/` only, and never `training_args.bin`, which may
    hold a token.
    """
    checkpoint = Path(checkpoint)
    there = [path.name for path in checkpoint.iterdir() if path.is_file() and not path.is_symlink()]
    model = [name for name in _model_files(checkpoint) if name in there]
    names = model + [name for name in there if name in CHECKPOINT_FILES or RNG_STATE.fullmatch(name)]
    # Linked, since the trainer may delete an old checkpoint while it is still being pushed.
    staged = Path(tempfile.mkdtemp(prefix=STAGED, dir=checkpoint.parent))
    for name in names:
        try:
            os.link(checkpoint / name, staged / name)
        except OSError:  # another file system, or one without links
            shutil.copy2(checkpoint / name, staged / name)
    files = {name: staged / name for name in model}
    write_card(staged, repo_id, tags=("training-in-progress", *tags))
    files[CARD_FILE] = staged / CARD_FILE
    if path_in_repo is not None:
        resumable = names if path_in_repo == LAST_CHECKPOINT else list(files)
        files |= {f"{path_in_repo}/{name}": staged / name for name in resumable if name != CARD_FILE}

    def push() -> CommitInfo:
        try:
            return _commit(hub_api(), repo_id, files, STALE_FILES, commit_message, revision=revision)
        except Exception as error:
            # Nothing waits for the future; training continues, and the next checkpoint or the end pushes again.
            logger.warning(f"Pushing {checkpoint} to {repo_id} failed: {reason_of(error)}. It is on disk.")
            raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    return IN_TURN.submit(push)


def download_checkpoint(repo_id: str) -> str:
    """The folder of the checkpoint that `hub_strategy="checkpoint"` pushed, to resume from."""
    with hub_needed(f"Checkpoint {repo_id!r}", repo_id):
        folder = Path(snapshot_download(repo_id, allow_patterns=f"{LAST_CHECKPOINT}/*"))
    if not (folder / LAST_CHECKPOINT / "trainer_state.json").is_file():
        raise FileNotFoundError(
            f"{repo_id!r} has no {LAST_CHECKPOINT}/ to resume from. Runs with hub_strategy='checkpoint' push one; "
            "otherwise give the path of a checkpoint folder."
        )
    return str(folder / LAST_CHECKPOINT)


# ---- A pull request ----
# A calibrated head for somebody else's repository, with the report in its text. The commit changes as little as it
# can: the weights, and what calibration adds to `config.json`. The card and everything else stay with their owners.


def check_pull_request_access(repo_id: str) -> None:
    """
    Make sure, before the work, that a pull request can be opened: the repository can be read, and who opens it is
    known. Whether its owners take pull requests only shows when it is opened.
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
    if report.above_chance is False:
        return chance_sentence(report).rstrip(".")
    if temperature.reason is not None:
        return temperature.reason
    error = temperature.standard_error or 0.0
    if abs(temperature.value - 1) <= 1.96 * error:
        return f"the temperature, {temperature.value:.4f} ± {error:.4f}, may as well be 1"
    return None if temperature.helped else "on the test images the temperature does not help beyond chance"


def open_pull_request(folder: str | Path, repo_id: str, report: EvaluationReport) -> CommitInfo:
    """
    Open a pull request to `repo_id` with the calibrated model of a folder; the `pr_url` of what it returns is where to
    go. If it fails, with a [`PushError`], the model is still in `folder`.
    """
    folder, api = Path(folder), hub_api()
    try:
        config = json.loads(Path(hf_hub_download(repo_id, "config.json")).read_text(encoding="utf-8"))
        saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        added = (TEMPERATURE_FIELD, *THRESHOLD_FIELDS)
        config = {name: value for name, value in config.items() if name not in added}
        config |= {name: saved[name] for name in added if name in saved}
        others = [name for name in api.list_repo_files(repo_id) if name.startswith("pytorch_model")]
        files = {WEIGHTS_FILE: folder / WEIGHTS_FILE}  # which replaces shards
        files["config.json"] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
        title = f"Calibrate the head: a temperature of {report.temperature.value:.4f}"
        text = description(report, others)
        return _commit(api, repo_id, files, SHARDS, title, commit_description=text, create_pr=True)
    except Exception as error:  # anything: what matters is that the user learns how to go on
        raise PushError(
            f"The pull request to {repo_id!r} failed: {reason_of(error)}. The calibrated model is in {str(folder)!r}; "
            f"`macs-hf push {folder} USER/NAME` pushes it to a repository of your own."
        ) from error


def description(report: EvaluationReport, other_weights: Sequence[str] = ()) -> str:
    """The text of the pull request; `other_weights` are files that it leaves as they are."""
    temperature = report.temperature
    # Only the owners know whether their model was trained on them.
    fitted = f"{temperature.n:,} other images" if temperature.n is not None else "other images"
    if temperature.calibration_split:
        fitted += f" of {escaped(temperature.calibration_split)}"
    lines = [
        f"This divides weight and bias of the classifier head by a temperature of {temperature.value:.4f}. No "
        "prediction changes; softmax of the logits then gives calibrated probabilities, without any extra code.",
        "",
        f"Measured on the {report.n:,} images of the split {code(report.split)} of "
        f"{code(short_name(report.dataset))}; the temperature was fitted on {fitted}, which should not be among those "
        "that the model was trained on. In brackets: 95 % intervals over the test images.",
        "",
        table_markdown(measured(report).table._replace(header=("", "before", "with this change"))),
    ]
    if other_weights:
        others = ", ".join(map(code, other_weights))
        lines += ["", f"Only `{WEIGHTS_FILE}` is changed; {others} would still be uncalibrated."]
    if report.command is not None:
        lines += ["", "Made by", "", block(report.command, "bash")]
    return "\n".join(lines) + "\n"


# ---- A Space ----
# The page of `macs-hf app` for a published model, open to visitors. The package is on no index, so the Space has a
# copy of it: it starts from what is in its repository, and from what its requirements name.


PACKAGE, DISTRIBUTION = Path(__file__).parents[1], "macs-hf"
GRADIO_VERSION, PYTHON_VERSION = "6.31.0", "3.11"
PORT = "7860"  # where Spaces expect an app
MARK = "Made by `macs-hf push --space`."
APP = '''"""Serves {repo_id}. {mark} Pushing again replaces this file."""

from macs_hf.cli.main import main


raise SystemExit(main(["app", "{repo_id}", "--host", "0.0.0.0", "--port", "{port}"]))
'''
TEXT = """
# {name}

The page where [{repo_id}](https://huggingface.co/{repo_id}) can be audited and tried: how often it is right, how sure
it may be, and what breaks it. {mark}
"""


def push_space(repo_id: str, folder: str | Path, *, private: bool | None = None) -> str:
    """
    Make a Space of the same name as a model that is on the Hub, or bring it up to date, in one commit; returns its
    address. One of this name that was not made here is left alone, with a `ValueError`. By default it is as private as
    the model; the card in `folder` says under which licence it is.
    """
    api = hub_api()
    try:
        if private is None:
            private = api.model_info(repo_id).private  # a Space shows the model's name and card
        url = api.create_repo(repo_id, repo_type="space", space_sdk="gradio", private=private, exist_ok=True)
        if api.file_exists(repo_id, "app.py", repo_type="space"):
            app = Path(api.hf_hub_download(repo_id, "app.py", repo_type="space")).read_text(encoding="utf-8")
            if MARK not in app:
                raise ValueError(
                    f"There is a Space {repo_id!r} already that serves something else. Rename or delete it, or push "
                    "the model to another name."
                )
        files = space_files(repo_id, CardSettings.load(folder))
        _commit(api, repo_id, files, ("macs_hf/*", "macs_hf-*/*"), "Serve the model", repo_type="space")
    except httpx.HTTPError as error:
        raise ConnectionError(
            f"The model is pushed, but the Space {repo_id!r} is not: {reason_of(error)}. Push the same folder again."
        ) from error
    return str(url)


def space_files(repo_id: str, settings: CardSettings | None) -> dict[str, bytes]:
    """What the Space's repository holds, by path: the app, its requirements, its card, and a copy of the package."""
    name, version = repo_id.rpartition("/")[2], metadata.version(DISTRIBUTION)
    card = SpaceCardData(
        title=name,
        sdk="gradio",
        sdk_version=GRADIO_VERSION,
        python_version=PYTHON_VERSION,
        app_file="app.py",
        models=[repo_id],
        license=settings.license if settings is not None and settings.license != "unknown" else None,
        short_description="Can its probabilities be trusted?",
    )
    # Without the extras; Spaces install Gradio themselves.
    needed = [line for line in metadata.requires(DISTRIBUTION) or () if "extra ==" not in line]
    written = {
        "README.md": f"---\n{card.to_yaml()}\n---\n{TEXT.format(name=name, repo_id=repo_id, mark=MARK)}",
        "app.py": APP.format(repo_id=repo_id, mark=MARK, port=PORT),
        "requirements.txt": "".join(f"{line}\n" for line in needed),
        # What an installed package has: reports name its version.
        f"macs_hf-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n",
    }
    copied = {
        f"macs_hf/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return {name: content.encode() for name, content in written.items()} | copied
