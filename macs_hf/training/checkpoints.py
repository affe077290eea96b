"""Checkpoints: find the newest whole one, and restore every tensor of it or say which not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import extract_model_from_parallel
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel, TimmWrapperForImageClassification
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from ..disk.run_folder import claim_folder
from ..models.timm_layout import save_in_timm_layout
from ..randomness import global_rng_preserved
from .checkpoint_record import flaw_of, was_finished
from .run_identity import LENGTH


logger = logging.get_logger(__name__)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder has the name that `Trainer` gives to checkpoints: `checkpoint-` and the step."""
    prefix, _, step = folder.name.rpartition("-")
    return prefix == PREFIX_CHECKPOINT_DIR and step.isdecimal()


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoint folders below `output_dir`, complete or not, oldest first."""
    found = [path for path in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*") if is_checkpoint(path)]
    return sorted((path for path in found if path.is_dir()), key=step_of)


def last_complete_checkpoint(output_dir: str | Path, up_to_step: int | None = None) -> Path | None:
    """The newest checkpoint that is whole, at most `up_to_step` old; `None` if there is none."""
    for path in reversed(checkpoints(output_dir)):
        if (up_to_step is None or step_of(path) <= up_to_step) and flaw_of(path) is None:
            return path
    return None


def checkpoint_line(output_dir: str | Path) -> str:
    """From where the same command goes on, in a sentence."""
    found = last_complete_checkpoint(output_dir)
    return f"The same command continues from {found or 'the beginning, since no checkpoint was saved'}."


def checkpoint_to_continue(output_dir: str | Path) -> Path | None:
    """
    The newest checkpoint that is whole, with a line in the log about newer ones that are not; `None` to start at the
    beginning, if none was ever saved to its end.

    Raises:
        `ValueError`: If all that were saved are damaged or incomplete now: it says how to use their weights.
    """
    found, flaws = None, {}
    for path in reversed(checkpoints(output_dir)):
        flaw = flaw_of(path)
        if flaw is None:
            found = path
            break
        flaws[path] = flaw
    saved = next((path for path in flaws if was_finished(path)), None)
    if found is None and saved is not None:
        raise ValueError(refusal(saved, flaws[saved]))
    for path, flaw in flaws.items():
        logger.warning(f"{path} is skipped: {flaw}.")
    return found


def refusal(checkpoint: str | Path, reason: str) -> str:
    """Why a checkpoint is not resumed from, and how to start anew from its weights."""
    return (
        f"Training cannot continue from {str(checkpoint)!r} as if it had not stopped: {reason}. To start a new run "
        f"from its weights, load model={str(checkpoint)!r} and choose another output_dir, without "
        "resume_from_checkpoint."
    )


def restore_weights(model: PreTrainedModel, checkpoint: str | Path) -> None:
    """
    Load a checkpoint into `model` in place, all of it or an error.

    `save_pretrained` writes some architectures (ViT, Swin, BEiT, ...) under the key names of their first release,
    which only `from_pretrained` translates back; `load_state_dict(strict=False)` skips them with a warning.
    """
    try:
        with global_rng_preserved():
            loaded, info = type(model).from_pretrained(
                str(checkpoint),
                config=model.config,
                dtype=model.dtype,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                local_files_only=True,
            )
    except SafetensorError as error:
        raise ValueError(f"The weights in {checkpoint} are damaged ({error}). Resume from an earlier one.") from error
    problems = {
        what: sorted(str(key) for key in info[f"{what}_keys"])
        for what in ("missing", "unexpected", "mismatched")
        if info[f"{what}_keys"]
    }
    if problems:
        found = "; ".join(
            f"{what}: {', '.join(keys[:5])}{' ...' * (len(keys) > 5)}" for what, keys in problems.items()
        )
        raise ValueError(
            f"The checkpoint {checkpoint} does not fit {type(model).__name__} ({found}). It was saved by another "
            "model or with another number of labels; resume with the same model, or choose another output_dir."
        )
    model.load_state_dict(loaded.state_dict())


def save_timm_weights(
    model: nn.Module, folder: Path, processor: Any, state_dict: Mapping[str, Tensor] | None = None
) -> None:
    """Save a wrapped timm model again in timm's own layout, since timm cannot read the keys of one from a config."""
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    if isinstance(model, TimmWrapperForImageClassification):
        save_in_timm_layout(model, folder, getattr(processor, "data_config", None), state_dict)


def claim_output_dir(
    output_dir: str | Path, identity: dict[str, Any], resume_from_checkpoint: str | None = None
) -> str | None:
    """
    Make `output_dir` the folder of the run that `identity` describes, and return the checkpoint to continue from: the
    one that was named, or else the newest whole one.

    Starting the same run again continues it; a folder with results of another run is refused, so that neither is
    lost or mixed up.
    """
    newest = str(resume_from_checkpoint).lower() == "true"
    claim_folder(
        output_dir,
        identity,
        continues=str(output_dir) if newest else resume_from_checkpoint,
        changeable=LENGTH,
        advice=", or for other epochs or steps name one of its own checkpoints with resume_from_checkpoint=...",
    )
    if resume_from_checkpoint is not None:
        return resume_from_checkpoint
    found = checkpoint_to_continue(output_dir)
    if found is not None:
        logger.warning(f"Continuing from {found}.")
    elif checkpoints(output_dir):
        logger.warning("No checkpoint was saved to its end: starting at the beginning.")
    return str(found) if found else None
