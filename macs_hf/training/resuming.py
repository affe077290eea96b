"""Resuming: from which checkpoint, and with which epoch's order and augmentation."""

from pathlib import Path
from typing import Any

from ..data.keyed import KeyedDataset
from ..hub.reach import is_local
from ..publishing.push import download_checkpoint
from .checkpoints import last_complete_checkpoint


def checkpoint_to_resume(resume_from_checkpoint: str | bool | None, output_dir: str | Path) -> str | None:
    """
    The folder to resume from; `None` to start anew.

    Args:
        resume_from_checkpoint (`str`, `bool`, *optional*): A checkpoint folder; a Hub id, whose `last-checkpoint` is
            then downloaded; or `True` (`"true"`) for the newest complete checkpoint in `output_dir`.
        output_dir (`str` or `Path`): The run's folder.
    """
    if resume_from_checkpoint is None or resume_from_checkpoint is False:
        return None
    if str(resume_from_checkpoint).lower() == "true":
        # The newest folder may have been cut off while it was written.
        found = last_complete_checkpoint(output_dir)
        if found is None:
            raise ValueError(f"No complete checkpoint in {str(output_dir)!r} to resume from.")
        return str(found)
    if is_local(resume_from_checkpoint):
        return resume_from_checkpoint
    if resume_from_checkpoint.count("/") != 1:
        raise ValueError(
            f"resume_from_checkpoint={resume_from_checkpoint!r} is neither a folder nor a Hub id. Name a checkpoint "
            "folder, or pass true for the newest one in output_dir."
        )
    return download_checkpoint(resume_from_checkpoint)


def set_epoch(epoch: int, train_dataloader: Any, dataset: KeyedDataset | None) -> None:
    """
    Let the order of the samples and their augmentation be those of `epoch`.

    `Trainer` does so too, but accelerate passes the epoch on neither to the dataset of a distributed run, nor to the
    sampler of a distributed run whose first batches are skipped. Both loaders share that sampler, so that it is
    enough to set the epoch of the one that skips nothing.
    """
    if dataset is not None:
        dataset.set_epoch(epoch)
    if hasattr(train_dataloader, "set_epoch"):  # a loader that accelerate prepared; a user's own may not be one
        train_dataloader.set_epoch(epoch)
