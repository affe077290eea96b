"""Checkpoints: which run they belong to, whether they are whole, and how exactly a run continues from one."""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping, Sized
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, logging

from ..exceptions import ArgumentError
from ..hub import is_local
from ..objective.objective import Objective, objective_of
from ..publishing.push import download_checkpoint
from ..randomness import global_rng_preserved
from ..report.run_folder import claim_folder
from .arguments import sharding_of


# ---- Which run it is ----
# What makes a run the same run: recorded in each of its checkpoints, and compared when one is resumed.


# All of `TrainingArguments` that changes what is learned, beside the objective and the length of the schedule.
RECIPE = (
    *("seed", "data_seed", "per_device_train_batch_size", "gradient_accumulation_steps", "dataloader_drop_last"),
    *("train_sampling_strategy", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    *("optim", "optim_args", "optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("max_grad_norm", "bf16", "fp16", "ema_decay"),
)
# The same of accelerate's data loaders: how images are divided among processes.
BATCHING = ("split_batches", "even_batches", "use_seedable_sampler")
# How long it learns. More steps than before are another schedule of the same run.
LENGTH = ("num_train_epochs", "max_steps")
# What is minimised. A run with another objective is another run, whatever else is the same.
OBJECTIVE = (*(each.name for each in dataclasses.fields(Objective)), "perturbation_function")


def identity_of(args: TrainingArguments, train_dataset: Any, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """
    What has to be the same for a resumed run to be exactly the one that was stopped, and its [`LENGTH`], which may
    change.

    Args:
        args ([`~transformers.TrainingArguments`]): Of the run.
        train_dataset (`Any`): Its size counts; of a stream, the number of workers that read it.
        facts (`Mapping[str, Any]`, *optional*): What else counts, such as the names of the dataset and the model.
    """
    settings, objective = args.to_dict(), dataclasses.asdict(objective_of(args))
    # Added later: without them, what an earlier version recorded is still the same run.
    for name, usual in {"augment_fraction": 1.0, "class_weights": None}.items():
        if objective[name] == usual:
            del objective[name]
    # A stream is divided among its workers; a map-style dataset gives the same batches with any number of them.
    is_stream = not isinstance(train_dataset, Sized)
    identity = (
        dict(facts or {})
        | objective
        | {name: settings.get(name) for name in RECIPE}
        | {name: getattr(args.accelerator_config, name) for name in BATCHING}
        | (
            {"dataloader_num_workers": args.dataloader_num_workers}
            if is_stream
            else {"training_samples": len(train_dataset)}
        )
        | {"processes": args.world_size, "sharding": sharding_of(args), "device": args.device.type}
        | {name: settings[name] for name in LENGTH}
    )
    return json.loads(json.dumps(identity, default=str))


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """`name: value, now other value` by the name of all that differs, those that only one of them has included."""
    names = [name for name in {**earlier, **now} if earlier.get(name) != now.get(name)]
    return {name: f"{name}: {earlier.get(name)!r}, now {now.get(name)!r}" for name in names}


# ---- The record ----
# The record in a checkpoint: which run it belongs to, and what its files hold.
#
# `Trainer` writes `trainer_state.json` last; the record is written just before it. So a folder with a readable state
# was saved to its end, and the record says whether anything has happened to it since.


RECORD_FILE = "checkpoint.json"
STATE_FILE = "trainer_state.json"
# Not needed to resume, and never pushed: a checkpoint that comes from the Hub does not have it.
ARGUMENTS_FILE = "training_args.bin"
# Of a file that is larger than all of them together, only so many blocks of so many bytes are read, spread evenly.
BLOCKS, BLOCK_BYTES = 256, 2**16


def write_record(checkpoint: str | Path, identity: Mapping[str, Any]) -> None:
    """Record the files that are in a checkpoint now, and the run that they belong to."""
    checkpoint = Path(checkpoint)
    files = {path.relative_to(checkpoint).as_posix(): path for path in sorted(checkpoint.rglob("*")) if path.is_file()}
    left_out = (RECORD_FILE, STATE_FILE, ARGUMENTS_FILE)
    contents = {name: content_of(path) for name, path in files.items() if name not in left_out}
    (checkpoint / RECORD_FILE).write_text(json.dumps({"run": identity, "files": contents}, indent=2) + "\n")


def read_identity(checkpoint: str | Path) -> dict[str, Any] | None:
    """The run that a checkpoint belongs to; `None` if it does not say, as those of plain `Trainer`."""
    record = _read_json(Path(checkpoint) / RECORD_FILE)
    return record["run"] if _is_record(record) else None


def content_of(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file, or of 16 MiB of a larger one: its first and last bytes, and blocks between."""
    size, sha = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        if size <= BLOCKS * BLOCK_BYTES:
            sha.update(file.read())
        else:
            for block in range(BLOCKS):
                file.seek(block * (size - BLOCK_BYTES) // (BLOCKS - 1))
                sha.update(file.read(BLOCK_BYTES))
    return {"bytes": size, "sha256": sha.hexdigest()}


def was_finished(checkpoint: str | Path) -> bool:
    """Whether a checkpoint was saved to its end, whatever has become of it since."""
    return isinstance(_read_json(Path(checkpoint) / STATE_FILE).get("global_step"), int)


def flaw_of(checkpoint: str | Path) -> str | None:
    """Why training cannot continue from a checkpoint, since it is incomplete or damaged; `None` if it can."""
    checkpoint = Path(checkpoint)
    if not was_finished(checkpoint):
        return f"{STATE_FILE} is missing or damaged: it was cut off while it was saved"
    if not (checkpoint / RECORD_FILE).is_file():
        return None  # of plain `Trainer`: what is damaged shows when it is read
    record = _read_json(checkpoint / RECORD_FILE)
    if not _is_record(record):
        return f"{RECORD_FILE} is damaged"
    divided = (checkpoint / SAFE_WEIGHTS_INDEX_NAME).is_file() and not (checkpoint / SAFE_WEIGHTS_NAME).is_file()
    for name, recorded in record["files"].items():
        path = checkpoint / name
        if divided and name in (SAFE_WEIGHTS_NAME, CONFIG_NAME):
            continue  # the model was saved again, in several files; whether all are there is seen when it is read
        if not path.is_file():
            return f"{name} is missing"
        if content_of(path) != recorded:
            return f"{name} has changed since it was saved"
    return None


def _is_record(record: dict[str, Any]) -> bool:
    return isinstance(record.get("run"), dict) and isinstance(record.get("files"), dict)


def _read_json(path: Path) -> dict[str, Any]:
    """What a file holds; nothing if it cannot be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# ---- Finding and restoring ----
# Checkpoints: find the newest whole one, and restore every tensor of it or say which not.


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
    """From where the same run goes on, in a sentence."""
    found = last_complete_checkpoint(output_dir)
    return f"The same run, started again, continues from {found or 'the beginning, since no checkpoint was saved'}."


def checkpoint_to_continue(output_dir: str | Path) -> Path | None:
    """
    The newest checkpoint that is whole, with a line in the log about newer ones that are not; `None` to start at the
    beginning, if none was ever saved to its end.

    Raises:
        `ValueError`: If all that were saved are damaged or incomplete now: it says how to use their weights.
    """
    found, folders = last_complete_checkpoint(output_dir), checkpoints(output_dir)
    newer = folders if found is None else folders[folders.index(found) + 1 :]
    flaws = {path: flaw_of(path) for path in reversed(newer)}
    for path, flaw in flaws.items():
        if found is None and was_finished(path):
            raise ValueError(refusal(path, flaw))
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
    problems = {what: sorted(map(str, info[f"{what}_keys"])) for what in ("missing", "unexpected", "mismatched")}
    if any(problems.values()):
        found = "; ".join(f"{what}: {', '.join(keys[:5])}" for what, keys in problems.items() if keys)
        raise ValueError(
            f"The checkpoint {checkpoint} does not fit {type(model).__name__} ({found}). It was saved by another "
            "model or with another number of labels; resume with the same model, or choose another output_dir."
        )
    model.load_state_dict(loaded.state_dict())


def claim_output_dir(
    output_dir: str | Path,
    identity: dict[str, Any],
    resume_from_checkpoint: str | None = None,
    same: Collection[str] | None = None,
) -> str | None:
    """
    Make `output_dir` the folder of the run that `identity` describes, and return the checkpoint to continue from: the
    one that was named, or else the newest whole one.

    Starting the same run again continues it; a folder with results of another run is refused, so that neither is
    lost or mixed up. With `same`, only what it names has to be the same where there is a checkpoint.
    """
    continues = resume_from_checkpoint
    if str(resume_from_checkpoint).lower() == "true" or (same is not None and checkpoints(output_dir)):
        continues = str(output_dir)
    claim_folder(
        output_dir,
        identity,
        continues=continues,
        changeable=LENGTH if same is None else [name for name in identity if name not in same],
        advice=", or for other epochs or steps name one of its own checkpoints as resume_from_checkpoint. To go on "
        "with another recipe, set allow_inexact_resume",
    )
    if resume_from_checkpoint is not None:
        return resume_from_checkpoint
    found = checkpoint_to_continue(output_dir)
    if found is not None:
        logger.warning(f"Continuing from {found}.")
    elif checkpoints(output_dir):
        logger.warning("No checkpoint was saved to its end: starting at the beginning.")
    return str(found) if found else None


# ---- Resuming ----
# Resuming: from which checkpoint, and what is then not exactly as if the run had never stopped.


SPACE = "perturbed_in"  # where the perturbation acted, in a checkpoint's record: `pixel` or `normalized`


def checkpoint_to_resume(
    resume_from_checkpoint: str | Path | bool | None,
    args: TrainingArguments,
    identity: Mapping[str, Any],
    same: Collection[str] | None = OBJECTIVE,
) -> str | None:
    """
    The folder to resume from; `None` to start anew. One warning names all that will not be exact.

    Args:
        resume_from_checkpoint (`str`, `Path`, `bool`, *optional*): A checkpoint folder; a Hub id, whose
            `last-checkpoint` is then downloaded; or `True` (`"true"`) for the newest whole checkpoint in `output_dir`.
        args ([`~transformers.TrainingArguments`]), identity (`Mapping[str, Any]`): Of the run that is to
            continue.
        same (`Collection[str]`, *optional*): What has to be the same as in the checkpoint, as far as it says;
            `None` for all of it, so that nothing but the length of the run may differ.

    Raises:
        `ValueError`: If the checkpoint is damaged, or of another run than `same` allows.
    """
    if resume_from_checkpoint is None or resume_from_checkpoint is False:
        return None
    if str(resume_from_checkpoint).lower() == "true":
        checkpoint = checkpoint_to_continue(args.output_dir)
        if checkpoint is None:
            raise ValueError(f"No valid checkpoint found in output directory {args.output_dir!r} to resume from.")
    else:
        checkpoint = _checkpoint_folder(str(resume_from_checkpoint))
        flaw = flaw_of(checkpoint)
        if flaw is not None:
            raise ValueError(refusal(checkpoint, flaw))
    _check_run(checkpoint, args, identity, same)
    return str(checkpoint)


def _checkpoint_folder(name: str) -> Path:
    if name.strip() and Path(name).is_dir():
        return Path(name)
    if is_local(name) or name.count("/") != 1:
        raise ValueError(  # in the words of `Trainer`
            f"Can't find a valid checkpoint at resume_from_checkpoint={name!r}: it is neither a folder nor a Hub id. "
            "Name a checkpoint folder, or pass true for the newest one in output_dir."
        )
    return Path(download_checkpoint(name))


def _check_run(
    checkpoint: Path, args: TrainingArguments, identity: Mapping[str, Any], same: Collection[str] | None
) -> None:
    """Refuse another run, and say what is not exact."""
    earlier, gaps, length = read_identity(checkpoint), [], []
    if earlier is None:
        gaps.append(f"it has no {RECORD_FILE}, as of plain Trainer, so nothing says how it was trained")
    else:
        earlier.pop(SPACE, None)  # found out from the first batch, which a resumed run does not see again
        changes = differences(earlier, identity)
        # FSDP and DeepSpeed write the optimiser in a form of their own, which nothing else can read.
        fixed = [changes[name] for name in changes if name in (*(OBJECTIVE if same is None else same), "sharding")]
        if fixed:
            raise ValueError(refusal(checkpoint, f"it is of another run ({', '.join(fixed)})"))
        gaps += [change for name, change in changes.items() if name not in LENGTH]
        length = [change for name, change in changes.items() if name in LENGTH]
    gaps += _gaps(checkpoint, args)
    if gaps and same is None:
        reason = refusal(checkpoint, "; ".join(gaps))
        raise ArgumentError("allow_inexact_resume", f"{reason} To go on all the same, add")
    if (gaps or length) and args.process_index == 0:
        logger.warning(
            f"The run goes on from {str(checkpoint)!r}, but not exactly as if it had not stopped: "
            f"{'; '.join([*gaps, *length])}. What it holds of the optimiser and the learning rate goes on as it was "
            "saved."
        )


def _gaps(checkpoint: Path, args: TrainingArguments) -> list[str]:
    """What of a checkpoint itself keeps a run from going on exactly."""
    gaps = []
    names = {path.name for path in checkpoint.iterdir()}
    # FSDP and DeepSpeed save the optimiser under names of their own.
    has_optimizer = any(name.startswith(("optimizer", "global_step")) for name in names)
    if not has_optimizer or ("optimizer.pt" in names and "scheduler.pt" not in names):
        gaps.append("it does not have both optimizer.pt and scheduler.pt, so optimiser and schedule start anew")
    if args.ignore_data_skip:
        gaps.append("ignore_data_skip=True, so the first images of the epoch are seen again")
    best = _read_json(checkpoint / STATE_FILE).get("best_model_checkpoint")
    if args.load_best_model_at_end and best is not None:
        if not Path(best).is_dir():
            gaps.append(f"the best model so far was saved in {best!r}, which is not there any more")
        elif flaw := flaw_of(best):
            raise ValueError(
                f"The best model so far was saved in {best!r}, and {flaw}, so that the run could end with another "
                "one. Put it back, remove it, or pass load_best_model_at_end=False."
            )
    return gaps
