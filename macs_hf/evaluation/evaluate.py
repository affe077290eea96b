"""A classifier and labelled images that it was not trained on -> one `EvaluationReport`, and a row per image."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

import datasets
import numpy as np
import torch
from accelerate import Accelerator
from scipy.special import expit
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from tqdm.auto import tqdm
from transformers import default_data_collator
from transformers.utils import logging

from ..calibration.folding import calibration_record, folded_temperature
from ..calibration.guarantees import MIN_HELD_OUT, calibrate_logits, guaranteed_levels, set_outcome, with_test_outcome
from ..calibration.temperature import calibration_error_rise, temperature_helped
from ..data.images import CACHE_BYTES, ImageDataset, find_leakage
from ..data.preparing import OodImages, aligned_images, load_data
from ..data.sources import DatasetSource, renamed_classes
from ..data.transforms import EvalTransform, input_size
from ..metrics import confusion_matrix, detection, group_measures, measure, risk_coverage, wilson
from ..metrics.group_scores import MAX_GROUPS
from ..models.loading import check_single_label, load_pretrained, model_id, resized_processor
from ..objective.losses import checked_labels
from ..objective.supervision import logits_of
from ..pixels import PixelStats
from ..randomness import global_rng_preserved
from ..report.report import (
    Answered,
    CorruptionTable,
    Detection,
    EvaluationReport,
    Guarantees,
    Interval,
    MarginAnalysis,
    OutOfDistribution,
    ScoreName,
    SizeTrial,
)
from ..report.rows import CORRUPTIONS, SEVERITIES, SampleRows, sample_rows
from ..report.run_folder import REPORT_FILE, public_name
from ..sharding import full_precision, gathered_weights, sharded_modules, share_statistics
from .corruption_benchmark import ByteImages, GuaranteeCounts, evaluate_corruptions, forward_of, subset
from .margins import analyze_margins


logger = logging.get_logger(__name__)


# ---- A model that can be measured ----


# From logits and labels of a batch to what is kept of each image: named columns of shape `(n,)` or `(n, k)`.
Columns = Callable[[Tensor, Tensor | None], dict[str, Tensor]]
# What shows how far it is: from a label and the number of things to a bar, with `update` and `set_postfix_str`.
Progress = Callable[[str, int | None], AbstractContextManager[Any]]


def tqdm_bar(label: str, total: int | None, *, disable: bool = False) -> tqdm:
    return tqdm(desc=label, total=total, disable=disable)


def takes_pixel_values(model: nn.Module) -> bool:
    """Whether a model is given its images by name; others get them as their first argument."""
    parameters = inspect.signature(model.forward).parameters.values()
    return any(p.name == "pixel_values" or p.kind == p.VAR_KEYWORD for p in parameters)


class Predictions(NamedTuple):
    """What was kept of each image, how many logits an image has, and height and width of the images."""

    columns: dict[str, np.ndarray]
    classes: int
    image_size: tuple[int, int]


@dataclass
class MeasuredModel:
    """
    A classifier with all that is needed to run it over a dataset, on as many processes as there are.

    Args:
        model (`nn.Module`): Takes normalised images; returns logits or something with `.logits`.
        processor (`Any`, *optional*): Its image processor.
        pixel_stats ([`PixelStats`], *optional*): How images were normalised; corruptions need it.
        accelerator (`Accelerator`, *optional*): The processes and their devices.
        batch_size (`int`, *optional*, defaults to 64): Images in a forward pass of one process.
        collate_fn (`Callable`, *optional*): Makes a batch of `pixel_values` and `labels` from examples.
        num_workers (`int`, *optional*, defaults to 0): Processes that read the images of a dataset with a length.
        prepared (`Callable`, *optional*): A context in which the model has the weights to be measured.
        progress (`Callable`, *optional*): Makes a bar, `f(label, total)`; by default one of tqdm.
        on_images (`Callable`, *optional*): Called with the images of each batch.
        train_dataset (`Dataset`, *optional*): What it was trained on: refused to calibrate on, and looked for in test.
        chosen_by_validation (`bool`, *optional*, defaults to `False`): Whether the held-out images chose the weights,
            which makes guarantees from them approximate.
        recorded (`dict`, *optional*): Training arguments that the report shall have.
    """

    model: nn.Module
    processor: Any = None
    pixel_stats: PixelStats | None = None
    accelerator: Accelerator = field(default_factory=Accelerator)
    batch_size: int = 64
    collate_fn: Callable[[list[Any]], Mapping[str, Any]] = default_data_collator
    num_workers: int = 0
    prepared: Callable[[], AbstractContextManager] = nullcontext
    progress: Progress | None = None
    on_images: Callable[[Tensor], None] | None = None
    train_dataset: Any = None
    chosen_by_validation: bool = False
    recorded: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.progress is None:
            is_other = not self.accelerator.is_main_process
            self.progress = lambda label, total: tqdm_bar(label, total, disable=is_other)

    @property
    def config(self) -> Any:
        """The model's config; `None` for a module that has none."""
        return getattr(self.model, "config", None)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Inside, each process has the whole model, on its device and in full precision, and runs it on its own."""
        if not sharded_modules(self.model) and next(self.model.parameters()).device != self.accelerator.device:
            # FSDP2 places a model when it divides it, and so when it is trained.
            self.model.to(self.accelerator.device)
        with global_rng_preserved(), self.prepared(), full_precision(self.model), gathered_weights(self.model):
            share_statistics(self.model)
            self.model.eval()
            yield

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images to logits, at least float32."""
        images = images.to(self.accelerator.device)
        output = self.model(pixel_values=images) if takes_pixel_values(self.model) else self.model(images)
        return logits_of(output).float()  # a bfloat16 checkpoint gives bfloat16

    @torch.no_grad()
    def run(self, dataset: Any, columns: Columns, label: str, *, labelled: bool = True) -> Predictions:
        """
        Run the model over a dataset once.

        Args:
            dataset (`Dataset`): Of `pixel_values` and `labels`; with a length, or a stream.
            columns (`Callable`): Reduces each batch on its device, so that no process ever holds all logits.
            label (`str`): What is being done, for the bar.
            labelled (`bool`, *optional*, defaults to `True`): `False` gives `columns` no labels.

        Returns:
            [`Predictions`]: One row per sample in the order of the dataset, the same on every process.
        """
        parts, size = [], None if _is_stream(dataset) else len(dataset)
        with self.ready(), self.progress(label, size) as bar:
            for numbers, batch in self._batches(dataset):
                for name in ("pixel_values", "labels")[: 1 + labelled]:
                    if name not in batch:
                        raise ValueError(f"A batch must have `{name}`, but the dataset gives {sorted(batch)}.")
                images, labels = batch["pixel_values"], None
                if self.on_images is not None:
                    self.on_images(images)
                logits = self.forward(images)
                if labelled:
                    labels = checked_labels(batch["labels"], logits.shape[-1]).to(logits.device)
                part = {"number": numbers.to(logits.device), "is_finite": logits.isfinite().all(1)}
                part |= columns(logits, labels)
                parts.append(self.accelerator.gather(part))
                bar.update(len(parts[-1]["number"]))
        if not parts:
            raise ValueError("The dataset is empty: there is nothing to measure.")
        found = {name: torch.cat([part[name] for part in parts]).cpu().numpy() for name in parts[0]}
        numbers, rows = np.unique(found.pop("number"), return_index=True)  # without those that fill up a batch
        if len(numbers) != (numbers[-1] + 1 if size is None else size):
            raise RuntimeError(f"{len(numbers)} of {size or numbers[-1] + 1} samples were measured.")
        found = {name: values[rows] for name, values in found.items()}
        if not (is_finite := found.pop("is_finite")).all():
            raise ValueError(
                f"The logits of image {is_finite.argmin()} hold NaN or infinity: are the weights damaged?"
            )
        return Predictions(found, logits.shape[-1], tuple(images.shape[-2:]))

    def logits(self, dataset: Any, label: str = "predicting") -> tuple[np.ndarray, np.ndarray]:
        """Logits and labels of samples that did not train the model."""
        if was_trained_on(dataset, self.train_dataset):
            raise ValueError(
                "A temperature was to be fitted on the training set, where the model is more confident than anywhere "
                "else. Pass a validation split that was held out."
            )
        found = self.run(dataset, lambda logits, labels: {"logits": logits, "labels": labels}, label).columns
        return found["logits"], found["labels"]

    def rows(self, dataset: Any) -> SampleRows:
        """One row per sample: label, prediction, confidence, nll, brier score and margin."""
        found = self.run(dataset, lambda logits, labels: {"rows": sample_rows(logits, labels)}, "predicting")
        return SampleRows.from_array(found.columns["rows"])

    def _batches(self, dataset: Any) -> Iterator[tuple[Tensor, Mapping[str, Any]]]:
        """
        The numbers and contents of this process's batches. All processes have equally many, of equal size, since
        weights that are divided are gathered by all: some samples come twice.
        """
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        if not _is_stream(dataset):
            mine = (torch.arange(-(-len(dataset) // world) * world) % max(len(dataset), 1))[rank::world]
            options = {"collate_fn": self.collate_fn, "num_workers": self.num_workers}
            loader = DataLoader(Subset(dataset, mine.tolist()), self.batch_size, **options)
            yield from zip(mine.split(self.batch_size), loader, strict=True)
            return
        numbered = enumerate(dataset)
        while chunk := list(islice(numbered, self.batch_size * world)):
            chunk += chunk[:1] * (-len(chunk) % world)
            numbers, examples = zip(*chunk[rank::world], strict=True)
            yield torch.tensor(numbers), self.collate_fn(list(examples))


def _is_stream(dataset: Any) -> bool:
    """Whether samples can only be read in order."""
    return isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized)


def was_trained_on(dataset: Any, train_dataset: Any) -> bool:
    """Whether all of `dataset` is in the training set, as far as datasets say which data they hold."""
    fingerprint = getattr(dataset, "_fingerprint", None)  # of `datasets.Dataset`; other datasets may have one too
    same = fingerprint is not None and fingerprint == getattr(train_dataset, "_fingerprint", None)
    own, known = (set(getattr(each, "hashes", {}).values()) for each in (dataset, train_dataset))  # of ImageDataset
    return train_dataset is not None and (dataset is train_dataset or same or bool(own and own <= known))


# ---- The report of a checkpoint ----


PACKAGES = ("macs-hf", "torch", "torchvision", "transformers", "accelerate", "datasets", "timm")
SMALLEST_CORRUPTED = 32
SIZE_TRIAL_IMAGES = 200
LITTLE_LEARNED = 0.1  # of the way from chance to always right: with less, other sizes are tried
FAR_BETTER = 0.1  # of accuracy, on top of both intervals
SMALL_SIZES = (32, 48, 64, 96, 128)
# Fields of the report that a caller may state; the others are measured.
STATED = ("model", "dataset", "split", "model_revision", "dataset_revision", "dataset_config", "training_arguments")
STATED += ("data_arguments", "command", "seeds", "checksums")


def evaluate_checkpoint(
    trainer: Any,
    test: Dataset,
    calibration: Dataset | None = None,
    *,
    corruptions: str | None = None,
    corruption_samples: int | None = None,
    corruption_design: str = "auto",
    margin_samples: int = 256,
    ood: OodImages | None = None,
    force_temperature: bool = False,
    **metadata: Any,
) -> tuple[EvaluationReport, list[SampleRows]]:
    """
    Measure a model on `test`, before and after a temperature fitted on `calibration`. The model itself is not changed.

    Args:
        trainer ([`MaCSTrainer`] or [`MeasuredModel`]): Holds the model and runs it, on as many processes as there are.
        test, calibration (`Dataset`): Of `pixel_values` and `labels`. Without `calibration` no temperature is fitted;
            from 400 samples on, half of them fit it, and the others make guarantees.
        corruptions (`str`, *optional*): Parameter set of the corruption benchmark, `auto`, `cifar` or `imagenet`.
        corruption_samples (`int`, *optional*): A fixed subset of `test` for it; all, if not given.
        corruption_design (`str`, *optional*, defaults to `"auto"`): See [`evaluate_corruptions`].
        margin_samples (`int`, *optional*, defaults to 256): A fixed subset of `test` for margins and sensitivity.
        ood ([`OodImages`], *optional*): Images of none of the model's classes, to see how it reacts to them.
        force_temperature (`bool`, *optional*, defaults to `False`): Use the temperature that fits best even where it
            does not help beyond chance on `calibration`.
        metadata: The other fields of the report. `model`, `dataset` and `split` are taken from the model's config and
            from `test` if they are not given.

    Returns:
        The report, and the rows of the test samples: of the model and, with `calibration`, of the model with its
        temperature.
    """
    if unknown := sorted(metadata.keys() - set(STATED)):
        raise TypeError(f"evaluate_checkpoint has no argument {unknown[0]!r}; fields to state are {sorted(STATED)}.")
    measured = trainer if isinstance(trainer, MeasuredModel) else trainer.measured_model()
    metadata = _default_metadata(measured, test) | metadata
    if measured.recorded:
        metadata["training_arguments"] = metadata.get("training_arguments", {}) | measured.recorded

    temperature = guarantees = None
    if calibration is not None:
        if was_trained_on(calibration, test):
            raise ValueError("The images to calibrate on are the test images, which then show nothing. Pass others.")
        label = "fitting the temperature"
        if isinstance(calibration, Sized):
            label += " and guarantees" if len(calibration) >= MIN_HELD_OUT else ""
            label += f" on {len(calibration):,} images"
        held_out, exact = measured.logits(calibration, label), not measured.chosen_by_validation
        temperature, guarantees = calibrate_logits(*held_out, exact=exact, force_temperature=force_temperature)
    rows, seen = _predict_test(measured, test, guarantees, ood=ood is not None)
    if temperature is not None:
        temperature = dataclasses.replace(temperature, calibration_split=_split_of(calibration))
        if len(rows[0]) > 1:
            gain, rise = temperature_helped(*rows), calibration_error_rise(*rows)
            temperature = dataclasses.replace(temperature, nll_gain=gain, ece_rise=rise)
    published, names, coverage = rows[-1], class_names(measured.model, seen.classes), {}
    if guarantees is not None and guarantees.prediction_sets:
        sets = seen.columns["sets"]
        guarantees = with_test_outcome(guarantees, published, sets, seen.classes)
        guarantees = dataclasses.replace(guarantees, class_names=names)
        if (shown := guarantees.shown_set) is not None:
            covered = sets[:, guarantees.prediction_sets.index(shown)] > 0
            coverage = {"covered": covered, "guaranteed_coverage": shown.coverage}
    with measured.progress("computing intervals", None):
        measurements = list(map(measure, rows))
    table = None
    if corruptions is not None:
        counts = None if guarantees is None else GuaranteeCounts(guarantees)
        table = measure_corruptions(
            measured,
            test,
            params=corruptions,
            samples=corruption_samples,
            design=corruption_design,
            temperature=None if temperature is None else temperature.value,
            clean_rows=rows,
            guarantee_counts=counts,
        )
        if counts is not None:
            guarantees = counts.totals(table, measured.accelerator)
    by_class = seen.classes <= MAX_GROUPS  # with more, there are no tables of them; the rows hold all that they say
    by_group = None
    if published.group is not None:
        by_group = group_measures(published, published.group, column=test.group_column, **coverage)
    report = EvaluationReport(
        n=len(published),
        before=measurements[0],
        after=None if temperature is None else measurements[1],
        temperature=temperature,
        corruptions=table,
        margins=_margins(measured, test, margin_samples),
        guarantees=guarantees,
        risk_coverage=risk_coverage(published) if len(published) > 1 else None,
        leakage=find_leakage({"train": measured.train_dataset, "validation": calibration, "test": test}),
        classes=group_measures(published, names=names, **coverage) if by_class else None,
        confusion=confusion_matrix(published, seen.classes, names=names) if by_class else None,
        groups=by_group,
        ood=None if ood is None else _measure_ood(measured, ood, seen.columns, test, guarantees),
        renamed_classes=_renamed_classes(measured, test),
        image_size=seen.image_size,
        versions={package: version(package) for package in PACKAGES},
        **metadata,
    )
    chance = report.chance_level
    if chance is not None and report.published.metrics["accuracy"].low < chance + LITTLE_LEARNED * (1 - chance):
        report = dataclasses.replace(report, better_size=_better_size(measured, test, published))
    return report, rows


def default_corruptions(processor: Any) -> str | None:
    """The parameter set that fits a model's input size: `cifar` up to 64 pixels, `imagenet` above; none below 32."""
    size = min(input_size(processor))
    if size < SMALLEST_CORRUPTED:
        logger.warning(f"No corruption benchmark: the network takes {size} pixels, fewer than {SMALLEST_CORRUPTED}.")
        return None
    return "cifar" if size <= 64 else "imagenet"


def _better_size(measured: MeasuredModel, test: Dataset, found: SampleRows) -> SizeTrial | None:
    """
    The input size at which a model that is hardly above chance may have been trained, tried on a part of the test
    images; `None` if none is far better, or the trainer that trained it measures it, who knows its size.
    """
    if measured.train_dataset is not None or measured.processor is None or not isinstance(test, ImageDataset):
        return None
    # What config and report of the model say, half of the size, and usual sizes of small images.
    now, stated = min(input_size(measured.processor)), [getattr(measured.config, "image_size", None)]
    path = Path(str(getattr(measured.config, "name_or_path", "")), REPORT_FILE)
    if path.is_file():
        stated += EvaluationReport.load(path).image_size or ()
    sizes = [size for size in stated if isinstance(size, int)] + [size for size in SMALL_SIZES if size < now]
    part, trials = test.rows.select(subset(len(test), SIZE_TRIAL_IMAGES, seed=0)), []
    for size in sorted({*sizes, now // 2} - {now, 0}):
        try:
            transform = EvalTransform(resized_processor(measured.processor, size))
            images = ImageDataset(part, test.image_column, test.label_column, transform, test.split, cache_bytes=0)
            right = measured.rows(images).correct
        except (ValueError, RuntimeError):  # strides leave nothing of it, or patches do not divide it
            continue
        trials.append((int(right.sum()), size))
    hits, size = max(trials, default=(0, 0))
    _, by_chance = wilson(int(found.correct.sum()), len(found))
    # One of several sizes that were tried: it has to be clear.
    if not hits or wilson(hits, len(part), level=0.999)[0] <= by_chance + FAR_BETTER:
        return None
    return SizeTrial(size, len(part), hits / len(part))


def measure_corruptions(measured: MeasuredModel, test: Dataset, **benchmark: Any) -> CorruptionTable:
    """A model under corruption; `benchmark` are other arguments of [`evaluate_corruptions`]."""
    if measured.pixel_stats is None:
        raise ValueError(
            "Corruptions act on pixels, but how images are normalised is not known: give the trainer the image "
            "processor (processing_class) or pixel_stats=PixelStats(mean, std)."
        )
    number = min(len(test), benchmark["samples"] or len(test))
    label = f"{len(CORRUPTIONS)} corruptions x {len(SEVERITIES)} on {number:,} images"
    with measured.ready():
        return evaluate_corruptions(
            forward_of(measured.model, measured.pixel_stats),
            ByteImages(test, ("pixel_values", "labels"), measured.pixel_stats),
            batch_size=measured.batch_size,
            accelerator=measured.accelerator,
            progress=lambda total, **_: measured.progress(label, total),
            **benchmark,
        )


def _margins(measured: MeasuredModel, test: Dataset, samples: int) -> MarginAnalysis:
    part = Subset(test, subset(len(test), samples, seed=0))  # the first ones may all be of one class
    loader = DataLoader(part, batch_size=measured.batch_size, collate_fn=measured.collate_fn)
    with measured.ready(), measured.progress(f"margins of {len(part):,} images", len(part)) as bar:

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for batch in loader:
                yield batch["pixel_values"].to(measured.accelerator.device), batch["labels"]
                bar.update(len(batch["labels"]))

        return analyze_margins(measured.forward, batches())


# ---- Test predictions ----


def _predict_test(
    measured: MeasuredModel, test: Dataset, guarantees: Guarantees | None, ood: bool
) -> tuple[list[SampleRows], Predictions]:
    """
    One pass over the test images: their rows without and, if there are guarantees, with their temperature; and, beside
    these, `sets`, the [`set_outcome`], and for `ood` the [`ood_scores`] that unknown images are compared with.

    Thresholds come from held-out data, so each batch of logits is reduced on its device and no process holds all.
    """
    temperature = None if guarantees is None else guarantees.temperature

    def columns(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        found = {"rows": sample_rows(logits, labels)}
        if guarantees is not None:
            found["calibrated_rows"] = sample_rows(logits / temperature, labels)
            found["sets"] = set_outcome(logits / temperature, labels, guarantees)
        return found | (ood_scores(logits, temperature) if ood else {})

    seen = measured.run(test, columns, f"testing on {len(test):,} images")
    origin = {}
    if isinstance(test, ImageDataset):
        origin = {"name": test.file_names(), "index": test.index, "group": test.groups}
    found = [seen.columns[name] for name in ("rows", "calibrated_rows") if name in seen.columns]
    rows = [dataclasses.replace(SampleRows.from_array(array), **origin) for array in found]
    return rows, seen


# ---- Images of no class ----
# How a model reacts to images that belong to none of its classes.


CALIBRATED = "calibrated_"


def ood_scores(logits: Tensor, temperature: float | None) -> dict[str, Tensor]:
    """
    Scores that are high for known images: without a temperature and, if there is one, with it.

    The maximum probability p is given as log(p / (1 - p)), which has the same order and does not round to 1. The
    maximum logit has the same order at any temperature.
    """
    top, place = logits.max(dim=1)
    others = logits.scatter(1, place[:, None], -torch.inf).logsumexp(dim=1)
    found = {"max_probability": top - others, "max_logit": top, "energy": logits.logsumexp(dim=1)}
    if temperature is None:
        return found
    scaled = ood_scores(logits / temperature, None)
    return found | {f"{CALIBRATED}{name}": score for name, score in scaled.items()}


def _measure_ood(
    measured: MeasuredModel,
    unknown: OodImages,
    known: Mapping[str, np.ndarray],
    test: Dataset,
    guarantees: Guarantees | None,
) -> OutOfDistribution:
    """Compare unknown images with the scores of test images; exact copies of these among them are counted."""
    temperature = None if guarantees is None else guarantees.temperature
    label = f"unknown images, {len(unknown.images):,} of them"
    found = measured.run(unknown.images, lambda z, _: ood_scores(z, temperature), label, labelled=False).columns

    def detections(prefix: str) -> tuple[Detection, ...]:
        sides = (known, found)
        return tuple(detection(*(side[prefix + name] for side in sides), name) for name in get_args(ScoreName))

    def share(accepted: np.ndarray) -> Interval:
        number, n = int(accepted.sum()), len(accepted)
        return Interval(number / n, *wilson(number, n))

    if guarantees is None:  # the model may have come with thresholds
        prefix, stored = "", getattr(calibration_record(measured.model), "abstention_thresholds", None)
        thresholds = guaranteed_levels(stored or {})
    else:
        prefix = CALIBRATED
        thresholds = {p.accuracy: p.threshold for p in guarantees.abstentions if p.threshold is not None}
    of_known, of_unknown = (expit(side[f"{prefix}max_probability"].astype(float)) for side in (known, found))
    hashes = test.hashes if isinstance(test, ImageDataset) else {}
    return OutOfDistribution(
        dataset=public_name(unknown.dataset),
        split=unknown.split,
        n=len(unknown.images),
        total=unknown.total,
        confidence=float(of_unknown.mean()),
        known_confidence=float(of_known.mean()),
        before=detections(""),
        after=None if guarantees is None else detections(CALIBRATED),
        answered=tuple(
            Answered(accuracy, threshold, share(of_unknown >= threshold), share(of_known >= threshold))
            for accuracy, threshold in thresholds.items()
        ),
        left_out=unknown.left_out,
        copies=len(set(unknown.images.hashes.values()) & set(hashes.values())),
    )


# ---- Names ----


def _default_metadata(measured: MeasuredModel, test: Dataset) -> dict[str, str]:
    """`model`, `dataset` and `split` of a report, where the caller does not say."""
    model = getattr(measured.config, "name_or_path", None) or type(measured.model).__name__
    rows = test.rows if isinstance(test, ImageDataset) else test
    dataset = rows.info.dataset_name if isinstance(rows, datasets.Dataset) else None
    found = {"model": public_name(model), "dataset": dataset or type(test).__name__}
    return found | {"split": _split_of(test) or "test"}


def _split_of(dataset: Dataset) -> str | None:
    """The name of the split, which the datasets of this package and of `datasets` have."""
    split = getattr(dataset, "split", None)
    return None if split is None else str(split)


def class_names(model: nn.Module, classes: int) -> tuple[str, ...]:
    """What the model's config calls the classes; their numbers where it does not say."""
    named = getattr(getattr(model, "config", None), "id2label", None) or {}
    return tuple(str(named.get(number, number)) for number in range(classes))


def _renamed_classes(measured: MeasuredModel, test: Dataset) -> tuple[tuple[str, str], ...]:
    """The classes that the model and the dataset call by different names; none where one of them has no names."""
    named = getattr(measured.config, "id2label", None)
    feature = test.rows.features.get(test.label_column) if isinstance(test, ImageDataset) else None
    if not named or not isinstance(feature, datasets.ClassLabel):
        return ()
    return renamed_classes(class_names(measured.model, len(named)), feature.names)


# ---- A model and a dataset by name ----


class ModelAndData(NamedTuple):
    """The arguments of [`evaluate_checkpoint`]: `metadata` says where model and images come from."""

    measured: MeasuredModel
    test: ImageDataset
    calibration: ImageDataset | None
    metadata: dict[str, Any]


def load_model_and_data(
    model: str,
    source: DatasetSource,
    *,
    calibrate: bool = False,
    revision: str | None = None,
    image_size: int | None = None,
    skip_bad_images: bool = False,
    max_samples: int | None = None,
    cache_bytes: int = CACHE_BYTES,
    batch_size: int = 64,
    use_cpu: bool = False,
    progress: Progress | None = None,
) -> ModelAndData:
    """
    Load a classifier that was trained elsewhere and the images to measure it on, with the class numbers of the model.

    Args:
        model (`str`): A backbone, a timm name, a Hub id or a local folder.
        source ([`DatasetSource`]): Which dataset, and which of its splits serve for what.
        calibrate (`bool`, *optional*, defaults to `False`): Whether images to fit a temperature on are needed too.
        revision, image_size: See [`load_pretrained`].
        skip_bad_images (`bool`, *optional*, defaults to `False`): Leave out images that cannot be read.
        max_samples (`int`, *optional*): At most this many test images, and so many to fit a temperature on.
        cache_bytes (`int`, *optional*, defaults to 2 GB): See [`ImageDataset`].
        batch_size, progress: See [`MeasuredModel`].
        use_cpu (`bool`, *optional*, defaults to `False`): Do not use accelerators.
    """
    wanted = ("validation", "test") if calibrate else ("test",)
    capped = {"skip_bad_images": skip_bad_images, "max_eval_samples": max_samples}
    splits = load_data(source, wanted, unseen=split_that_trained(model, source) is None, **capped)
    classifier, processor = load_pretrained(model, revision, image_size)
    check_single_label(classifier)
    folded_temperature(classifier)  # what its config says of it must be a number
    images = aligned_images(splits, wanted, classifier.config, processor, cache_bytes)
    chosen = {"image_column": source.image_column, "label_column": source.label_column}
    chosen |= {"train_split": source.train_split, **capped}
    stats, accelerator = PixelStats.from_processor(processor), Accelerator(cpu=use_cpu)
    return ModelAndData(
        MeasuredModel(classifier, processor, stats, accelerator, batch_size, progress=progress),
        images["test"],
        images.get("validation"),
        {
            "model": public_name(model_id(model)),
            "model_revision": getattr(classifier.config, "_commit_hash", None) or revision,
            "dataset": public_name(source.path),
            "dataset_config": source.config,
            "split": splits.test_name,
            "data_arguments": {name: value for name, value in chosen.items() if value},
        },
    )


def split_that_trained(model: str, source: DatasetSource) -> str | None:
    """The split of the dataset that a local model was trained on, by its own report; `None` if it was another one."""
    try:
        report = EvaluationReport.load(Path(model, REPORT_FILE))
    except (OSError, ValueError):  # none, or none of ours
        return None
    if not report.training_arguments or report.dataset != public_name(source.path):
        return None
    split = report.training_arguments.get("train_split") or "train"
    if (source.test_split or "").partition("[")[0] == split:
        logger.warning(f"{model!r} was trained on {split!r}: what is measured there is better than on new images.")
    return split
