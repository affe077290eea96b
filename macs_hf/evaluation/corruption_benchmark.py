"""A classifier under all corruptions, in one pass: each batch is read once, corrupted, classified and forgotten."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..corruptions.corrupt import corrupt, parameter_set
from ..corruptions.frost import frost_source
from ..pixels import PixelStats
from ..report.corruption_table import CorruptionTable
from ..report.rows import SampleRows
from .byte_images import Batch, ByteImages
from .corruption_counts import CLEAN, CorruptionCounts, Key, clean_scores, largest
from .corruption_design import CorruptionBenchmark, Plan, planned
from .guarantee_counts import GuaranteeCounts


Forward = Callable[[Tensor], Tensor]


def evaluate_corruptions(
    forward: Forward,
    dataset: Sequence[Any] | Iterable[Any] | ByteImages,
    *,
    temperature: float | None = None,
    clean_rows: Sequence[SampleRows] | None = None,
    guarantee_counts: GuaranteeCounts | None = None,
    batch_size: int = 128,
    accelerator: Accelerator | None = None,
    progress: bool | Callable[..., Any] = True,
    **benchmark: Any,
) -> CorruptionTable:
    """
    Accuracy, NLL and ECE under every corruption and severity, and on the clean images.

    Args:
        forward (`Callable`): Maps uint8 images `(B, 3, H, W)` to logits `(B, classes)`; see `forward_of`.
        dataset (sequence, iterable or [`ByteImages`]): Of `(image, label)`, or of dictionaries with `image` and
            `label`; images that are not yet at the network's size, are normalised or have other names come as
            [`ByteImages`].
        temperature (`float`, *optional*): Fitted on clean data; adds the scores of the scaled logits.
        clean_rows (sequence of `SampleRows`, *optional*): What the model does with all of the clean images, without
            and, if there is one, with the temperature. Saves the forward pass on them, and looking up their labels.
        guarantee_counts ([`GuaranteeCounts`], *optional*): Collects what becomes of a model's guarantees.
        batch_size (`int`, *optional*, defaults to 128): Images per forward pass.
        accelerator (`Accelerator`, *optional*): Shares the images out over its processes and adds up the results;
            images are corrupted on its device.
        progress (`bool` or `Callable`, *optional*, defaults to `True`): Whether to show a progress bar, on the main
            process; or what makes one, with the arguments of tqdm.
        benchmark: The fields of [`CorruptionBenchmark`], such as `params`, `samples`, `design` and `seed`.

    Returns:
        `CorruptionTable`: The same on every process.

    Example:

    ```python
    >>> dataset = [(torch.full((3, 32, 32), 40 * i, dtype=torch.uint8), i % 2) for i in range(5)]
    >>> forward = lambda images: torch.nn.functional.one_hot((images[:, 0, 0, 0] > 99).long(), 2).float()
    >>> table = evaluate_corruptions(forward, dataset, corruptions=["contrast"], progress=False)
    >>> table.params, table.design, table.clean.accuracy
    ('cifar', 'crossed', 0.6)

    ```
    """
    benchmark = CorruptionBenchmark(**benchmark)
    images = dataset if isinstance(dataset, ByteImages) else ByteImages(dataset)
    if benchmark.when == "before_resize" and images.resize is None:
        raise ValueError(
            "when='before_resize' needs ByteImages with resize, which brings a corrupted image to the network's size."
        )
    plan = planned(benchmark, images, clean_rows)
    counts = CorruptionCounts(plan.keys, temperature)
    rank, world = (accelerator.process_index, accelerator.num_processes) if accelerator is not None else (0, 1)
    size = (0, 0)
    make_bar = partial(tqdm, disable=not progress or rank > 0) if isinstance(progress, bool) else progress
    with make_bar(total=plan.steps(batch_size, rank, world), unit="cell", desc="corruptions") as bar:
        for (positions, originals, labels), keys in _batches(plan, images, batch_size, rank, world):
            if accelerator is not None:
                originals = [image.to(accelerator.device) for image in originals]
            sized = images.sized(originals)
            size = tuple(sized.shape[2:])
            for key in keys:
                bar.set_postfix_str(" ".join(map(str, key)), refresh=False)
                inputs = sized if key == CLEAN else _corrupted(benchmark, images, originals, sized, positions, key)
                logits = forward(inputs)
                counts.update(key, positions, logits, labels)
                if guarantee_counts is not None:
                    guarantee_counts.update(key, logits, labels)
                bar.update()
    # A process may have had no images, and the table is the same on all of them.
    size = tuple(largest(side, accelerator) for side in size)
    found, rows, errors, gaps = counts.totals(plan.index, accelerator)
    if clean_rows is not None:
        found[CLEAN], gap = clean_scores(clean_rows, rows.index)
        gaps = gap | gaps
    return CorruptionTable(
        params=parameter_set(benchmark.params, *size),
        source="generated",
        n=len(rows),
        cells={name: {s: found[name, s] for s in benchmark.severities} for name in benchmark.corruptions},
        clean=found[CLEAN],
        when=benchmark.when,
        seed=int(benchmark.seed),
        design=plan.design,
        frost=frost_source(benchmark.frost_textures) if "frost" in benchmark.corruptions else None,
        temperature=temperature,
        standard_error=errors,
        confidence_gap=gaps,
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
        if training:
            model.eval()  # goes through all modules, which takes as long as corrupting a small batch
        try:
            output = model(stats.normalize(images.to(device).float() / 255).to(dtype))
        finally:
            if training:
                model.train()
        return getattr(output, "logits", output)

    return forward


def _batches(
    plan: Plan, images: ByteImages, batch_size: int, rank: int, world: int
) -> Iterator[tuple[Batch, list[Key]]]:
    """Batches of this process's images, each with the cells that it is seen in."""
    if plan.groups is None:
        yield from ((batch, plan.keys) for batch in images.stream(batch_size, rank, world))
        return
    for positions, keys in plan.groups:
        mine = positions[rank::world].tolist()
        for start in range(0, len(mine), batch_size):
            yield images.read(mine[start : start + batch_size]), keys


def _corrupted(
    benchmark: CorruptionBenchmark,
    images: ByteImages,
    originals: list[Tensor],
    sized: Tensor,
    positions: Tensor,
    key: Key,
) -> Tensor:
    """A batch in one cell, as the network gets it, uint8."""
    options = {
        "params": parameter_set(benchmark.params, *sized.shape[2:]),
        "seed": benchmark.seed,
        "frost_textures": benchmark.frost_textures,
    }
    if benchmark.when == "after_resize":
        return corrupt(sized, *key, indices=positions, **options)
    if len({image.shape for image in originals}) == 1:
        return images.sized(list(corrupt(torch.stack(originals), *key, indices=positions, **options)))
    singles = zip(originals, positions.tolist(), strict=True)
    return images.sized([corrupt(image[None], *key, indices=[place], **options)[0] for image, place in singles])
