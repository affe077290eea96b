"""A trainer's model and checkpoints on their way to the Hub."""

import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo
from transformers import Trainer
from transformers.trainer_utils import HubStrategy, SaveStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from ..calibration.folding import calibration_record
from ..publishing.access import open_repo
from ..publishing.card_settings import CardSettings
from ..publishing.folder import write_card
from ..publishing.push import LAST_CHECKPOINT, STAGED, push_checkpoint, push_folder
from ..report.config_fields import TEMPERATURE_FIELD
from ..report.evaluation import EvaluationReport


logger = logging.get_logger(__name__)


def open_trainer_repo(trainer: Trainer, token: str | None = None, private: bool | None = None) -> None:
    """Find out who pushes and whether they may, and make the repository and its branch."""
    if trainer.is_world_process_zero():
        for folder in Path(trainer.args.output_dir).glob(f"{STAGED}*"):
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed: it keeps deleted checkpoints on disk
        trainer.hub_model_id = open_repo(trainer.args, token, private)
        trainer.push_in_progress = None


def model_tags(trainer: Trainer) -> tuple[str, ...]:
    """What was added with `model.add_model_tags`; trackers put the page with the training's curves there."""
    return tuple(getattr(trainer.model, "model_tags", None) or ())  # a plain module has none


def write_trainer_card(
    trainer: Trainer,
    language: str | None = None,
    license: str | None = None,
    tags: str | list[str] | None = None,
    model_name: str | None = None,
    finetuned_from: str | None = None,
    tasks: str | list[str] | None = None,
    dataset_tags: str | list[str] | None = None,
    dataset: str | list[str] | None = None,
    dataset_args: str | list[str] | None = None,
    report: EvaluationReport | None = None,
    gallery: bool | None = None,
    draft: str | Path | None = None,
) -> None:
    """
    Write `README.md` from `report`, with the parameters of `Trainer.create_model_card`; `tasks`, `dataset` and
    `dataset_args` are accepted because it has them, but the task and the dataset are those of the report. `gallery`
    says whether the card shows the test images of `mistakes.png`. The card goes to `draft`, if given, a folder whose
    files will be moved to the output folder.
    """
    if not trainer.is_world_process_zero():
        return
    folder = Path(trainer.args.output_dir)
    tags = [tags] if isinstance(tags, str) else tags
    if found := model_tags(trainer):
        earlier = CardSettings.load(folder)
        kept = [tag for tag in tags or (earlier.tags if earlier else ()) if not tag.startswith("trackio:")]
        tags = list(dict.fromkeys([*kept, *found]))
    name = model_name or (trainer.hub_model_id or folder.absolute().name).rpartition("/")[2]
    write_card(
        draft or folder,
        trainer.hub_model_id or name,
        report,
        earlier=folder,
        name=name,
        license=license,
        language=language,
        tags=tags,
        base_model=finetuned_from or getattr(getattr(trainer.model, "config", None), "_name_or_path", None) or None,
        datasets=[dataset_tags] if isinstance(dataset_tags, str) else dataset_tags,
        gallery=gallery,
        # Of the model as it is now; it may not be saved yet.
        temperature=getattr(calibration_record(trainer.model), TEMPERATURE_FIELD, None),
    )


def push_model(
    trainer: Trainer,
    commit_message: str | None = "End of training",
    blocking: bool = True,
    token: str | None = None,
    revision: str | None = None,
    private: bool | None = None,
    saved: bool = False,
    **card: Any,
) -> "CommitInfo | Future[CommitInfo] | None":
    """
    Save the model, then push it with its processor, its report, pictures and card, in one commit.

    Fold the temperature, write the report (`write_report`) and pass it as `report` too. If the push fails, nothing is
    lost:
    [`~macs_hf.publishing.PushError`] says how to push again. All processes have to call it; one of them pushes.

    Args:
        trainer ([`MaCSTrainer`]): Whose model it is.
        commit_message, blocking, token, revision, private: As in `Trainer.push_to_hub`.
        saved (`bool`, *optional*, defaults to `False`): Whether the model and its card are in the output folder
            already.
        card: Passed to [`write_trainer_card`], such as `license` and `report`.
    """
    trainer.callback_handler.on_push_begin(trainer.args, trainer.state, trainer.control)
    if trainer.hub_model_id is None:
        trainer.init_hf_repo(token, private)
    if not saved:
        trainer.save_model(_internal_call=True)
    if not trainer.is_world_process_zero():
        return None
    if trainer.push_in_progress is not None:
        trainer.push_in_progress.wait_until_done()
    settings = CardSettings.load(trainer.args.output_dir)
    # Trackio names its page only when a push begins, after the card was written.
    if not saved or (settings is not None and not set(model_tags(trainer)) <= set(settings.tags)):
        trainer.create_model_card(**card)
    return push_folder(
        trainer.args.output_dir,
        trainer.hub_model_id,
        private=trainer.args.hub_private_repo if private is None else private,
        revision=revision or trainer.args.hub_revision,
        commit_message=commit_message,
        token=token,
        blocking=blocking,
        with_report=card.get("report") is not None,
    )


def push_in_background(trainer: Trainer, checkpoint: str, stopping: bool = False) -> None:
    """
    Push a checkpoint while training goes on, if `hub_strategy` asks for it and no other is still on its way. One that
    was saved because the run is `stopping` is only pushed to be resumed from.
    """
    args, state = trainer.args, trainer.state
    wanted = args.hub_strategy == HubStrategy.CHECKPOINT if stopping else args.hub_strategy != HubStrategy.END
    if not (wanted and trainer.is_world_process_zero()):
        return
    running = trainer.push_in_progress is not None and not trainer.push_in_progress.is_done()
    if running and not args.hub_always_push:
        return
    trainer.callback_handler.on_push_begin(args, state, trainer.control)
    where = {HubStrategy.CHECKPOINT: LAST_CHECKPOINT, HubStrategy.ALL_CHECKPOINTS: Path(checkpoint).name}
    steps = args.save_strategy == SaveStrategy.STEPS
    at = f"step {state.global_step}" if steps else f"epoch {int(state.epoch)}"
    try:
        job = push_checkpoint(
            checkpoint,
            trainer.hub_model_id,
            commit_message=f"Training in progress, {at}",
            revision=args.hub_revision,
            path_in_repo=where.get(args.hub_strategy),
            tags=model_tags(trainer),
            after=trainer.push_in_progress.jobs[-1] if running else None,
        )
    except OSError as error:  # such as a full disk: no reason to end the training
        logger.warning(f"{checkpoint} is not pushed: {error}.")
        return
    if running:
        trainer.push_in_progress.jobs.append(job)
    else:
        trainer.push_in_progress = PushInProgress([job])
