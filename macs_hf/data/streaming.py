"""Data that does not fit on disk: training images read as they come, over and over; a capped part of the rest kept.

The training stream never ends, so `max_steps` says when to stop, and no process runs out before another. Each process
reads its own shards. Validation and test are read once, shuffled, up to a cap that the report's `n` gives. A split
that is missing is split off train by a hash of the image: the same rows whatever the order, the shards or the pass,
and copies of an image stay together.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import datasets
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict
from datasets.utils.file_utils import xopen
from transformers import TrainingArguments
from transformers.utils import logging

from ..exceptions import ArgumentError
from ..randomness import cpu_rng_seeded, mix_seed
from .own_files import OwnFiles
from .sources import (
    SPLIT_SEED,
    DatasetSource,
    ImageSplits,
    check_group_column,
    check_label_column,
    find_columns,
    load_raw,
    plan_splits,
    validation_name,
)
from .transforms import decode, is_readable


logger = logging.get_logger(__name__)

# Images of ImageNet take 0.1 MB each, and every worker of every process has a buffer.
SHUFFLE_BUFFER = 2000
# Of twenty parts by hash, the first two are validation and the next two test, where these are split off.
PARTS = 20
PARTS_OF = {"validation": (0, 1), "test": (2, 3)}


def check_streaming(max_steps: int, data_fraction: float = 1.0, max_train_samples: int | None = None) -> None:
    """Refuse what has no meaning for a stream."""
    if max_steps <= 0:
        raise ValueError(f"A stream has no end, and max_steps={max_steps}: set max_steps to the last training step.")
    if data_fraction != 1 or max_train_samples is not None:
        message = f"and max_train_samples={max_train_samples} need known rows. Leave them out, or do not stream."
        raise ArgumentError("data_fraction", message, data_fraction)


def limit_retries() -> None:
    """
    Let `datasets` give up in seconds, not in 100 s of silence, on a file whose connection is cut again and again. The
    client below it repeats requests by itself; only what is cut in the middle of an answer comes up to here.
    """
    for name in ("READ_MAX_RETRIES", "OPEN_MAX_RETRIES"):
        setattr(datasets.config, f"STREAMING_{name}", 4)
    for name in ("READ", "OPEN", "READ_SERVER_UNAVAILABLE", "READ_RATE_LIMIT"):
        setattr(datasets.config, f"STREAMING_{name}_RETRY_INTERVAL", 1)


def stream_splits(
    source: DatasetSource,
    max_eval_samples: int,
    skip_bad_images: bool = False,
    max_calibration_samples: int | None = None,
) -> ImageSplits:
    """The splits that [`~macs_hf.data.load_data`] is asked for, `train` as a stream of undecoded images."""
    caps = {"validation": max_calibration_samples or max_eval_samples, "test": max_eval_samples}
    raw = load_raw(source, streaming=True)
    if isinstance(raw, DatasetDict):  # embedded, or saved on this disk
        raw = IterableDatasetDict({name: split.to_iterable_dataset(num_shards=8) for name, split in raw.items()})
    plan = plan_splits(source, dict.fromkeys(raw, 1))
    for role, name in plan.items():
        if name is not None and name not in raw:
            raise ArgumentError(f"{role}_split", "is a slice, which a stream does not have. Do not stream.", name)
    stream = raw[source.train_split]
    features = stream.features or stream._resolve_features().features
    image, label = find_columns(features, source)
    if not isinstance(features[label], ClassLabel):
        raise ValueError(
            f"The classes of column {label!r} of dataset {source.path!r} have no names, so that they could only be "
            "known at the end of the stream. Do not stream, or cast the column to ClassLabel."
        )
    columns = Features({image: datasets.Image(decode=False), label: features[label]})
    check_group_column(features, source)
    if source.group_column is not None:
        columns[source.group_column] = features[source.group_column]
    rows = {role: _undecoded(raw[name], name, image, columns, source) for role, name in plan.items() if name}
    if skip_bad_images:
        rows = {role: split.filter(is_readable, input_columns=[image]) for role, split in rows.items()}
    train, held_out = rows["train"], {}
    split_off = [role for role in plan if role not in rows]
    for role in ("validation", "test"):
        part = _part(train, image, PARTS_OF[role]) if role in split_off else rows[role]
        held_out[role] = _kept(part, caps[role])
        check_label_column(held_out[role], label, features[label].num_classes, f"{role} of {source.path!r}")
    if split_off:
        taken = {part for role in split_off for part in PARTS_OF[role]}
        train = _part(train, image, tuple(part for part in range(PARTS) if part not in taken))
    return ImageSplits(
        train,
        **held_out,
        image_column=image,
        label_column=label,
        label_names=features[label].names,
        source=source,
        validation_name=validation_name(plan),
    )


def training_stream(
    splits: ImageSplits, transform: Callable, args: TrainingArguments, buffer_size: int = SHUFFLE_BUFFER
) -> IterableDataset:
    """
    `pixel_values` and `labels` of `splits.train` without end, shuffled within a buffer; a trainer whose
    `accelerator_config` has `dispatch_batches=False` then gives each process its own shards.

    Random transforms are keyed by (seed, process, worker, position in the stream), so resuming repeats them. Each
    worker keeps `buffer_size` undecoded images to choose from; the buffer is filled before the first batch, if need be
    by reading a small dataset over and over.
    """
    train, image_column, label_column = splits.train, splits.image_column, splits.label_column
    seed = args.seed if args.data_seed is None else args.data_seed
    process_index = args.process_index
    if train.num_shards < args.world_size:
        logger.warning(
            f"The stream has {train.num_shards} shards: each of {args.world_size} processes reads all of it."
        )

    def prepare(row: dict[str, Any], position: int) -> dict[str, Any]:
        worker = torch.utils.data.get_worker_info()
        try:
            image = decode(row[image_column])
        except Exception as error:
            raise ValueError(
                f"Image {position} of the stream cannot be read: {error}. Repair it, or pass skip_bad_images=True."
            ) from error
        with cpu_rng_seeded(mix_seed(seed, process_index, worker.id if worker else 0, position)):
            return transform(image) | {"labels": row[label_column]}

    # Shuffled after it is repeated: the buffer's generator continues from pass to pass, so that their orders differ.
    stream = train.repeat(None).shuffle(seed=seed, buffer_size=buffer_size)
    return stream.map(prepare, with_indices=True, remove_columns=list(train.features))


def _undecoded(
    stream: IterableDataset, split: str, image: str, columns: Features, source: DatasetSource
) -> IterableDataset:
    """Images as bytes, wherever they are, and labels as numbers; no other columns than these."""
    own = OwnFiles(source.path, stream.info.builder_name)

    def read(row: dict[str, Any], position: int) -> dict[str, Any]:
        stored = row[image]
        if stored is not None and stored["bytes"] is None and stored["path"] is not None:
            own.check(stored["path"], row=f" in row {position} of split {split!r}")
            with xopen(stored["path"], "rb") as file:
                stored = {"bytes": file.read(), "path": None}
        return {image: stored}

    if stream.features is not None:
        # Without this, threads decode what comes from the Hub, whatever it is cast to.
        stream = stream.decode(False)
    stream = stream.select_columns(list(columns)).cast_column(image, datasets.Image(decode=False))
    return stream.map(read, with_indices=True, features=columns)


def _part(stream: IterableDataset, image: str, parts: tuple[int, ...]) -> IterableDataset:
    def belongs(stored: dict[str, Any] | None) -> bool:
        content = b"" if stored is None else stored["bytes"] or b""
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        return int.from_bytes(digest[:8]) % PARTS in parts

    return stream.filter(belongs, input_columns=[image])


def _kept(stream: IterableDataset, size: int) -> Dataset:
    shuffled = stream.shuffle(seed=SPLIT_SEED, buffer_size=min(size, 1000))
    rows = list(shuffled.take(size))
    return Dataset.from_dict({name: [row[name] for row in rows] for name in stream.features}, stream.features)
