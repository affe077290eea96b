"""A classifier under all corruptions, in one pass: each batch is read once, corrupted, classified and forgotten."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Subset
from torchvision.transforms.v2.functional import pil_to_tensor
from tqdm.auto import tqdm

from ..calibration.folding import evaluating
from ..calibration.guarantees import set_outcome, share
from ..corruptions.corrupt import check_cell, check_images, corrupt, parameter_set, to_levels
from ..corruptions.weather import frost_source
from ..data.transforms import decode
from ..metrics.ece import calibration_error
from ..metrics.intervals import noise_scores
from ..pixels import PixelStats
from ..randomness import mix_seed
from ..report.report import Cell, CorruptionTable, Guarantees, Interval, Share
from ..report.rows import (
    CORRUPTIONS,
    FAMILIES,
    MEANS,
    NOT_MEASURED,
    SEVERITIES,
    STANDARD_15,
    CorruptionRows,
    SampleRows,
    sample_rows,
)


# ---- Images as bytes ----
# The images of a dataset as the corruptions take them: uint8, red, green and blue, at the network's size.


class ByteImages:
    """
    Reads a dataset in batches of uint8 images.

    Args:
        dataset (sequence): Of `(image, label)` or of dictionaries with `columns`. An image is what PIL or
            `datasets` give, a uint8 tensor `(3, H, W)`, or a float one, normalised with `stats` or in [0, 1].
        columns (`tuple`, *optional*, defaults to `("image", "label")`): Names in a dictionary.
        stats (`PixelStats`, *optional*): How float images were normalised. Undoing it gives the very bytes that the
            image processor normalised, since float32 is far finer than a byte.
        resize (`Callable`, *optional*): Maps one uint8 image `(3, H, W)` to the network's input size, uint8.
    """

    def __init__(
        self,
        dataset: Sequence[Any],
        columns: tuple[str, str] = ("image", "label"),
        stats: PixelStats | None = None,
        resize: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.dataset, self.columns, self.stats, self.resize = dataset, columns, stats, resize

    def __len__(self) -> int:
        return len(self.dataset)

    def labels(self) -> np.ndarray:
        """Of all images. Only a `datasets.Dataset` gives them without reading its images."""
        if isinstance(self.dataset, datasets.Dataset) and self.columns[1] in self.dataset.column_names:
            return np.array(self.dataset[self.columns[1]])
        return np.array([int(self._pair(self.dataset[position])[1]) for position in range(len(self))])

    def read(self, positions: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """The images as they are stored, and their labels."""
        # torch's Subset asks a dataset for all of a batch at once if it can answer that.
        examples = Subset(self.dataset, positions).__getitems__(list(range(len(positions))))
        images, labels = zip(*(self._pair(example) for example in examples), strict=True)
        if all(isinstance(image, Tensor) and image.is_floating_point() for image in images):
            pixels = _stacked(images)
            images = list(_levels(pixels if self.stats is None else self.stats.to_pixels(pixels)))
        else:
            images = [
                _levels(image[None])[0] if isinstance(image, Tensor) else pil_to_tensor(decode(image))
                for image in images
            ]
        return images, torch.tensor([int(label) for label in labels])

    def sized(self, images: Sequence[Tensor]) -> Tensor:
        """A batch at the network's size."""
        return _stacked([self.resize(image) for image in images] if self.resize is not None else images)

    def _pair(self, example: Any) -> tuple[Any, Any]:
        if not isinstance(example, Mapping):
            return tuple(example)
        missing = [name for name in self.columns if name not in example]
        if missing:
            raise ValueError(f"An example has no {missing[0]!r} but {sorted(example)}: name the two with columns.")
        return tuple(example[name] for name in self.columns)


def _levels(images: Tensor) -> Tensor:
    check_images(images)
    return to_levels(images)


def _stacked(images: Sequence[Tensor]) -> Tensor:
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        raise ValueError(f"Images of one batch differ in size ({sorted(shapes)[:3]} ...): pass resize.")
    return torch.stack(list(images))


# ---- Results ----
# What a model did with every image of the benchmark: put down batch by batch, added up at the end.


Key = tuple[str, int]
CLEAN: Key = ("clean", 0)
# Of each image in each cell: 1 if it was seen, 1 if it was right, and the scores without and with a temperature.
PLANES = ("seen", "right", "confidence", "nll", "scaled_confidence", "scaled_nll")
Planes = dict[str, np.ndarray]


def _planes(plain: Tensor, *scaled: Tensor) -> Tensor:
    """`PLANES` of a batch, `(planes, n)`, from its rows without and, if there is one, with the temperature."""
    planes = [torch.ones_like(plain[:, 0]), plain[:, 0] == plain[:, 1]]
    planes += [rows[:, column] for rows in (plain, *scaled) for column in (2, 3)]
    return torch.stack([plane.float() for plane in planes]).cpu()


def _summed(values: Tensor, accelerator: Accelerator | None) -> Tensor:
    """Over all processes, on the CPU."""
    if accelerator is None or accelerator.num_processes == 1:
        return values
    return accelerator.reduce(values.to(accelerator.device), "sum").cpu()


def _results(sums: Tensor, keys: Sequence[Key], index: np.ndarray) -> dict[str, Any]:
    """Fields of a [`CorruptionTable`] from planes `(planes, cells, images)`; `index` has the images' positions."""
    bad = (~sums.isfinite().all(0)).nonzero()
    if len(bad):
        cell, image = bad[0].tolist()
        raise ValueError(f"The logits of image {index[image]} under {keys[cell]} hold NaN or infinity.")
    planes = dict(zip(PLANES, sums.numpy(), strict=False))
    cells = {key: _cell(sums[:, number].numpy()) for number, key in enumerate(keys)}
    # Of a confidence with the temperature, if there is one; above 0 where the model is overconfident.
    gap = planes.get("scaled_confidence", planes["confidence"]).astype(np.float64) - planes["right"]
    right, gap = (np.where(planes["seen"] > 0, values, np.nan) for values in (planes["right"], gap))
    errors = {mean: error for mean, (_, error) in _means(right, keys).items() if mean != "clean"}
    return {
        "n": len(index),
        "clean": cells.pop(CLEAN, None),
        "cells": {name: {key[1]: cell for key, cell in cells.items() if key[0] == name} for name, _ in cells},
        "rows": _rows(planes, keys, index),
        "standard_error": errors,
        "confidence_gap": {
            mean: Interval(value, value - 1.96 * error, value + 1.96 * error)
            for mean, (value, error) in _means(gap, keys).items()
        },
    }


def _cell(sums: np.ndarray) -> Cell:
    """From the planes of one cell, `(planes, images)`."""
    seen, *values = sums
    right, confidence, nll, *scaled = np.stack(values)[:, seen > 0].astype(np.float64)
    scores = {"ece": calibration_error(confidence, right > 0), "noise_floor": float(noise_scores(confidence).mean())}
    if scaled:
        confidence, scaled_nll = scaled
        scores |= {"scaled_nll": float(scaled_nll.mean()), "scaled_ece": calibration_error(confidence, right > 0)}
        scores |= {"scaled_noise_floor": float(noise_scores(confidence).mean())}
    return Cell(int((seen > 0).sum()), float(right.mean()), float(nll.mean()), **scores)


def _rows(planes: Planes, keys: Sequence[Key], index: np.ndarray) -> CorruptionRows:
    """Each image's results, summed over the severities."""
    names = tuple(name for name in CORRUPTIONS if any(key[0] == name for key in keys))
    cells = [[number for number, key in enumerate(keys) if key[0] == name] for name in names]
    sums = {name: np.stack([plane[own].sum(0) for own in cells], axis=-1) for name, plane in planes.items()}
    with np.errstate(invalid="ignore"):
        hits = np.where(sums["seen"] > 0, sums["right"], NOT_MEASURED).astype(np.uint8)
        nll = {name: sums[name] / sums["seen"] for name in ("nll", "scaled_nll") if name in sums}
    return CorruptionRows(index, names, hits, **nll)


def _means(values: np.ndarray, keys: Sequence[Key]) -> dict[str, tuple[float, float]]:
    """Means of what each image has in each cell, NaN where it was not seen, with their standard errors; of the means
    that have all of their cells."""
    means = {"clean": (CLEAN[:1], CLEAN[1:])}
    means |= {mean: (names, SEVERITIES) for mean, names in (MEANS | FAMILIES).items()}
    means |= {f"severity_{severity}": (STANDARD_15, (severity,)) for severity in SEVERITIES}
    found, number = {}, {key: number for number, key in enumerate(keys)}
    for mean, (names, severities) in means.items():
        if number.keys() >= set(product(names, severities)):
            cells = ([number[name, severity] for severity in severities] for name in names)
            images = np.stack([values[own].mean(0) for own in cells], axis=1)
            error = standard_error(images)
            found |= {} if error is None else {mean: (float(np.nanmean(images, axis=0).mean()), error)}
    return found


def standard_error(results: np.ndarray) -> float | None:
    """
    Of the mean over corruptions of their means over images; `None` if a corruption has fewer than two images.

    Args:
        results (`np.ndarray` of shape `(images, corruptions)`): NaN where an image was not seen under a corruption.
            Images are independent of each other; the results of one image are not, and are added up before squaring.
    """
    seen = ~np.isnan(results)
    count = seen.sum(axis=0)
    if count.min() < 2:
        return None
    deviations = np.where(seen, results - np.nansum(results, axis=0) / count, 0.0) / np.sqrt(count * (count - 1.0))
    return float((deviations.mean(axis=1) ** 2).sum() ** 0.5)


# ---- Guarantees ----
# What becomes of a model's guarantees on corrupted images: they are made for clean ones, and fail on others.


class GuaranteeCounts:
    """Counts, batch by batch, how many corrupted images each prediction set covers and how many answers are right."""

    def __init__(self, guarantees: Guarantees) -> None:
        self.guarantees = guarantees
        self.sets = len(guarantees.prediction_sets)
        self.thresholds = torch.tensor([p.threshold for p in guarantees.abstentions if p.threshold is not None])
        # By corruption and severity: seen, covered by each set, answered at each threshold, and of these right.
        columns = 1 + self.sets + 2 * len(self.thresholds)
        self.sums = torch.zeros(len(CORRUPTIONS), len(SEVERITIES), columns, dtype=torch.float64)

    def update(self, key: Key, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch of one cell; the logits are without temperature."""
        if key == CLEAN:
            return
        logits = logits.float() / self.guarantees.temperature
        covered = set_outcome(logits, labels, self.guarantees)[:, : self.sets]
        confidence, prediction = logits.softmax(1).max(1)
        answered = (confidence[:, None] >= self.thresholds.to(logits.device)).float()
        right = (prediction == labels.to(logits.device)).float()[:, None]
        columns = torch.cat([torch.ones_like(right), covered, answered, answered * right], dim=1)
        self.sums[CORRUPTIONS.index(key[0]), SEVERITIES.index(key[1])] += columns.sum(0).cpu()

    def totals(self, table: CorruptionTable, accelerator: Accelerator | None = None) -> Guarantees:
        """
        The guarantees with the outcome by severity, over the standard 15 corruptions of the table of the same pass (or
        all there are, if some of them are missing).
        """
        names = STANDARD_15 if set(STANDARD_15) <= table.cells.keys() else tuple(table.cells)
        sums = _summed(self.sums, accelerator)[[CORRUPTIONS.index(name) for name in names]].sum(0)
        views = len(names) if table.design == "crossed" else 1  # of each image, at each severity
        sizes = [1, self.sets, len(self.thresholds), len(self.thresholds)]
        [seen], covered, answered, right = (part.T.tolist() for part in sums.split(sizes, dim=1))

        def shares(hits: list[float], of: list[float]) -> dict[int, Share]:
            counts = {s: (k, n, max(1, round(n / views))) for s, k, n in zip(SEVERITIES, hits, of, strict=True) if n}
            return {severity: share(k / n * images, images) for severity, (k, n, images) in counts.items()}

        sets = [
            dataclasses.replace(part, severity_coverage=shares(hits, seen))
            for part, hits in zip(self.guarantees.prediction_sets, covered, strict=True)
        ]
        outcomes = (shares(*counts) for counts in zip(right, answered, strict=True))
        abstentions = [
            part if part.threshold is None else dataclasses.replace(part, severity_accuracy=next(outcomes))
            for part in self.guarantees.abstentions
        ]
        return dataclasses.replace(self.guarantees, prediction_sets=tuple(sets), abstentions=tuple(abstentions))


# ---- Which images under which corruptions ----
# The results of one image under 19 corruptions are so alike that 500 images with 9,500 results are worth hardly more
# than 500 independent results. In the spread design the corruptions have images of their own, so that the mean over
# corruptions has the variance `sum over c of variance[c] / n[c] / 19^2`.


Design = Literal["crossed", "spread"]
SPREAD_FROM = 1900  # images: 100 for each of the 19 corruptions


def default_design(n: int) -> Design:
    """`"spread"` if `n` images give each of the 19 corruptions 100 or more of its own, else `"crossed"`."""
    return "spread" if n >= SPREAD_FROM else "crossed"


def spread_assignment(labels: Sequence[int] | np.ndarray, corruptions: int, seed: int = 0) -> np.ndarray:
    """
    The number of the corruption, from 0, that each image is seen under in the spread design.

    A random order of the images of each class is dealt out to a random order of the corruptions, and the next class
    goes on where the last one stopped. So every image is equally likely to get each corruption, and the corruptions
    have the same number of images, of each class and in all, give or take one.
    """
    labels = torch.as_tensor(np.asarray(labels, dtype=np.int64))
    generator = torch.Generator().manual_seed(mix_seed(seed % 2**64, corruptions))
    shuffled = torch.randperm(len(labels), generator=generator)
    dealt = shuffled[labels[shuffled].argsort(stable=True)]
    order = torch.randperm(corruptions, generator=generator)
    assigned = torch.empty(len(labels), dtype=torch.int64)
    assigned[dealt] = order[torch.arange(len(labels)) % corruptions]
    return assigned.numpy()


def subset(count: int, samples: int | None, seed: int) -> list[int]:
    """The positions of a fixed random subset, in order; all of them if `samples` is `None` or larger."""
    if samples is not None and samples < 1:
        raise ValueError(f"samples={samples} must be at least 1, or None for all.")
    if samples is None or samples >= count:
        return list(range(count))
    generator = torch.Generator().manual_seed(int(seed))
    return torch.randperm(count, generator=generator)[:samples].sort().values.tolist()


# ---- One pass ----


Forward = Callable[[Tensor], Tensor]


def evaluate_corruptions(
    forward: Forward,
    dataset: Sequence[Any] | ByteImages,
    *,
    params: Literal["auto", "cifar", "imagenet"] = "auto",
    seed: int = 0,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    samples: int | None = None,
    design: Literal["auto", "crossed", "spread"] = "auto",
    when: Literal["after_resize", "before_resize"] = "after_resize",
    frost_textures: str | Path | None = None,
    temperature: float | None = None,
    clean_rows: Sequence[SampleRows] | None = None,
    guarantee_counts: GuaranteeCounts | None = None,
    batch_size: int = 128,
    accelerator: Accelerator | None = None,
    progress: bool | Callable[..., Any] = True,
) -> CorruptionTable:
    """
    Accuracy, NLL and ECE under every corruption and severity, and on the clean images.

    Args:
        forward (`Callable`): Maps uint8 images `(B, 3, H, W)` to logits `(B, classes)`; see `forward_of`.
        dataset (sequence or [`ByteImages`]): Of `(image, label)`, or of dictionaries with `image` and `label`; images
            that are not yet at the network's size, are normalised or have other names come as [`ByteImages`].
        params (`str`, *optional*, defaults to `"auto"`): Parameter set, see `corrupt`; `"auto"` goes by the size that
            the network sees, and the table names the set that was taken.
        seed (`int`, *optional*, defaults to 0): Seed of the corruptions, of the subset and of the spread design.
        corruptions, severities (sequences, *optional*): What to measure, by default all 19 x 5.
        samples (`int`, *optional*): At most this many images, a fixed random subset; all, if not given.
        design (`str`, *optional*, defaults to `"auto"`):
            - `"crossed"`: every image under every corruption, 96 forward passes per image.
            - `"spread"`: every image under one corruption, drawn at random and balanced over the classes, 6 forward
              passes per image. For the same passes it sees 16 times as many images, and its means are far more
              certain, as images differ more than corruptions of one image do.
            - `"auto"`: spread from 1,900 images on, crossed below, see [`default_design`].
        when (`str`, *optional*, defaults to `"after_resize"`): Corrupt images as the network receives them, so that
            severities mean the same for every dataset, and CIFAR-10-C is this at 32 pixels. With `"before_resize"`
            the original image is corrupted and then resized, which weakens noise and fine blur where it is shrunk.
        frost_textures (`str` or `Path`, *optional*): See `frost_source`.
        temperature (`float`, *optional*): Fitted on clean data; adds the scores of the scaled logits.
        clean_rows (sequence of `SampleRows`, *optional*): What the model does with all of the clean images, without
            and, if there is one, with the temperature. Saves the forward pass on them, and looking up their labels.
        guarantee_counts ([`GuaranteeCounts`], *optional*): Collects what becomes of a model's guarantees.
        batch_size (`int`, *optional*, defaults to 128): Images per forward pass.
        accelerator (`Accelerator`, *optional*): Shares the images out over its processes and adds up the results;
            images are corrupted on its device.
        progress (`bool` or `Callable`, *optional*, defaults to `True`): Whether to show a progress bar, on the main
            process; or what makes one, with the arguments of tqdm.

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
    for name, severity in product(corruptions, severities):
        check_cell(name, severity, params)
    choices = {"design": ("auto", "crossed", "spread"), "when": ("after_resize", "before_resize")}
    for field, value in (("design", design), ("when", when)):
        if value not in (known := choices[field]):
            raise ValueError(f"{field}={value!r} is none of {', '.join(map(repr, known))}.")
    images = dataset if isinstance(dataset, ByteImages) else ByteImages(dataset)
    if when == "before_resize" and images.resize is None:
        raise ValueError(
            "when='before_resize' needs ByteImages with resize, which brings a corrupted image to the network's size."
        )
    index = np.array(subset(len(images), samples, seed), np.int64)
    if not len(index):
        raise ValueError("The dataset is empty: there is nothing to evaluate.")
    design = default_design(len(index)) if design == "auto" else design
    keys = [CLEAN, *product(corruptions, severities)]
    groups = [(index, keys)]  # of images, with the cells that they are seen in
    if design == "spread":
        if len(index) < 2 * len(corruptions):
            raise ValueError(
                f"design='spread' needs at least two images for each of the {len(corruptions)} corruptions, but there "
                f"are {len(index)} in all: use design='crossed'."
            )
        labels = images.labels() if clean_rows is None else clean_rows[0].label
        assigned = spread_assignment(labels[index], len(corruptions), seed)
        cells = [[CLEAN, *product([name], severities)] for name in corruptions]
        groups = [(index[assigned == number], own) for number, own in enumerate(cells)]
    sums = torch.zeros(4 if temperature is None else 6, len(keys), len(index))
    rank, world = (accelerator.process_index, accelerator.num_processes) if accelerator is not None else (0, 1)
    if clean_rows is not None:
        groups = [(positions, own[1:]) for positions, own in groups]
        if rank == 0:  # all processes have all of them
            used = clean_rows[: 1 if temperature is None else 2]
            columns = ([rows.label, rows.prediction, rows.confidence, rows.nll] for rows in used)
            sums[:, 0] = _planes(*(torch.from_numpy(np.stack(part, axis=1)[index]) for part in columns))

    def corrupted(originals: list[Tensor], sized: Tensor, positions: Tensor, key: Key) -> Tensor:
        """A batch in one cell, as the network gets it, uint8."""
        options = {"seed": seed, "frost_textures": frost_textures, "params": parameter_set(params, *sized.shape[2:])}
        if when == "after_resize":
            return corrupt(sized, *key, indices=positions, **options)
        if len({image.shape for image in originals}) == 1:
            return images.sized(list(corrupt(torch.stack(originals), *key, indices=positions, **options)))
        singles = zip(originals, positions.tolist(), strict=True)
        return images.sized([corrupt(image[None], *key, indices=[place], **options)[0] for image, place in singles])

    size = torch.zeros(2, dtype=torch.int64)
    mine = [(positions[rank::world], own) for positions, own in groups]
    batches = [(part[i : i + batch_size], own) for part, own in mine for i in range(0, len(part), batch_size)]
    make_bar = partial(tqdm, disable=not progress or rank > 0) if isinstance(progress, bool) else progress
    with make_bar(total=sum(len(own) for _, own in batches), unit="cell", desc="corruptions") as bar:
        for part, own in batches:
            originals, labels = images.read(part.tolist())
            if accelerator is not None:
                originals = [image.to(accelerator.device) for image in originals]
            sized, positions, places = images.sized(originals), torch.from_numpy(part), np.searchsorted(index, part)
            size = torch.tensor(sized.shape[2:])
            for key in own:
                bar.set_postfix_str(" ".join(map(str, key)), refresh=False)
                logits = forward(sized if key == CLEAN else corrupted(originals, sized, positions, key))
                scaled = [] if temperature is None else [sample_rows(logits.float() / temperature, labels)]
                sums[:, keys.index(key), places] = _planes(sample_rows(logits, labels), *scaled)
                if guarantee_counts is not None:
                    guarantee_counts.update(key, logits, labels)
                bar.update()
    # The first process has images in any case, and the table is the same on all of them.
    size = tuple(_summed(size if rank == 0 else torch.zeros_like(size), accelerator).tolist())
    return CorruptionTable(
        params=parameter_set(params, *size),
        source="generated",
        when=when,
        seed=int(seed),
        design=design,
        frost=frost_source(frost_textures) if "frost" in corruptions else None,
        temperature=temperature,
        size=size,
        **_results(_summed(sums, accelerator), keys, index),
    )


def forward_of(model: nn.Module, stats: PixelStats) -> Forward:
    """
    A function from uint8 images to logits.

    Args:
        model (`nn.Module`): Takes normalised images, as `pixel_values`; returns logits or something with `.logits`.
        stats (`PixelStats`): With what to normalise them.
    """
    parameter = next(model.parameters())
    device, dtype = parameter.device, parameter.dtype

    @torch.inference_mode()
    def forward(images: Tensor) -> Tensor:
        # Going through all modules takes as long as corrupting a small batch.
        with evaluating(model) if model.training else nullcontext():
            output = model(stats.normalize(images.to(device).float() / 255).to(dtype))
        return getattr(output, "logits", output)

    return forward
