"""Datasets: where they are, their splits and columns, decoding and augmenting images, streams."""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_getattr


# Loaded when used: the trainer needs other parts of this package, and torchvision takes a second to import.
_MODULES = {
    "EvalTransform": ".transforms",
    "ImageDataset": ".images",
    "KeyedDataset": "..randomness",
    "TrainTransform": ".transforms",
    "drop_unreadable": ".transforms",
    "image_datasets": ".preparing",
    "load_data": ".preparing",
    "load_ood": ".preparing",
    "source_of": ".sources",
}

if TYPE_CHECKING:
    from ..randomness import KeyedDataset
    from .images import ImageDataset
    from .preparing import image_datasets, load_data, load_ood
    from .sources import source_of
    from .transforms import EvalTransform, TrainTransform, drop_unreadable

__all__ = [
    "EvalTransform",
    "ImageDataset",
    "KeyedDataset",
    "TrainTransform",
    "drop_unreadable",
    "image_datasets",
    "load_data",
    "load_ood",
    "source_of",
]

__getattr__ = lazy_getattr(__name__, _MODULES)
