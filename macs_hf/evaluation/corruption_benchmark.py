"""A classifier under all corruptions, in one pass: each batch is corrupted, classified and forgotten."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torchvision.transforms.v2.functional import pil_to_tensor
from tqdm.auto import tqdm

from ..corruptions.corrupt import check_cell, check_images, check_seed, corrupt, to_levels
from ..corruptions.frost import frost_source
from ..data.images import decode
from ..pixels import PixelStats
from ..report.corruption_table import CORRUPTIONS, SEVERITIES, CorruptionTable
from .tally import CLEAN, Key, Tally


Forward = Callable[[Tensor], Tensor]


def evaluate_corruptions(
    forward: Forward,
    dataset: Sequence[Any] | Iterable[Any],
    *,
    params: Literal["cifar", "imagenet"] = "cifar",
    seed: int = 0,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    samples: int | None = None,
    resize: Callable[[Tensor], Tensor] | None = None,
    before_resize: bool = False,
    stats: PixelStats | None = None,
    columns: tuple[str, str] = ("image", "label"),
    temperature: float | None = None,
    frost_textures: str | Path | None = None,
    batch_size: int = 128,
    device: torch.device | str | None = None,
    accelerator: Accelerator | None = None,
    progress: bool = True,
) -> CorruptionTable:
    """
    Accuracy, NLL and ECE under every corruption and severity, and on the clean images.

    By default images are corrupted as the network receives them, after resizing and cropping: severities then mean the
    same for every dataset, and CIFAR-10-C is this at 32 pixels. With `before_resize` the original image is corrupted
    and then resized, which weakens noise and fine blur where it is shrunk.

    Args:
        forward (`Callable`): Maps uint8 images `(B, 3, H, W)` to logits `(B, classes)`; see `forward_of`.
        dataset (sequence or iterable): Of `(image, label)` or of dictionaries with `columns`. An image is anything PIL
            or `datasets` gives, a uint8 tensor `(3, H, W)`, or a float one, normalised with `stats` or in [0, 1].
        params (`str`, *optional*, defaults to `"cifar"`): Parameter set, see `corrupt`.
        seed (`int`, *optional*, defaults to 0): Seed of the corruptions and of the subset.
        corruptions, severities (sequences, *optional*): What to measure, by default all 19 x 5.
        samples (`int`, *optional*): Measure a fixed random subset of this size; the table has the interval it implies.
        resize (`Callable`, *optional*): Maps one uint8 image `(3, H, W)` to the input size, uint8.
        before_resize (`bool`, *optional*, defaults to `False`): Corrupt before `resize`.
        stats (`PixelStats`, *optional*): With what float images were normalised.
        columns (`tuple`, *optional*, defaults to `("image", "label")`): Names in a dictionary.
        temperature (`float`, *optional*): Fitted on clean data; adds the scores of the scaled logits.
        frost_textures (`str` or `Path`, *optional*): See `frost_source`.
        batch_size (`int`, *optional*, defaults to 128): Images per forward pass.
        device (`torch.device` or `str`, *optional*): Where images are corrupted; by default the accelerator's.
        accelerator (`Accelerator`, *optional*): Shares the images out over its processes and adds up the results.
        progress (`bool`, *optional*, defaults to `True`): Whether to show a progress bar, on the main process.

    Returns:
        `CorruptionTable`: The same on every process.
    """
    for name in corruptions:
        for severity in severities:
            check_cell(name, severity, params)
    seed = check_seed(seed)
    if before_resize and resize is None:
        raise ValueError("before_resize=True needs resize, which brings a corrupted image to the network's size.")
    rank, world = (accelerator.process_index, accelerator.num_processes) if accelerator is not None else (0, 1)
    device = device or (accelerator.device if accelerator is not None else "cpu")
    options = {"params": params, "seed": seed, "frost_textures": frost_textures}

    def make(images: list[Tensor], positions: list[int], key: Key) -> Tensor:
        """The network's input, uint8, for one batch and cell."""
        if before_resize:
            if key != CLEAN:
                singles = zip(images, positions, strict=True)
                images = [corrupt(image[None], *key, indices=[place], **options)[0] for image, place in singles]
            return _stack([resize(image) for image in images])
        return _stack(images) if key == CLEAN else corrupt(_stack(images), *key, indices=positions, **options)

    keys = [CLEAN] + [(name, severity) for name in corruptions for severity in severities]
    tally = Tally(keys, temperature)
    examples, index = _shard(dataset, samples, seed, rank, world)
    total = None if index is None else -(-len(index[rank::world]) // batch_size) * len(keys)
    size = None
    with tqdm(total=total, unit="cell", desc="corruptions", disable=not progress or rank > 0) as bar:
        while batch := list(islice(examples, batch_size)):
            positions = [position for position, _ in batch]
            pairs = [_image_and_label(example, columns, stats) for _, example in batch]
            images, labels = [image.to(device) for image, _ in pairs], torch.tensor([label for _, label in pairs])
            if resize is not None and not before_resize:
                images = [resize(image) for image in images]
            for key in keys:
                bar.set_postfix_str(" ".join(map(str, key)), refresh=False)
                inputs = make(images, positions, key)
                size = tuple(inputs.shape[2:])
                tally.update(key, torch.tensor(positions), forward(inputs), labels)
                bar.update()
    cells, rows, errors = tally.totals(index, accelerator)
    return CorruptionTable(
        params=params,
        source="generated",
        n=cells[CLEAN].n,
        cells={name: {severity: cells[name, severity] for severity in severities} for name in corruptions},
        clean=cells[CLEAN],
        when="before_resize" if before_resize else "after_resize",
        seed=seed,
        frost=frost_source(frost_textures) if "frost" in corruptions else None,
        temperature=temperature,
        standard_error=errors,
        size=size,
        rows=rows,
    )


def forward_of(model: nn.Module, stats: PixelStats, device: torch.device | str | None = None) -> Forward:
    """
    A function from uint8 images to logits.

    Args:
        model (`nn.Module`): Takes normalised images, as `pixel_values`; returns logits or something with `.logits`.
        stats (`PixelStats`): With what to normalise them.
        device (`torch.device`, *optional*): Where the model is; by default where its parameters are.
    """
    parameter = next(model.parameters())
    device, dtype = torch.device(device or parameter.device), parameter.dtype

    @torch.inference_mode()
    def forward(images: Tensor) -> Tensor:
        training = model.training
        model.eval()
        try:
            output = model(stats.normalize(images.to(device).float() / 255).to(dtype))
        finally:
            model.train(training)
        return getattr(output, "logits", output)

    return forward


def subset(count: int, samples: int | None, seed: int) -> list[int]:
    """The positions of a fixed random subset, in order; all of them if `samples` is `None` or larger."""
    if samples is not None and samples < 1:
        raise ValueError(f"samples={samples} must be at least 1, or None for all.")
    if samples is None or samples >= count:
        return list(range(count))
    generator = torch.Generator().manual_seed(check_seed(seed))
    return torch.randperm(count, generator=generator)[:samples].sort().values.tolist()


def _shard(
    dataset: Sequence[Any] | Iterable[Any], samples: int | None, seed: int, rank: int, world: int
) -> tuple[Iterator[tuple[int, Any]], np.ndarray | None]:
    """This process's examples with their positions in the dataset, and the positions of all processes if known."""
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        positions = subset(len(dataset), samples, seed)
        return ((position, dataset[position]) for position in positions[rank::world]), np.array(positions, np.int64)
    if samples is not None:
        raise ValueError(
            f"samples={samples} needs a dataset with a length and an index: a stream has no random subset."
        )
    return islice(enumerate(dataset), rank, None, world), None


def _image_and_label(example: Any, columns: tuple[str, str], stats: PixelStats | None) -> tuple[Tensor, int]:
    if isinstance(example, Mapping):
        missing = [name for name in columns if name not in example]
        if missing:
            raise ValueError(f"An example has no {missing[0]!r} but {sorted(example)}: name the two with columns.")
        example = tuple(example[name] for name in columns)
    image, label = example
    if not isinstance(image, Tensor):
        return pil_to_tensor(decode(image)), int(label)
    if image.is_floating_point() and stats is not None:
        image = stats.to_pixels(image)
    check_images(image[None])
    return to_levels(image), int(label)


def _stack(images: list[Tensor]) -> Tensor:
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        raise ValueError(f"Images of one batch differ in size ({sorted(shapes)[:3]} ...): pass resize.")
    return torch.stack(images)
