"""Resuming: from which checkpoint."""

from pathlib import Path

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
