"""A published model against its own report: measured again on the data that the report names, image by image."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from accelerate import Accelerator
from huggingface_hub import snapshot_download
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
    arguments = report.training_arguments | report.data_arguments
    source = _source(report, arguments, {"path": dataset} | source_changes)
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
        numbers.append(_share("weights and rows unchanged", np.mean(kept), 1.0))
    logits, labels = measured.logits(test, f"testing on {len(test):,} images")
    now, guarantees, table = SampleRows.from_logits(logits, labels), report.guarantees, None
    if rows is not None:
        same = (now.label == rows.label) & (now.prediction == rows.prediction)
        same &= np.abs(now.confidence - rows.confidence) <= SAME_CONFIDENCE
        numbers.append(_share("images with the same answer", same.mean(), SAME_ANSWERS))
    if guarantees is not None:  # the model carries the temperature in its head
        guarantees = measure_guarantees(replace(guarantees, temperature=1.0), logits, labels)
    if corruptions and stats is not None and report.corruptions is not None:
        table = _corrupted(measured, test, report.corruptions)
    stated = _intervals(report.published.metrics, report.guarantees, report.corruptions)
    found = _intervals(measure(now).metrics, guarantees, table)
    numbers += [_compared(name, stated[name], found[name]) for name in stated if name in found]
    return Verification(report, numbers)


def _folder(model: str, revision: str | None, names: list[str]) -> Path:
    """Where those of the files are that there are, downloaded if the model is on the Hub."""
    if is_local(model):
        return Path(model)
    check_place("model", model)
    with hub_needed(f"Model {model!r}", model, "model", revision):
        return Path(snapshot_download(model, revision=revision, allow_patterns=names))


def _source(
    report: EvaluationReport, arguments: Mapping[str, Any], changes: Mapping[str, str | None]
) -> DatasetSource:
    """Where the images of a report are; what it does not say may be known of the dataset, or is given."""
    known = next((source for source in DATASETS.values() if source.path == report.dataset), None)
    if changes["path"] is None and known is None and "/" not in report.dataset and not is_local(report.dataset):
        raise ArgumentError(
            "dataset",
            f"The report names the data {report.dataset!r}, a folder of the machine that measured them. Name a copy "
            "of it with",
        )
    source = replace(known or DatasetSource(report.dataset), config=report.dataset_config, test_split=report.split)
    stated = {name: arguments.get(name) for name in ("image_column", "label_column", "train_split")}
    chosen = {name: value for place in (stated, changes) for name, value in place.items() if value}
    return replace(source, **chosen)


def _compared(name: str, stated: Interval, now: Interval) -> Number:
    slack = 1e-4 * max(abs(stated.value), 1e-2)  # another machine rounds otherwise
    is_honest = stated.high - stated.low <= 2 * (now.high - now.low) + slack
    holds = is_honest and stated.low - slack <= now.value <= stated.high + slack
    same = abs(now.value - stated.value) <= max(1e-3, 1e-2 * abs(stated.value))
    return Number(name, stated, now.value, holds, same)


def _share(name: str, share: float, at_least: float) -> Number:
    return Number(name, Interval(1.0, 1.0, 1.0), float(share), bool(share >= at_least), bool(share >= 0.99))


def _intervals(
    metrics: Mapping[str, Interval], guarantees: Guarantees | None, table: CorruptionTable | None
) -> dict[str, Interval]:
    """All that is compared, by its name: metrics, what came true of guarantees, and accuracy under corruption."""
    found: dict[str, Interval | None] = dict(metrics)
    for part in () if guarantees is None else guarantees.prediction_sets:
        found[f"sets of {100 * part.coverage:g} % ({part.method}): coverage"] = part.test_coverage
    for part in () if guarantees is None else guarantees.abstentions:
        title = f"answers at {100 * part.accuracy:g} %"
        found |= {f"{title}: given": part.test_answered, f"{title}: right": part.test_accuracy}
    for name in () if table is None else MEANS:
        found[f"accuracy under corruption, {name}"] = table.interval(name)
    return {name: interval for name, interval in found.items() if interval is not None}


def _corrupted(measured: MeasuredModel, test: ImageDataset, stated: CorruptionTable) -> CorruptionTable | None:
    frost = "procedural" if stated.frost == PROCEDURAL else None
    if stated.when != "after_resize" or (stated.frost is not None and frost_source(frost) != stated.frost):
        logger.warning(
            f"Accuracy under corruption was measured with other images than can be made here (frost: {stated.frost}, "
            f"corrupted {stated.when}), and is left out."
        )
        return None
    options = {"params": stated.params, "samples": stated.n, "design": stated.design, "seed": stated.seed or 0}
    return measure_corruptions(measured, test, **options, frost_textures=frost)
