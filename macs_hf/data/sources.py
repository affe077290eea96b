"""Where datasets come from and how they are laid out: the benchmark's six by name, any other by its own columns."""

from dataclasses import dataclass, replace

from transformers.utils import logging

from ..hub.connection import is_local


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class DatasetSource:
    """Where a dataset is and how it is laid out."""

    path: str
    config: str | None = None
    image_column: str | None = None  # None: the only image column
    label_column: str | None = None  # None: the only class label, or `label`
    train_split: str = "train"
    validation_split: str | None = None  # None: `validation`, or split off train
    test_split: str = "test"
    horizontal_flip: bool = True  # mirroring keeps the meaning
    group_column: str | None = None  # what test images are grouped by, such as a camera


# Handwritten digits that need no download, all of them and few to train on.
EMBEDDED = ("digits", "few_digits")
# The benchmark's six datasets, and the embedded ones.
DATASETS: dict[str, DatasetSource] = {
    "digits": DatasetSource("digits", horizontal_flip=False),
    "few_digits": DatasetSource("few_digits", horizontal_flip=False),
    "cifar10": DatasetSource("uoft-cs/cifar10", None, "img", "label"),
    "cifar100": DatasetSource("uoft-cs/cifar100", None, "img", "fine_label"),
    "svhn": DatasetSource("ufldl-stanford/svhn", "cropped_digits", "image", "label", horizontal_flip=False),
    "oxford_pets": DatasetSource("timm/oxford-iiit-pet", None, "image", "label"),
    "food101": DatasetSource("ethz/food101", None, "image", "label", test_split="validation"),
    "flowers102": DatasetSource(
        "dpdl-benchmark/oxford_flowers102", None, "image", "label", validation_split="validation"
    ),
}


def comes_from_hub(source: DatasetSource) -> bool:
    """Whether a dataset is neither embedded nor in a folder."""
    return source.path not in EMBEDDED and not is_local(source.path)


def source_of(
    dataset: str, config: str | None = None, image_column: str | None = None, label_column: str | None = None, **splits
) -> DatasetSource:
    """A benchmark dataset by name, or a Hub id or local folder laid out as found; what is given here wins."""
    if not dataset.strip():
        raise ValueError(f"dataset={dataset!r} is empty: give a name ({', '.join(DATASETS)}), a Hub id or a folder.")
    source = DatasetSource(dataset)
    if dataset in DATASETS and is_local(dataset):
        logger.warning(
            f"The folder {dataset!r} in the current directory is used, not the dataset that is known by this name. "
            f"Rename the folder to get that one; write './{dataset}' to mean the folder."
        )
    elif dataset in DATASETS:
        source = DATASETS[dataset]
    chosen = {"config": config, "image_column": image_column, "label_column": label_column, **splits}
    return replace(source, **{name: value for name, value in chosen.items() if value is not None})
