"""Resuming: from which checkpoint, and whether the run continues from it exactly as if it had never stopped."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import TrainingArguments
from transformers.utils import logging

from ..hub.connection import is_local
from ..publishing.push import download_checkpoint
from .checkpoint_record import STATE_FILE, flaw_of, read_identity, write_record
from .checkpoints import checkpoint_to_continue, refusal
from .run_identity import Identity, differences, identity_of


if TYPE_CHECKING:
    from .trainer import MaCSTrainer

logger = logging.get_logger(__name__)


def finish_checkpoint(trainer: "MaCSTrainer", checkpoint: str | Path) -> None:
    """Record a checkpoint once all processes have written their files; only the trainer's state is written later."""
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        write_record(checkpoint, identity_of(trainer.args, trainer.train_dataset, trainer.run_facts))


def checkpoint_to_resume(
    trainer: "MaCSTrainer", resume_from_checkpoint: str | Path | bool | None = None
) -> str | None:
    """
    The folder to resume from; `None` to start anew.

    Args:
        trainer ([`MaCSTrainer`]): Whose run has to be that of the checkpoint.
        resume_from_checkpoint (`str`, `Path`, `bool`, *optional*): A checkpoint folder; a Hub id, whose
            `last-checkpoint` is then downloaded; or `True` (`"true"`) for the newest whole checkpoint in `output_dir`.

    Raises:
        `ValueError`: If training would not go on as if it had never stopped.
    """
    if resume_from_checkpoint is None or resume_from_checkpoint is False:
        return None
    args = trainer.args
    if str(resume_from_checkpoint).lower() == "true":
        found = checkpoint_to_continue(args.output_dir)
        if found is None:
            raise ValueError(f"No valid checkpoint found in output directory {args.output_dir!r} to resume from.")
        checkpoint = found
    else:
        checkpoint = _checkpoint_folder(str(resume_from_checkpoint))
        flaw = flaw_of(checkpoint)
        if flaw is not None:
            raise ValueError(refusal(checkpoint, flaw))
    _check_run(checkpoint, args, identity_of(args, trainer.train_dataset, trainer.run_facts))
    _check_best_model(checkpoint, args)
    return str(checkpoint)


def _checkpoint_folder(name: str) -> Path:
    if not name.strip():
        raise ValueError(f"resume_from_checkpoint={name!r} is empty. Name a checkpoint folder, or leave it out.")
    if Path(name).is_dir():
        return Path(name)
    if is_local(name) or name.count("/") != 1:
        raise ValueError(  # in the words of `Trainer`
            f"Can't find a valid checkpoint at resume_from_checkpoint={name!r}: it is neither a folder nor a Hub id. "
            "Name a checkpoint folder, or pass true for the newest one in output_dir."
        )
    return Path(download_checkpoint(name))


def _check_run(checkpoint: Path, args: TrainingArguments, identity: Identity) -> None:
    if args.ignore_data_skip:
        raise ValueError(
            "ignore_data_skip=True would see the first images of the epoch again, so that nothing is resumed exactly. "
            "Leave it out."
        )
    earlier = read_identity(checkpoint)
    if earlier.run != identity.run:
        raise ValueError(refusal(checkpoint, f"it is of another run ({differences(earlier.run, identity.run)})"))
    # On a disk that the processes do not share, the record does not know of the files of all of them.
    generators = "rng_state.pth" if args.world_size == 1 else f"rng_state_{args.process_index}.pth"
    if not (checkpoint / generators).is_file():
        raise ValueError(refusal(checkpoint, f"{generators} is missing"))
    if earlier.length != identity.length:
        logger.warning(
            f"Another schedule than {checkpoint} was saved with ({differences(earlier.length, identity.length)}): the "
            "learning rate goes on as if the new length had been asked for from the start, and the result is that of "
            "neither length alone."
        )


def _check_best_model(checkpoint: Path, args: TrainingArguments) -> None:
    """The best model so far may be an earlier checkpoint; `Trainer` would go on without it."""
    best = json.loads((checkpoint / STATE_FILE).read_bytes()).get("best_model_checkpoint")
    if not args.load_best_model_at_end or best is None:
        return
    flaw = flaw_of(best) if Path(best).is_dir() else "it is not there any more"
    if flaw is not None:
        raise ValueError(
            f"The best model so far was saved in {best!r}, and {flaw}, so that the run could end with another one. "
            "Put it back, or pass load_best_model_at_end=False."
        )
