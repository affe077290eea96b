"""A published model against its own report: measured again on the data that the report names."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from torch import Tensor
from transformers import TrainingArguments
from transformers.utils import logging

from ..calibration.guarantees import measure_guarantees
from ..corruptions.frost import PROCEDURAL, frost_source
from ..data.images import ImageDataset, input_size
from ..data.preparing import aligned_images, load_data
from ..data.sources import DATASETS, DatasetSource
from ..hub.connection import hub_needed, is_local
from ..metrics import measure
from ..models.loading import load_pretrained
from ..report.corruption_names import CORRUPTIONS, MEANS, SEVERITIES
from ..report.evaluation import EvaluationReport, Interval
from ..report.guarantees import Guarantees, Share
from ..report.rows import SampleRows
from ..report.run import REPORT_FILE
from ..training.screen import Screen
from ..training.terminal import TerminalCallback, phase, view_of
from ..training.trainer import MaCSTrainer
from .byte_images import ByteImages
from .check import Check
from .corruption_benchmark import evaluate_corruptions, forward_of


logger = logging.get_logger(__name__)

# Arguments of a training run that say which images were tested.
COLUMNS = ("image_column", "label_column")


class Verification(NamedTuple):
    """What was checked of a model."""

    report: EvaluationReport
    dataset: str
    checks: list[Check]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


def published_report(model: str, revision: str | None = None) -> EvaluationReport:
    """
    The report that came with a model.

    Args:
        model (`str`): A local folder or a Hub id.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.

    Raises:
        `ValueError`: If it has none, or one that cannot be read.
    """
    absent = (
        f"{model!r} has no {REPORT_FILE}, so there is nothing to verify: only models that macs_hf measured come with "
        f"one. `macs-hf evaluate {model} --dataset DATASET` measures any model."
    )
    if is_local(model):
        path = Path(model, REPORT_FILE)
        if not path.is_file():
            raise ValueError(absent)
        return EvaluationReport.load(path)
    with hub_needed(f"Model {model!r}", model, "model", revision):
        try:
            path = hf_hub_download(model, REPORT_FILE, revision=revision)
        except LocalEntryNotFoundError:
            raise  # the Hub cannot be reached
        except EntryNotFoundError:
            raise ValueError(absent) from None
    try:
        return EvaluationReport.load(path)
    except ValueError as error:
        raise ValueError(f"The {REPORT_FILE} of {model!r} cannot be used: {error.__cause__ or error}") from error


def verify_model(
    model: str,
    *,
    revision: str | None = None,
    dataset: str | None = None,
    corruptions: bool = True,
    batch_size: int = 64,
    use_cpu: bool = False,
    screen: Screen | None = None,
    **source_changes: str | None,
) -> Verification:
    """
    Measure a published model again and compare with its report.

    Args:
        model (`str`): A local folder or a Hub id, with `evaluation.json`.
        revision (`str`, *optional*): Branch, tag or commit on the Hub.
        dataset (`str`, *optional*): Where the same data are, if not where the report says.
        corruptions (`bool`, *optional*, defaults to `True`): Measure under corruption too, if the report has it.
        batch_size (`int`, *optional*, defaults to 64): Images in a forward pass.
        use_cpu (`bool`, *optional*, defaults to `False`): Do not use accelerators.
        screen ([`Screen`], *optional*): Where to show how far it is; without one, `Trainer` draws its bar.
        source_changes: Fields of `DatasetSource` that the report does not say, such as `image_column`.

    Raises:
        `ValueError`: If the model has no report, or the data are not those of the report.
    """
    report = published_report(model, revision)
    source = _source(report, dataset, source_changes)
    arguments = report.training_arguments | report.data_arguments
    most = arguments.get("max_eval_samples")
    if most is not None and (not isinstance(most, int) or most < 1):
        raise ValueError(f"The report of {model!r} has max_eval_samples: {most!r}, which is no number of images.")
    splits = load_data(
        source,
        ("test",),
        streaming=bool(arguments.get("streaming", False)),
        skip_bad_images=bool(arguments.get("skip_bad_images", False)),
        max_eval_samples=most,
    )
    if len(splits.test) != report.n:
        raise ValueError(
            f"Split {source.test_split!r} of {source.path!r} has {len(splits.test)} images, but the report of "
            f"{model!r} is about {report.n}: these are other data. Name the right ones with dataset=... and split=..."
        )
    classifier, processor = load_pretrained(model, revision)
    if report.image_size not in (None, size := input_size(processor)):
        stated, made = ("{} x {} pixels".format(*sides) for sides in (report.image_size, size))
        raise ValueError(f"The report of {model!r} is about images of {stated}, but its processor makes {made}.")
    test = aligned_images(splits, ("test",), classifier.config, processor)["test"]
    with tempfile.TemporaryDirectory() as unused:
        args = TrainingArguments(unused, per_device_eval_batch_size=batch_size, report_to="none", use_cpu=use_cpu)
        trainer = MaCSTrainer(model=classifier, args=args, processing_class=processor)
        if screen is not None:
            TerminalCallback(screen).add_to(trainer)
        checks = [*_clean(trainer, test, report), *(_corrupted(trainer, test, report) if corruptions else ())]
    return Verification(report, source.path, checks)


def _source(report: EvaluationReport, dataset: str | None, changes: dict[str, str | None]) -> DatasetSource:
    """Where the images of a report are; what it does not say may be known of the dataset, or is given."""
    known = next((source for source in DATASETS.values() if source.path == report.dataset), None)
    if dataset is None and known is None and "/" not in report.dataset and not is_local(report.dataset):
        raise ValueError(
            f"The report names the data {report.dataset!r}, a folder of the machine that measured them. Name a copy "
            "of it with dataset=..."
        )
    source = replace(known or DatasetSource(report.dataset), config=report.dataset_config, test_split=report.split)
    arguments = report.training_arguments | report.data_arguments
    stated = {name: arguments.get(name) for name in (*COLUMNS, "train_split")}
    chosen = {"path": dataset} | {name: changes.get(name) or value for name, value in stated.items()}
    chosen |= {name: value for name, value in changes.items() if name not in stated}
    return replace(source, **{name: value for name, value in chosen.items() if value is not None})


def _clean(trainer: MaCSTrainer, test: ImageDataset, report: EvaluationReport) -> Iterator[Check]:
    with phase(trainer, f"testing on {len(test):,} images"):
        logits, labels = (torch.from_numpy(part) for part in trainer.predict_logits(test))
    folded = report.temperature.value if report.has_temperature else 1.0
    parts = {"": (report.published, logits)}
    if folded != 1.0:  # the model carries it in its head
        parts["before calibration: "] = (report.before, logits * folded)
    for title, (stated, part) in parts.items():
        measured = measure(SampleRows.from_logits(part, labels)).metrics
        for name, interval in stated.metrics.items():
            if name in measured:
                yield Check(f"{title}{name}", interval, measured[name])
    if report.guarantees is not None:
        yield from _promised(logits, labels, report.guarantees)


def _promised(logits: Tensor, labels: Tensor, stated: Guarantees) -> Iterator[Check]:
    """What came true of the promises: coverage of sets, and how many answers were given and right."""
    # The model carries the temperature in its head.
    found = measure_guarantees(replace(stated, temperature=1.0), logits, labels)
    for promise, now in zip(stated.prediction_sets, found.prediction_sets, strict=True):
        title = f"sets of {100 * promise.coverage:g} % ({promise.method})"
        yield from _share(f"{title}: coverage", promise.test_coverage, now.test_coverage)
    for promise, now in zip(stated.abstentions, found.abstentions, strict=True):
        title = f"answers at {100 * promise.accuracy:g} %"
        yield from _share(f"{title}: given", promise.test_answered, now.test_answered)
        yield from _share(f"{title}: right", promise.test_accuracy, now.test_accuracy)


def _share(name: str, stated: Share | None, found: Share | None) -> Iterator[Check]:
    if stated is not None and found is not None:
        yield Check(name, *(Interval(share.value, share.low, share.high) for share in (stated, found)))


def _corrupted(trainer: MaCSTrainer, test: ImageDataset, report: EvaluationReport) -> Iterator[Check]:
    stated = report.corruptions
    if stated is None or stated.source != "generated" or trainer.pixel_stats is None:
        return
    frost = "procedural" if stated.frost == PROCEDURAL else None
    if stated.when != "after_resize" or (stated.frost is not None and frost_source(frost) != stated.frost):
        logger.warning(
            f"Accuracy under corruption was measured with other images than can be made here (frost: {stated.frost}, "
            f"corrupted {stated.when}), and is left out."
        )
        return
    view = view_of(trainer)
    label = f"{len(CORRUPTIONS)} corruptions x {len(SEVERITIES)} on {stated.n:,} images"
    table = evaluate_corruptions(
        forward_of(trainer.model, trainer.pixel_stats),
        ByteImages(test, ("pixel_values", "labels"), trainer.pixel_stats),
        params=stated.params,
        samples=stated.n,
        design=stated.design,
        seed=stated.seed or 0,
        frost_textures=frost,
        batch_size=trainer.args.eval_batch_size,
        accelerator=trainer.accelerator,
        progress=True if view is None else partial(view.counted_phase, label),
    )
    for name in MEANS:
        intervals = [part.interval(name) for part in (stated, table)]
        if None not in intervals:
            yield Check(f"accuracy under corruption, {name}", *intervals)
