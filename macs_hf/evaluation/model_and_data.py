"""A classifier that was trained elsewhere and a dataset, both by name, ready to be measured; and how it is saved."""

from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedModel, TrainingArguments

from ..calibration.folding import folded_temperature
from ..data.images import CACHE_BYTES, ImageDataset
from ..data.preparing import aligned_images, load_data
from ..data.sources import DatasetSource
from ..disk.public_names import public_name
from ..models.loading import load_pretrained, model_id
from ..models.saving import save_classifier
from ..publishing.folder import write_card
from ..report.evaluation import EvaluationReport
from ..training.trainer import MaCSTrainer


class ModelAndData(NamedTuple):
    """
    What is measured: the arguments of [`evaluate_checkpoint`].

    Args:
        trainer ([`MaCSTrainer`]): Holds the model and its image processor.
        test, calibration ([`ImageDataset`]): Its images; no `calibration` unless it was asked for.
        metadata (`dict`): What the report says about where model and images come from.
    """

    trainer: MaCSTrainer
    test: ImageDataset
    calibration: ImageDataset | None
    metadata: dict[str, Any]


def load_model_and_data(
    model: str,
    source: DatasetSource,
    folder: str | Path,
    *,
    calibrate: bool = False,
    revision: str | None = None,
    image_size: int | None = None,
    skip_bad_images: bool = False,
    max_samples: int | None = None,
    cache_bytes: int = CACHE_BYTES,
    **training_arguments: Any,
) -> ModelAndData:
    """
    Load a classifier and the images to measure it on, with the class numbers of the model.

    Args:
        model (`str`): A backbone, a timm name, a Hub id or a local folder.
        source ([`DatasetSource`]): Which dataset, and which of its splits serve for what.
        folder (`str` or `Path`): Where the results will go.
        calibrate (`bool`, *optional*, defaults to `False`): Whether images to fit a temperature on are needed too.
        revision, image_size: See [`load_pretrained`].
        skip_bad_images (`bool`, *optional*, defaults to `False`): Leave out images that cannot be read.
        max_samples (`int`, *optional*): At most this many test images, and so many to fit a temperature on.
        cache_bytes (`int`, *optional*, defaults to 2 GB): See [`ImageDataset`].
        training_arguments: Those of [`~transformers.TrainingArguments`] that matter for measuring, such as
            `per_device_eval_batch_size` and `use_cpu`.
    """
    wanted = ("validation", "test") if calibrate else ("test",)
    splits = load_data(source, wanted, skip_bad_images=skip_bad_images, max_eval_samples=max_samples)
    classifier, processor = load_pretrained(model, revision, image_size)
    folded_temperature(classifier)  # what its config says of it must be a number
    datasets = aligned_images(splits, wanted, classifier.config, processor, cache_bytes)
    chosen = {"image_column": source.image_column, "label_column": source.label_column}
    chosen |= {"train_split": source.train_split, "skip_bad_images": skip_bad_images, "max_eval_samples": max_samples}
    args = TrainingArguments(str(folder), report_to="none", **training_arguments)
    return ModelAndData(
        MaCSTrainer(model=classifier, args=args, processing_class=processor),
        datasets["test"],
        datasets.get("validation"),
        {
            "model": public_name(model_id(model)),
            "model_revision": getattr(classifier.config, "_commit_hash", None) or revision,
            "dataset": public_name(source.path),
            "dataset_config": source.config,
            "split": source.test_split,
            "data_arguments": {name: value for name, value in chosen.items() if value},
        },
    )


def save_calibrated(
    model: PreTrainedModel,
    processor: Any,
    folder: str | Path,
    report: EvaluationReport,
    repo_id: str,
    *,
    base_model: str,
    **card: Any,
) -> list[Path]:
    """
    Save a classifier whose temperature has been folded in, and its card, into the folder that has its report.

    Args:
        model, processor: The classifier.
        folder (`str` or `Path`): Where [`write_report`] has been.
        report ([`EvaluationReport`]): What was measured.
        repo_id (`str`): Where it goes on the Hub, or only a name; see [`write_card`].
        base_model (`str`): The classifier that was calibrated, by the name it was loaded with.
        card: Other arguments of [`write_card`].

    Returns:
        `list[Path]`: The main files that were written.
    """
    folder = Path(folder)
    save_classifier(model, processor, folder)
    write_card(folder, repo_id, report, base_model=model_id(base_model), **card)
    return [folder / "README.md", folder / "model.safetensors"]
