"""A published model against its own report: measured again on the data that the report names, image by image."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from huggingface_hub import snapshot_download
from torch import Tensor
from transformers.utils import logging

from ..calibration.guarantees import measure_guarantees
from ..corruptions.weather import PROCEDURAL, frost_source
from ..data.images import ImageDataset
from ..data.preparing import aligned_images, load_data
from ..data.sources import DATASETS, DatasetSource
from ..data.transforms import input_size
from ..exceptions import ArgumentError
from ..hub import check_place, hub_needed, is_local
from ..metrics import measure
from ..models.loading import load_pretrained
from ..pixels import PixelStats
from ..report.report import CorruptionTable, EvaluationReport, Guarantees, Interval, changed_files, load_run
from ..report.rows import MEANS, SampleRows
from ..report.run_folder import REPORT_FILE, ROWS_FILE
from .evaluate import MeasuredModel, Progress, measure_corruptions


logger = logging.get_logger(__name__)

# Another machine rounds otherwise, and may decode a picture to slightly other pixels.
SAME_CONFIDENCE, SAME_ANSWERS = 0.02, 0.99


class Number(NamedTuple):
    """
    One number of a report.

    Args:
        name (`str`): Which one.
        published ([`Interval`]): As the report has it.
        now (`float`): As it came out now.
        holds (`bool`): Whether it lies within the published interval, and that interval is no more than twice as wide
            as the one that was measured now: a report with wide intervals would always hold.
        same (`bool`): Whether it came out as published, up to 0.1 points or 1 %.
    """

    name: str
    published: Interval
    now: float
    holds: bool
    same: bool


class Verification(NamedTuple):
    """What was found of a model."""

    report: EvaluationReport
    dataset: str
    numbers: list[Number]

    @property
    def holds(self) -> bool:
        return all(number.holds for number in self.numbers)


def verify_model(
    model: str,
    *,
    revision: str | None = None,
    dataset: str | None = None,
    corruptions: bool = True,
    batch_size: int = 64,
    use_cpu: bool = False,
    progress: Progress | None = None,
    **source_changes: str | None,
) -> Verification:
    """
    Measure a published model again and compare with its report, its rows and its checksums.

    Args:
        model (`str`): A local folder or a Hub id, with `evaluation.json`.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.
        dataset (`str`, *optional*): Where the same data are, if not where the report says.
        corruptions (`bool`, *optional*, defaults to `True`): Measure under corruption too, if the report has it.
        batch_size, use_cpu, progress: See [`load_model_and_data`].
        source_changes: Fields of `DatasetSource` that the report does not say, such as `image_column`.

    Raises:
        `ValueError`: If the model has no report, its rows do not give the report's numbers, or the data are not those
            of the report.
    """
    folder = _folder(model, revision, [REPORT_FILE, ROWS_FILE])
    if not (folder / REPORT_FILE).is_file():
        raise ValueError(
            f"{model!r} has no {REPORT_FILE}, so there is nothing to verify: only models that macs_hf measured come "
            f"with one. `macs-hf evaluate {model} --dataset DATASET` measures any model."
        )
    report = EvaluationReport.load(folder / REPORT_FILE)
    # Reading the rows computes the report's metrics from them.
    rows = load_run(folder).rows if (folder / ROWS_FILE).is_file() else None
    source, arguments = _source(report, dataset, source_changes), report.training_arguments | report.data_arguments
    options = {name: bool(arguments.get(name, False)) for name in ("streaming", "skip_bad_images")}
    splits = load_data(source, ("test",), **options, max_eval_samples=arguments.get("max_eval_samples"))
    if len(splits.test) != report.n:
        raise ArgumentError(
            "split",
            f"Split {source.test_split!r} of {source.path!r} has {len(splits.test)} images, but the report of "
            f"{model!r} is about {report.n}: these are other data. Name the right ones with dataset=... and",
        )
    classifier, processor = load_pretrained(model, revision)
    if report.image_size not in (None, size := input_size(processor)):
        stated, made = ("{} x {} pixels".format(*sides) for sides in (report.image_size, size))
        raise ValueError(f"The report of {model!r} is about images of {stated}, but its processor makes {made}.")
    test = aligned_images(splits, ("test",), classifier.config, processor)["test"]
    stats, accelerator = PixelStats.from_processor(processor), Accelerator(cpu=use_cpu)
    measured = MeasuredModel(classifier, processor, stats, accelerator, batch_size, progress=progress)
    numbers = []
    if report.checksums:
        folder = _folder(model, revision, list(report.checksums))
        kept = [(folder / name).is_file() and not changed_files(report, folder, [name]) for name in report.checksums]
        numbers.append(_share("weights and rows unchanged", kept, 1.0))
    numbers += _clean(measured, test, report, rows)
    if corruptions and stats is not None and report.corruptions is not None:
        numbers += _corrupted(measured, test, report.corruptions)
    return Verification(report, source.path, numbers)


def _folder(model: str, revision: str | None, names: list[str]) -> Path:
    """Where those of the files are that there are, downloaded if the model is on the Hub."""
    if is_local(model):
        return Path(model)
    check_place("model", model)
    with hub_needed(f"Model {model!r}", model, "model", revision):
        return Path(snapshot_download(model, revision=revision, allow_patterns=names))


def _source(report: EvaluationReport, dataset: str | None, changes: dict[str, str | None]) -> DatasetSource:
    """Where the images of a report are; what it does not say may be known of the dataset, or is given."""
    known = next((source for source in DATASETS.values() if source.path == report.dataset), None)
    if dataset is None and known is None and "/" not in report.dataset and not is_local(report.dataset):
        raise ArgumentError(
            "dataset",
            f"The report names the data {report.dataset!r}, a folder of the machine that measured them. Name a copy "
            "of it with",
        )
    source = replace(known or DatasetSource(report.dataset), config=report.dataset_config, test_split=report.split)
    arguments = report.training_arguments | report.data_arguments
    stated = {name: arguments.get(name) for name in ("image_column", "label_column", "train_split")}
    given = {name: value for name, value in ({"path": dataset} | changes).items() if value}
    return replace(source, **{name: value for name, value in (stated | given).items() if value is not None})


def _compared(name: str, stated: Interval, now: Interval) -> Number:
    slack = 1e-4 * max(abs(stated.value), 1e-2)  # another machine rounds otherwise
    is_honest = stated.high - stated.low <= 2 * (now.high - now.low) + slack
    holds = is_honest and stated.low - slack <= now.value <= stated.high + slack
    same = abs(now.value - stated.value) <= max(1e-3, 1e-2 * abs(stated.value))
    return Number(name, stated, now.value, holds, same)


def _share(name: str, holds: Sequence[bool], at_least: float) -> Number:
    share = sum(holds) / len(holds)
    return Number(name, Interval(1.0, 1.0, 1.0), share, share >= at_least, share >= 0.99)


def _clean(
    measured: MeasuredModel, test: ImageDataset, report: EvaluationReport, rows: SampleRows | None
) -> Iterator[Number]:
    """The metrics of the published model, its answers image by image, and what came true of its guarantees."""
    logits, labels = measured.logits(test, f"testing on {len(test):,} images")
    logits, labels = torch.from_numpy(logits), torch.from_numpy(labels)
    now = SampleRows.from_logits(logits, labels)
    if rows is not None:
        same = (now.label == rows.label) & (now.prediction == rows.prediction)
        same &= np.abs(now.confidence - rows.confidence) <= SAME_CONFIDENCE
        yield _share("images with the same answer", same.tolist(), SAME_ANSWERS)
    metrics, stated = measure(now).metrics, report.published.metrics
    yield from (_compared(name, stated[name], metrics[name]) for name in stated if name in metrics)
    if report.guarantees is not None:
        yield from _guaranteed(logits, labels, report.guarantees)


def _guaranteed(logits: Tensor, labels: Tensor, stated: Guarantees) -> Iterator[Number]:
    """Coverage of sets, and how many answers were given and right."""
    # The model carries the temperature in its head.
    found = measure_guarantees(replace(stated, temperature=1.0), logits, labels)
    pairs: list[tuple[str, Interval | None, Interval | None]] = []
    for guarantee, now in zip(stated.prediction_sets, found.prediction_sets, strict=True):
        title = f"sets of {100 * guarantee.coverage:g} % ({guarantee.method})"
        pairs.append((f"{title}: coverage", guarantee.test_coverage, now.test_coverage))
    for guarantee, now in zip(stated.abstentions, found.abstentions, strict=True):
        title = f"answers at {100 * guarantee.accuracy:g} %"
        pairs.append((f"{title}: given", guarantee.test_answered, now.test_answered))
        pairs.append((f"{title}: right", guarantee.test_accuracy, now.test_accuracy))
    yield from (_compared(*pair) for pair in pairs if None not in pair)


def _corrupted(measured: MeasuredModel, test: ImageDataset, stated: CorruptionTable) -> Iterator[Number]:
    frost = "procedural" if stated.frost == PROCEDURAL else None
    if stated.when != "after_resize" or (stated.frost is not None and frost_source(frost) != stated.frost):
        logger.warning(
            f"Accuracy under corruption was measured with other images than can be made here (frost: {stated.frost}, "
            f"corrupted {stated.when}), and is left out."
        )
        return
    options = {"params": stated.params, "samples": stated.n, "design": stated.design, "seed": stated.seed or 0}
    table = measure_corruptions(measured, test, **options, frost_textures=frost)
    intervals = ((name, stated.interval(name), table.interval(name)) for name in MEANS)
    yield from (
        _compared(f"accuracy under corruption, {name}", *pair) for name, *pair in intervals if None not in pair
    )
