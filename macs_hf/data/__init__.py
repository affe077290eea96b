"""Datasets: where they are, their splits and columns, decoding and augmenting images, streams."""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_getattr


# Loaded when used: the trainer needs other parts of this package, and torchvision takes a second to import.
_MODULES = {
    "EvalTransform": ".transforms",
    "ImageDataset": ".images",
    "KeyedDataset": ".keyed_draws",
    "TrainTransform": ".transforms",
    "decode": ".decoding",
    "drop_unreadable": ".decoding",
    "image_datasets": ".preparing",
    "input_size": ".transforms",
    "load_data": ".preparing",
    "load_unknowns": ".unknowns",
    "source_of": ".sources",
}

if TYPE_CHECKING:
    from .decoding import decode, drop_unreadable
    from .images import ImageDataset
    from .keyed_draws import KeyedDataset
    from .preparing import image_datasets, load_data
    from .sources import source_of
    from .transforms import EvalTransform, TrainTransform, input_size
    from .unknowns import load_unknowns

__all__ = [
    "EvalTransform",
    "ImageDataset",
    "KeyedDataset",
    "TrainTransform",
    "decode",
    "drop_unreadable",
    "image_datasets",
    "input_size",
    "load_data",
    "load_unknowns",
    "source_of",
]

__getattr__ = lazy_getattr(__name__, _MODULES)
