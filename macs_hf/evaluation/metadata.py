"""What a trainer and a dataset say about themselves: names of the model, the data, the classes and the images."""

import os

import datasets
import numpy as np
from torch.utils.data import Dataset

from ..data.columns import renamed_classes
from ..data.images import ImageDataset
from ..disk.public_names import public_name
from ..training.trainer import MaCSTrainer


def default_metadata(trainer: MaCSTrainer, test: Dataset) -> dict[str, str]:
    """`model`, `dataset` and `split` of a report, where the caller does not say."""
    config = getattr(trainer.model, "config", None)
    model = getattr(config, "name_or_path", None) or type(trainer.model).__name__
    rows = test.rows if isinstance(test, ImageDataset) else test
    dataset = rows.info.dataset_name if isinstance(rows, datasets.Dataset) else None
    return {
        "model": public_name(model),
        "dataset": dataset or type(test).__name__,
        "split": split_of(test) or "test",
    }


def split_of(dataset: Dataset) -> str | None:
    """The name of the split, which the datasets of this package and of `datasets` have."""
    split = getattr(dataset, "split", None)
    return None if split is None else str(split)


def class_names(trainer: MaCSTrainer, classes: int) -> tuple[str, ...]:
    """What the model's config calls the classes; their numbers where it does not say."""
    named = getattr(getattr(trainer.model, "config", None), "id2label", None) or {}
    return tuple(str(named.get(number, number)) for number in range(classes))


def renamed_classes_of(trainer: MaCSTrainer, test: Dataset) -> tuple[tuple[str, str], ...]:
    """The classes that the model and the dataset call by different names; none where one of them has no names."""
    named = getattr(getattr(trainer.model, "config", None), "id2label", None)
    feature = test.rows.features.get(test.label_column) if isinstance(test, ImageDataset) else None
    if not named or not isinstance(feature, datasets.ClassLabel):
        return ()
    return renamed_classes(class_names(trainer, len(named)), feature.names)


def group_column_of(test: Dataset) -> str | None:
    return test.group_column if isinstance(test, ImageDataset) else None


def origin_of(test: Dataset) -> dict[str, np.ndarray | None]:
    """The columns `name`, `index` and `group` of the rows of a dataset, as far as it knows them."""
    if not isinstance(test, ImageDataset):
        return {}
    return {"name": _file_names(test), "index": test.index, "group": test.groups}


def _file_names(test: ImageDataset) -> np.ndarray | None:
    """The images' file names below the folder that holds them all, if every image has one of its own."""
    paths = test.paths()
    if None in paths or len(set(paths)) < len(paths):
        return None
    paths = [path.partition("::")[0].rpartition("://")[2] for path in paths]  # of a file inside an archive, that file
    if all(map(os.path.isabs, paths)):
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
        paths = [os.path.relpath(path, root) for path in paths]
    return np.array(paths)
